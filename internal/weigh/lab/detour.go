// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// Forward makes the balancer forward IPv4 packets between clients and servers as
// a router does, or takes that back.
func (l *Lab) Forward(on bool) error {
	if l.far != nil {
		_, err := briefly(forwardTask, l.Balancer, on)
		return err
	}
	value := "0"
	if on {
		value = "1"
	}
	if err := l.Balancer.Do(func() error { return sysctl.Write(topology.Forwarding, value) }); err != nil {
		return fmt.Errorf("set the forwarding of %s: %w", l.Balancer.Name, err)
	}
	return nil
}

// DetourReplies routes what servers send to clients through the balancer, or
// takes that back. It is what a balancer that rewrites addresses needs of them.
// Containers answer by their bridge, and so by the balancer, in any case.
func (l *Lab) DetourReplies(on bool) error {
	if l.spec.Containers {
		return nil
	}
	return l.detour(l.Servers, l.addressesOf(topology.Client), on)
}

// DetourRequests routes what clients send to the servers' own addresses through
// the balancer, or takes that back.
func (l *Lab) DetourRequests(on bool) error {
	return l.detour(l.Clients, l.addressesOf(topology.Server), on)
}

// DetourVIP routes what clients send to an IPv4 VIP through the balancer, which need
// not have it, or, where there are several, through their router; or takes that back.
func (l *Lab) DetourVIP(vip netip.Addr, on bool) error {
	return l.detour(l.Clients, []netip.Prefix{netip.PrefixFrom(vip, vip.BitLen())}, on)
}

// DetourPool routes what servers send to addresses of full NAT through the router of several balancers, whose routes
// say which of them gets it, instead of to the neighbour that has the address; or takes that back.
func (l *Lab) DetourPool(pool []netip.Addr, on bool) error {
	var to []netip.Prefix
	for _, address := range pool {
		to = append(to, netip.PrefixFrom(address, address.BitLen()))
	}
	return l.detour(l.Servers, to, on)
}

// addressesOf are the ranges that hold the IPv4 addresses of all hosts of a role: on
// machines, whose addresses are their owner's, one for each.
func (l *Lab) addressesOf(of topology.Role) (ranges []netip.Prefix) {
	switch {
	case l.contained(of):
		return []netip.Prefix{l.ContainerRange()}
	case l.far == nil:
		return []netip.Prefix{topology.Range(of)}
	}
	for _, h := range l.Hosts() {
		if h.role == of {
			ranges = append(ranges, netip.PrefixFrom(h.IPv4, h.IPv4.BitLen()))
		}
	}
	return ranges
}

// detour gives hosts routes through the balancer.
func (l *Lab) detour(from []*Host, to []netip.Prefix, on bool) error {
	if l.far != nil {
		return l.detourFar(from, to, on)
	}
	for _, h := range from {
		err := h.Do(func() error {
			for _, to := range to {
				route, err := h.routeThrough(l.gateway(), to)
				if err != nil {
					return err
				}
				if err := netdev.SwitchRoute(route, on); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("set the route of %s through %s: %w", h.Name, l.gateway().Name, err)
		}
	}
	return nil
}

// gateway is what detours go through.
func (l *Lab) gateway() *Host { return cmp.Or(l.Router, l.Balancer) }

func (h *Host) routeThrough(gateway *Host, to netip.Prefix) (*netlink.Route, error) {
	device, err := netlink.LinkByName(h.Interface)
	if err != nil {
		return nil, err
	}
	return &netlink.Route{
		LinkIndex: device.Attrs().Index,
		Dst:       netdev.IPNet(to),
		Gw:        gateway.IPv4.AsSlice(),
		Congctl:   netdev.CongestionControl,
	}, nil
}
