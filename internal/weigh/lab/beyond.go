// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// RouteThrough routes what a host sends to a range of addresses, which no host in
// the lab has, through another host; or takes that back. The range is of the
// half of the lab's addresses that is on no segment, such as 198.19.0.0/16, or is
// more specific than the segment.
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

// NextHop returns which address the host sends to on the segment for what is for
// another: a router's, or the other's own.
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

// Set sets a sysctl of the host's own, such as net.ipv4.tcp_syncookies, for as long
// as the lab lives or until it is set again.
func (h *Host) Set(name, value string) error {
	if err := h.Do(func() error { return sysctl.Write(name, value) }); err != nil {
		return fmt.Errorf("set %s of %s: %w", name, h.Name, err)
	}
	return nil
}
