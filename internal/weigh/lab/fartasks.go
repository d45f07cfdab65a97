// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// The tasks that are a Host's methods where it is a machine.
var (
	routeTask = NewTask("route", func(_ context.Context, h *Host, r farRoute) (nothing, error) {
		return nothing{}, h.Do(func() error { return r.set(h.Interface) })
	})
	forwardTask = NewTask("forward", func(_ context.Context, h *Host, on bool) (nothing, error) {
		return nothing{}, h.lab.here.changes.Forward([]string{h.Interface}, on, false)
	})
	addressTask = NewTask("address", func(_ context.Context, h *Host, a farAddress) (nothing, error) {
		changes := h.lab.here.changes
		if a.On {
			return nothing{}, changes.AddAddress(h.Interface, a.Address, hostnet.AddressOptions{})
		}
		return nothing{}, changes.RemoveAddress(h.Interface, a.Address)
	})
)

// farAddress is an address that a host's device shall have, or not.
type farAddress struct {
	Address netip.Addr
	On      bool
}

// farRoute is a route that a host shall have, or not: to a range of addresses
// through others, by the hash of ports if they are several.
type farRoute struct {
	To      []netip.Prefix
	Through []netip.Addr
	On      bool
}

// set makes or removes the route on a device of the calling thread's namespace.
func (r farRoute) set(device string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for _, to := range r.To {
		route := &netlink.Route{Dst: netdev.IPNet(to), Protocol: routeProtocol, Congctl: netdev.CongestionControl}
		if len(r.Through) == 1 {
			route.LinkIndex, route.Gw = link.Attrs().Index, r.Through[0].AsSlice()
		} else {
			for _, via := range r.Through {
				route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: link.Attrs().Index,
					Gw: via.AsSlice()})
			}
		}
		if err := netdev.SwitchRoute(route, r.On); err != nil {
			return fmt.Errorf("set the route to %v: %w", to, err)
		}
	}
	return nil
}

// hashPolicyTask has a machine choose among a route's ways by the hash of ports.
var hashPolicyTask = NewTask("multipath-hash", func(_ context.Context, h *Host, on bool) (nothing, error) {
	const name = "net.ipv4.fib_multipath_hash_policy"
	if !on {
		return nothing{}, nil // goes back with the worker
	}
	return nothing{}, h.lab.here.changes.SetSysctl(name, hashOfPorts)
})

// spreadFar is Spread on machines.
func spreadFar(from []*Host, vip netip.Addr, servers []*Host, on bool) error {
	route := farRoute{To: []netip.Prefix{netip.PrefixFrom(vip, vip.BitLen())}, On: on}
	for _, server := range servers {
		route.Through = append(route.Through, server.IPv4)
	}
	return Each(from, func(h *Host) error {
		if _, err := briefly(hashPolicyTask, h, on); err != nil {
			return err
		}
		_, err := briefly(routeTask, h, route)
		return err
	})
}

// detourFar is detour on machines.
func (l *Lab) detourFar(from []*Host, to []netip.Prefix, on bool) error {
	route := farRoute{To: to, Through: []netip.Addr{l.Balancer.IPv4}, On: on}
	return Each(from, func(h *Host) error {
		_, err := briefly(routeTask, h, route)
		return err
	})
}

// Hold gives a machine's device an address, as one of its own (/32), or takes it
// away; that it is gone already is no error.
func (h *Host) Hold(address netip.Addr, on bool) error {
	_, err := briefly(addressTask, h, farAddress{address, on})
	return err
}
