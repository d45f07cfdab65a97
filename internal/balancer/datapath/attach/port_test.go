// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// replaceLinks makes look-ups of links return a result until the test ends.
func replaceLinks(t *testing.T, link netlink.Link, err error) {
	byName, byIndex := linkByName, linkByIndex
	t.Cleanup(func() { linkByName, linkByIndex = byName, byIndex })
	linkByName = func(string) (netlink.Link, error) { return link, err }
	linkByIndex = func(int) (netlink.Link, error) { return link, err }
}

// TestPortLookup: an interface counts as deleted only if the kernel reports that there is none, and not if asking it
// failed.
func TestPortLookup(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	eth0 := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Index: 2, HardwareAddr: mac}}
	for name, test := range map[string]struct {
		link    netlink.Link
		err     error
		want    error
		deleted bool
	}{
		"present":             {link: eth0},
		"no such interface":   {err: netlink.LinkNotFoundError{}, want: ErrNoInterface, deleted: true},
		"too many open files": {err: unix.EMFILE, want: unix.EMFILE},
		"no buffer":           {err: unix.ENOBUFS, want: unix.ENOBUFS},
		"an interrupted dump": {err: netlink.ErrDumpInterrupted, want: netlink.ErrDumpInterrupted},
		"an alternative name": {link: &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "enp1s0", Index: 2}},
			want: ErrNoInterface},
	} {
		t.Run(name, func(t *testing.T) {
			replaceLinks(t, test.link, test.err)
			ports, err := Ports([]string{"eth0"})
			if !errors.Is(err, test.want) || errors.Is(err, ErrNoInterface) != (test.want == ErrNoInterface) {
				t.Errorf("%v, want %v", err, test.want)
			}
			want := Port{Name: "eth0", Index: 2, MAC: mac}
			if err == nil && (len(ports) != 1 || !ports[0].Same(want)) {
				t.Errorf("%+v, want %+v", ports, want)
			}
			if got := (Port{Name: "eth0", Index: 2}).Deleted(); got != test.deleted {
				t.Errorf("deleted: %t, want %t", got, test.deleted)
			}
		})
	}
}
