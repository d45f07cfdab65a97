// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"errors"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestLookupFails: that the kernel could not answer does not mean that there is no route, so that the paths before stay
// and are looked up again soon.
func TestLookupFails(t *testing.T) {
	t.Parallel()
	for errno, answers := range map[unix.Errno]bool{unix.ENOBUFS: false, unix.ENOMEM: false, unix.EAGAIN: false,
		unix.EINTR: false, unix.ENETUNREACH: true, unix.EHOSTUNREACH: true, unix.EINVAL: true, unix.EACCES: true} {
		p := &Paths{routeGet: func(net.IP) ([]netlink.Route, error) { return nil, errno }}
		r, err := p.routeTo(addr("192.0.2.1"), nil)
		if answers && (err != nil || r.Fault != NoRoute) || !answers && (!errors.Is(err, errno) || r != Route{}) {
			t.Errorf("%v: route %+v, error %v", errno, r, err)
		}
	}
}
