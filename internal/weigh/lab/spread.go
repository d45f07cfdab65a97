// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// hashOfPorts makes the kernel choose among the ways of a route by the hash of
// addresses and ports (Documentation/networking/ip-sysctl.rst), per connection.
const hashOfPorts = "1"

// Spread gives hosts a route to an IPv4 VIP over servers, or takes it back: each
// connection goes to one of them by its hash, as through a balancer but with none
// on the way. The servers must hold the VIP.
func (l *Lab) Spread(from []*Host, vip netip.Addr, servers []*Host, on bool) error {
	if l.far != nil {
		return spreadFar(from, vip, servers, on)
	}
	for _, h := range from {
		err := h.Do(func() error {
			route, err := h.routeOver(vip, servers)
			if err != nil {
				return err
			}
			if !on {
				return netlink.RouteDel(route)
			}
			if err := sysctl.Write("net.ipv4.fib_multipath_hash_policy", hashOfPorts); err != nil {
				return err
			}
			return netlink.RouteReplace(route)
		})
		if err != nil {
			return fmt.Errorf("set the route of %s to %s over the servers: %w", h.Name, vip, err)
		}
	}
	return nil
}

// routeOver makes a route with a way over each server.
func (h *Host) routeOver(vip netip.Addr, servers []*Host) (*netlink.Route, error) {
	device, err := netlink.LinkByName(h.deviceTo(topology.Server))
	if err != nil {
		return nil, err
	}
	route := &netlink.Route{
		Dst:     netdev.IPNet(netip.PrefixFrom(vip, vip.BitLen())),
		Congctl: netdev.CongestionControl,
	}
	for _, server := range servers {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{
			LinkIndex: device.Attrs().Index,
			Gw:        server.IPv4.AsSlice(),
		})
	}
	return route, nil
}
