// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// In a lab with [Spec.Containers], the servers are where Docker has containers: each is the far end of a veth whose
// other end is in a bridge on the balancer, with the bridge's address as its default gateway. The range is on no
// segment, so that clients beyond the balancer reach a server only through it.

// Containers reports whether the servers are behind a bridge on the balancer.
func (l *Lab) Containers() bool { return l.Balancer.Bridge != "" }

// ContainerRange is the range of the IPv4 addresses of the servers and of the bridge, where the servers are behind one.
func (l *Lab) ContainerRange() netip.Prefix {
	return netip.PrefixFrom(topology.ContainerBridge, topology.Prefix4).Masked()
}

// contained reports whether a host of a role is behind the bridge on the balancer.
func (l *Lab) contained(r topology.Role) bool { return l.spec.Containers && r == topology.Server }

// bridgeContainers makes the bridge on the balancer. Its MAC address is fixed, because a bridge without its own MAC
// address takes the lowest of its ports' addresses, again with each port.
func (l *Lab) bridgeContainers() error {
	h := l.Balancer
	err := h.onKeeper(func() error {
		if err := netdev.BuildBridge(topology.MAC(topology.Balancer, 2)); err != nil {
			return err
		}
		note, err := netdev.AddAddresses(netdev.Bridge, topology.ContainerBridge, topology.ContainerBridge6)
		if note != "" {
			l.note(note)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make the containers' bridge on %s: %w", h.Name, err)
	}
	h.Bridge = netdev.Bridge
	return nil
}

// routeByBridge gives a server its default routes. It runs inside the server.
func (h *Host) routeByBridge() error {
	link, err := netlink.LinkByName(h.Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", h.Interface, err)
	}
	for _, gateway := range []netip.Addr{topology.ContainerBridge, topology.ContainerBridge6} {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice(), Congctl: netdev.CongestionControl,
			Dst: &net.IPNet{IP: make(net.IP, gateway.BitLen()/8), Mask: net.CIDRMask(0, gateway.BitLen())}}
		if netlink.RouteReplace(route) == nil {
			continue
		}
		// The connected routes lack it, too, and a note says so.
		route.Congctl = ""
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("route %s by %s: %w", h.Name, gateway, err)
		}
	}
	return nil
}
