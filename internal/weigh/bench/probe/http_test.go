// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestDialOwnAddress: to ask an address of the host itself while nothing listens there is refused, and leaves the port
// free. The range of source ports is such that the kernel would choose the port itself.
func TestDialOwnAddress(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.In(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetUp(lo),
			testenv.WriteSysctl("net/ipv4/ip_local_port_range", "7000 7001")); err != nil {
			return err
		}
		for _, address := range []string{"198.18.0.100", "2001:2::100"} {
			ip := netip.MustParseAddr(address)
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(ip.AsSlice()),
				Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
			dial := func() error {
				dialer, err := dialerTo(ip)
				if err == nil {
					_, err = dialer.Dial("tcp", netip.AddrPortFrom(ip, 7000).String())
				}
				return err
			}
			// The kernel adds the route to an IPv6 address a moment after the address.
			testenv.Eventually(t, testenv.WaitLimit, "there is a route to "+address, func() bool {
				return !errors.Is(dial(), unix.ENETUNREACH)
			})
			for range 4 {
				if err := dial(); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("%s: %v, want a refusal", address, err)
				}
			}
			listener, err := net.Listen("tcp", netip.AddrPortFrom(ip, 7000).String())
			if err != nil {
				return err
			}
			dialer, err := dialerTo(ip)
			if err != nil {
				return err
			}
			connection, err := dialer.Dial("tcp", listener.Addr().String())
			if err != nil {
				return err
			}
			if err := errors.Join(connection.Close(), listener.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}
