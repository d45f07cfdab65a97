// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// settleLimit bounds awaitSettled: a cable whose other end is down never carries anything.
const settleLimit = 10 * time.Second

// awaitSettled waits until cables that were just connected carry packets: the kernel notices that in the background,
// and then sets the flag and the routes of their link-local addresses, which no program has set. The caller is in the
// network namespace.
func awaitSettled(tb testing.TB) error {
	tb.Helper()
	for until := time.Now().Add(settleLimit); ; {
		settled, err := isSettled()
		if err != nil || settled {
			return err
		}
		if time.Now().After(until) {
			tb.Logf("after %s, an interface still carries nothing", settleLimit)
			return nil
		}
		<-time.After(5 * time.Millisecond)
	}
}

// isSettled reports whether each veth that is up carries packets, and the kernel has the routes to its link-local
// addresses.
func isSettled() (bool, error) {
	links, err := netdump.Links()
	if err != nil {
		return false, err
	}
	routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL},
			netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return false, err
	}
	local := map[string]bool{}
	for _, r := range routes {
		if r.Dst != nil {
			local[r.Dst.IP.String()] = true
		}
	}
	for _, l := range links {
		if a := l.Attrs(); l.Type() != "veth" || a.Flags&net.FlagUp == 0 {
			continue
		} else if a.RawFlags&unix.IFF_RUNNING == 0 {
			return false, nil
		}
		addresses, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(l, netlink.FAMILY_V6)
		})
		if err != nil {
			return false, err
		}
		for _, address := range addresses {
			if address.IP.IsLinkLocalUnicast() && !local[address.IP.String()] {
				return false, nil
			}
		}
	}
	return true, nil
}
