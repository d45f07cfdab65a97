// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// MaxBalancers bounds the balancers of one laboratory.
const MaxBalancers = 9

// uplinkBits are those of the prefix of a balancer's link to the router, 198.19.N.0/24.
const uplinkBits = 24

// addBalancers adds the balancers beside the first, the router before them, and their links.
func (l *Lab) addBalancers(ctx context.Context) (err error) {
	l.Balancers = []*Host{l.Balancer}
	if l.Router, err = l.addHost(topology.Router, 1); err != nil {
		return err
	}
	if err := l.Router.onKeeper(func() error {
		for _, s := range topology.RouterSettings {
			if err := sysctl.Write(s.Name, s.Value); err != nil {
				return fmt.Errorf("set %s of the router: %w", s.Name, err)
			}
		}
		return netdev.ForgetHash(l.Router.Interface)
	}); err != nil {
		return err
	}
	for n := 1; n <= l.spec.Balancers; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n > 1 {
			h, err := l.addHost(topology.Balancer, n)
			if h != nil {
				l.Balancers = append(l.Balancers, h)
			}
			if err != nil {
				return err
			}
		}
		if err := l.linkToRouter(l.Balancers[n-1], n); err != nil {
			return fmt.Errorf("link %s to the router: %w", l.Balancers[n-1].Name, err)
		}
	}
	return nil
}

// allBalancers are those of any laboratory.
func (l *Lab) allBalancers() []*Host {
	if len(l.Balancers) > 0 {
		return l.Balancers
	}
	return []*Host{l.Balancer}
}

// linkToRouter makes balancer n's own link, whose loss both ends see at once.
func (l *Lab) linkToRouter(h *Host, n int) error {
	h.Uplink = topology.DeviceName(fmt.Sprintf("up%d", n), l.ID)
	h.GatewayPort = topology.DeviceName(fmt.Sprintf("to-lb%d", n), l.ID)
	h.Gateway4, h.Uplink4 = netip.AddrFrom4([4]byte{198, 19, byte(n), 1}), netip.AddrFrom4([4]byte{198, 19, byte(n), 2})
	err := l.Router.onKeeper(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = h.GatewayPort
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerNamespace = h.Uplink, netlink.NsFd(h.netns.Fd())
		veth.PeerHardwareAddr = net.HardwareAddr{0x02, 0x00, 0x13, byte(n), 0, 2}
		return errors.Join(netlink.LinkAdd(veth), netdev.GiveAddress(h.GatewayPort, netip.PrefixFrom(h.Gateway4, uplinkBits)))
	})
	if err != nil {
		return err
	}
	return h.onKeeper(func() error { return netdev.GiveAddress(h.Uplink, netip.PrefixFrom(h.Uplink4, uplinkBits)) })
}

// acceptAtRouter is AcceptXDP at the router's ends of the balancers' links: what goes to one that may use XDP must be
// whole there, too.
func (l *Lab) acceptAtRouter(on bool) error {
	if l.Router == nil {
		return nil
	}
	return l.Router.Do(func() error {
		var errs []error
		for _, h := range l.Balancers {
			if on {
				errs = append(errs, l.apply(h.GatewayPort, netdev.Offloads{}), netdev.AcceptXDP(h.GatewayPort))
			} else {
				errs = append(errs, netdev.AttachXDP(h.GatewayPort, -1),
					l.apply(h.GatewayPort, netdev.Offloads{Segments: true, Checksums: true}))
			}
		}
		return errors.Join(errs...)
	})
}

// Cut takes a balancer's link to the router down at the balancer's end, and up again: the router sees
// that its end has lost the carrier.
func (h *Host) Cut(on bool) error {
	err := h.Do(func() error {
		link, err := netlink.LinkByName(h.Uplink)
		switch {
		case err != nil:
			return err
		case on:
			return netlink.LinkSetDown(link)
		}
		return netlink.LinkSetUp(link)
	})
	if err != nil {
		return fmt.Errorf("set the link of %s to the router: %w", h.Name, err)
	}
	return nil
}

// Ways are the balancers that the router's kernel would send a packet for an address to, by the routes that
// it has: next hops whose link is gone do not count.
func (l *Lab) Ways(vip netip.Addr) (ways []*Host, err error) {
	err = l.Router.Do(func() error {
		routes, err := netdump.Whole(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(netlink.FAMILY_V4,
				&netlink.Route{Dst: netdev.IPNet(netip.PrefixFrom(vip, vip.BitLen()))}, netlink.RT_FILTER_DST)
		})
		if err != nil {
			return err
		}
		for _, route := range routes {
			for _, h := range l.Balancers {
				if leadsTo(route, h.Uplink4) {
					ways = append(ways, h)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the routes of the router: %w", err)
	}
	return ways, nil
}

// gone are the flags of a next hop that gets no packet: RTNH_F_DEAD, and RTNH_F_LINKDOWN.
const gone = 1 | 16

// leadsTo says whether a route has a living next hop.
func leadsTo(route netlink.Route, gateway netip.Addr) bool {
	if len(route.MultiPath) == 0 {
		return route.Gw.Equal(gateway.AsSlice()) && route.Flags&gone == 0
	}
	for _, hop := range route.MultiPath {
		if hop.Gw.Equal(gateway.AsSlice()) && hop.Flags&gone == 0 {
			return true
		}
	}
	return false
}
