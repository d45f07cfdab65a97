// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestRouterOfRepliesIsConfirmed: the MAC address of the clients' router changes without an announcement, and the
// router is silent for a while after that. Only the balancer can detect that: the router has the balancer's address,
// and does not resolve it.
func TestRouterOfRepliesIsConfirmed(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		x := newMultiLinkBalancer(t, hook)
		router, behind := netip.MustParseAddr("10.77.1.2"), netip.MustParseAddr("10.78.0.2")
		within(t, x.host, func() error {
			if err := testenv.WriteSysctl("net/ipv4/neigh/one/retrans_time_ms", "50"); err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{Dst: netlink.NewIPNet(behind.AsSlice()), Gw: router.AsSlice()})
		})
		in := func(do func(netlink.Link) error) {
			t.Helper()
			testenv.In(t, x.cable["one"], func() error {
				link, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				return do(link)
			})
		}
		in(func(link netlink.Link) error {
			routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
				return netlink.RouteList(nil, netlink.FAMILY_V4)
			})
			if err != nil {
				return err
			}
			at := slices.IndexFunc(routes, func(r netlink.Route) bool { return r.Gw != nil })
			routes[at].Src = behind.AsSlice()
			if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(behind.AsSlice())}); err != nil {
				return err
			}
			return netlink.RouteReplace(&routes[at])
		})
		x.interfaces(t, "one", "back")
		x.start(t)
		x.expectTakenOn(t, "one", "back")
		lines := x.open(t, "one")
		if from := lines[0].LocalAddr().String(); !strings.HasPrefix(from, behind.String()) {
			t.Fatalf("the client is %s", from)
		}

		moved := net.HardwareAddr{2, 0, 0, 0xcc, 0, 1}
		in(func(link netlink.Link) error {
			known, err := netdump.Consistent(func() ([]netlink.Neigh, error) {
				return netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
			})
			if err != nil {
				return err
			}
			if err := netlink.LinkSetHardwareAddr(link, moved); err != nil {
				return err
			}
			for i := range known {
				known[i].State = netlink.NUD_PERMANENT
				if err := netlink.NeighSet(&known[i]); err != nil {
					return err
				}
			}
			return nil
		})
		testenv.Eventually(t, e2e.WaitLimit, "the balancer's kernel knows where the router is now", func() (knows bool) {
			within(t, x.host, func() error {
				link, err := netlink.LinkByName("one")
				if err != nil {
					return err
				}
				list, err := netdump.Consistent(func() ([]netlink.Neigh, error) {
					return netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
				})
				knows = slices.ContainsFunc(list, func(n netlink.Neigh) bool {
					return n.IP.Equal(router.AsSlice()) && bytes.Equal(n.HardwareAddr, moved)
				})
				return err
			})
			return knows
		})
		expectAlive(t, "with a router of another MAC address", lines)

		silence := func(level string) {
			in(func(netlink.Link) error { return testenv.WriteSysctl("net/ipv4/conf/all/arp_ignore", level) })
		}
		names := func(status *ops.Status) bool {
			return slices.ContainsFunc(status.Problems, func(p string) bool {
				return strings.HasPrefix(p, "the router "+router.String()+" on one does not answer ARP requests")
			})
		}
		silence("8")
		stop := lines[0].busy()
		x.eventually(t, "the silent router is named", names)
		silence("0")
		x.eventually(t, "the router answers again", func(status *ops.Status) bool { return !names(status) })
		expectAlive(t, "with a router that was silent", lines[1:])
		if err := stop(); err != nil {
			t.Errorf("a connection that was busy meanwhile: %v", err)
		}
	})
}
