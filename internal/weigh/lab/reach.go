// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// RouteThrough routes a host's packets for a range of addresses, which no host in the lab has, through another host; or
// undoes that. The range is in the half of the lab's addresses that is on no segment, such as 198.19.0.0/16, or is more
// specific than the segment.
func (h *Host) RouteThrough(gateway *Host, to netip.Prefix, on bool) error {
	err := h.Do(func() error {
		device, err := netlink.LinkByName(h.Interface)
		if err != nil {
			return err
		}
		via := gateway.IPv4
		if to.Addr().Is6() {
			via = gateway.IPv6
		}
		route := &netlink.Route{LinkIndex: device.Attrs().Index, Dst: netdev.IPNet(to), Gw: via.AsSlice()}
		return netdev.SwitchRoute(route, on)
	})
	if err != nil {
		return fmt.Errorf("set the route of %s to %v through %s: %w", h.Name, to, gateway.Name, err)
	}
	return nil
}

// NextHop returns the address on the segment to which the host sends packets for another address: a router's, or that
// address itself.
func (h *Host) NextHop(to netip.Addr) (netip.Addr, error) {
	next := to
	err := h.Do(func() error {
		routes, err := netlink.RouteGet(to.AsSlice())
		if err != nil {
			return err
		}
		if gateway, ok := netip.AddrFromSlice(routes[0].Gw); ok {
			next = gateway.Unmap()
		}
		return nil
	})
	if err != nil {
		return next, fmt.Errorf("ask %s for the way to %v: %w", h.Name, to, err)
	}
	return next, nil
}

// Set sets a sysctl of the host's own, such as net.ipv4.tcp_syncookies, for as long as the lab exists or until it is
// set again.
func (h *Host) Set(name, value string) error {
	if err := h.Do(func() error { return sysctl.Write(name, value) }); err != nil {
		return fmt.Errorf("set %s of %s: %w", name, h.Name, err)
	}
	return nil
}

// Disconnect disconnects the host from the segment, as if its cable were unplugged or its power off, and connects it
// again: the switch's end of its link goes down, so nothing passes, including ARP and NDP. The host's processes,
// addresses and sockets stay. It returns ErrRemote where the host is a machine.
func (h *Host) Disconnect(on bool) error {
	if h.machine != nil {
		return fmt.Errorf("take host %s off the segment: %w", h.Name, ErrRemote)
	}
	err := h.portOn.Do(func() error {
		port, err := netlink.LinkByName(h.Port)
		if err != nil {
			return err
		}
		if on {
			return netlink.LinkSetDown(port)
		}
		return netlink.LinkSetUp(port)
	})
	if err != nil {
		return fmt.Errorf("set the port of %s: %w", h.Name, err)
	}
	return nil
}

// discardPort is the port of the discard protocol (RFC 863).
const discardPort = 9

// SendDatagram sends another host a datagram, which is not answered. The ARP request before it updates that host's
// neighbour table and the switch's, as the first packet of a booted machine does.
func (h *Host) SendDatagram(other *Host) error {
	err := h.Do(func() error {
		conn, err := net.Dial("udp4", netip.AddrPortFrom(other.IPv4, discardPort).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte{0})
		return err
	})
	if err != nil {
		return fmt.Errorf("greet %s from %s: %w", other.Name, h.Name, err)
	}
	return nil
}

// Cut sets a balancer's link to the router down at the balancer's end, and up again: the router sees that its end has
// lost the carrier.
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

// NextHops returns the balancers that the router's kernel would send a packet for an address to, by its routes: next
// hops whose link is down do not count.
func (l *Lab) NextHops(vip netip.Addr) (hops []*Host, err error) {
	err = l.Router.Do(func() error {
		routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(netlink.FAMILY_V4,
				&netlink.Route{Dst: netdev.IPNet(netip.PrefixFrom(vip, vip.BitLen()))}, netlink.RT_FILTER_DST)
		})
		if err != nil {
			return err
		}
		for _, route := range routes {
			for _, h := range l.Balancers {
				if leadsTo(route, h.Uplink4) {
					hops = append(hops, h)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the routes of the router: %w", err)
	}
	return hops, nil
}

// downFlags are the flags of a next hop that receives no packet: RTNH_F_DEAD, and RTNH_F_LINKDOWN.
const downFlags = 1 | 16

// leadsTo reports whether a route has a next hop that is up.
func leadsTo(route netlink.Route, gateway netip.Addr) bool {
	if len(route.MultiPath) == 0 {
		return route.Gw.Equal(gateway.AsSlice()) && route.Flags&downFlags == 0
	}
	for _, hop := range route.MultiPath {
		if hop.Gw.Equal(gateway.AsSlice()) && hop.Flags&downFlags == 0 {
			return true
		}
	}
	return false
}
