// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// Forward makes the balancer forward IPv4 packets between clients and servers as a router does, or undoes that.
func (l *Lab) Forward(on bool) error {
	if l.remote != nil {
		_, err := runTask(forwardTask, l.Balancer, on)
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

// DetourReplies routes servers' packets to clients through the balancer, or undoes that. A balancer that rewrites
// addresses needs this. Containers answer through their bridge, and so through the balancer, in any case.
func (l *Lab) DetourReplies(on bool) error {
	if l.spec.Containers {
		return nil
	}
	return l.detour(l.Servers, l.addressesOf(topology.Client), on)
}

// DetourRequests routes clients' packets to the servers' own addresses through the balancer, or undoes that.
func (l *Lab) DetourRequests(on bool) error {
	return l.detour(l.Clients, l.addressesOf(topology.Server), on)
}

// DetourVIP routes clients' packets to an IPv4 VIP through the balancer, which need not have it, or through the router
// where there are several balancers; or undoes that.
func (l *Lab) DetourVIP(vip netip.Addr, on bool) error {
	return l.detour(l.Clients, []netip.Prefix{netip.PrefixFrom(vip, vip.BitLen())}, on)
}

// DetourPool routes servers' packets to addresses of full NAT through the router of several balancers, whose routes
// select the balancer, instead of to the neighbour that has the address; or undoes that.
func (l *Lab) DetourPool(pool []netip.Addr, on bool) error {
	var to []netip.Prefix
	for _, address := range pool {
		to = append(to, netip.PrefixFrom(address, address.BitLen()))
	}
	return l.detour(l.Servers, to, on)
}

// addressesOf returns the ranges that hold the IPv4 addresses of all hosts of a role: on machines, whose addresses
// their owner has chosen, one range for each host.
func (l *Lab) addressesOf(of topology.Role) (ranges []netip.Prefix) {
	switch {
	case l.contained(of):
		return []netip.Prefix{l.ContainerRange()}
	case l.remote == nil:
		return []netip.Prefix{topology.Range(of)}
	}
	for _, h := range l.Hosts() {
		if h.role == of {
			ranges = append(ranges, netip.PrefixFrom(h.IPv4, h.IPv4.BitLen()))
		}
	}
	return ranges
}

// detour adds routes through the balancer to hosts, or deletes them.
func (l *Lab) detour(from []*Host, to []netip.Prefix, on bool) error {
	if l.remote != nil {
		return l.detourRemote(from, to, on)
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

// gateway is the host that detours go through.
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

// hashOfPorts makes the kernel select among the next hops of a route by the hash of addresses and ports
// (Documentation/networking/ip-sysctl.rst), per connection.
const hashOfPorts = "1"

// Spread adds a route to an IPv4 VIP over servers to hosts, or deletes it: the hash of each connection selects one
// server, as through a balancer but without one on the path. The servers must have the VIP.
func (l *Lab) Spread(from []*Host, vip netip.Addr, servers []*Host, on bool) error {
	if l.remote != nil {
		return spreadRemote(from, vip, servers, on)
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

// routeOver returns a route with a next hop for each server.
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

// deviceTo returns the host's device through which hosts of a role are reached.
func (h *Host) deviceTo(r topology.Role) string {
	if h.Bridge != "" && r == topology.Server {
		return h.Bridge
	}
	return h.Interface
}

// cgroupsDir is where the balancer's programs see the machine's cgroups.
const cgroupsDir = "/sys/fs/cgroup"

// groupBalancer makes the balancer's cgroup, and shows the machine's cgroups to its programs.
func (l *Lab) groupBalancer() (err error) {
	if l.Balancer.cgroup, err = claim.MakeCgroup(l.ID); err != nil {
		return err
	}
	err = l.Balancer.onKeeper(func() error { return unix.Mount("cgroup2", cgroupsDir, "cgroup2", 0, "") })
	if err != nil {
		return fmt.Errorf("mount the cgroups on %s: %w", l.Balancer.Name, err)
	}
	l.Balancer.Cgroup = filepath.Join(cgroupsDir, claim.CgroupName(l.ID))
	return nil
}

// The tasks that set routes and addresses on a machine.
var (
	routeTask = NewTask("route", func(_ context.Context, h *Host, r remoteRoute) (nothing, error) {
		return nothing{}, h.Do(func() error { return r.set(h.Interface) })
	})
	forwardTask = NewTask("forward", func(_ context.Context, h *Host, on bool) (nothing, error) {
		return nothing{}, h.lab.local.changes.EnableForwarding([]string{h.Interface}, on, false)
	})
	addressTask = NewTask("address", func(_ context.Context, h *Host, a remoteAddress) (nothing, error) {
		changes := h.lab.local.changes
		if a.On {
			return nothing{}, changes.AddAddress(h.Interface, a.Address, hostnet.AddressOptions{})
		}
		return nothing{}, changes.RemoveAddress(h.Interface, a.Address)
	})
)

// remoteAddress is an address to add to a host's device, or to delete from it.
type remoteAddress struct {
	Address netip.Addr
	On      bool
}

// remoteRoute is a route to add to a host, or to delete: to ranges of addresses through others, by the hash of ports if
// there are several.
type remoteRoute struct {
	To      []netip.Prefix
	Through []netip.Addr
	On      bool
}

// set makes or removes the route on a device of the calling thread's namespace.
func (r remoteRoute) set(device string) error {
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

// hashPolicyTask makes a machine select among a route's next hops by the hash of ports.
var hashPolicyTask = NewTask("multipath-hash", func(_ context.Context, h *Host, on bool) (nothing, error) {
	const name = "net.ipv4.fib_multipath_hash_policy"
	if !on {
		return nothing{}, nil // undone with the worker
	}
	return nothing{}, h.lab.local.changes.SetSysctl(name, hashOfPorts)
})

// spreadRemote is Spread on machines.
func spreadRemote(from []*Host, vip netip.Addr, servers []*Host, on bool) error {
	route := remoteRoute{To: []netip.Prefix{netip.PrefixFrom(vip, vip.BitLen())}, On: on}
	for _, server := range servers {
		route.Through = append(route.Through, server.IPv4)
	}
	return Each(from, func(h *Host) error {
		if _, err := runTask(hashPolicyTask, h, on); err != nil {
			return err
		}
		_, err := runTask(routeTask, h, route)
		return err
	})
}

// detourRemote is detour on machines.
func (l *Lab) detourRemote(from []*Host, to []netip.Prefix, on bool) error {
	route := remoteRoute{To: to, Through: []netip.Addr{l.Balancer.IPv4}, On: on}
	return Each(from, func(h *Host) error {
		_, err := runTask(routeTask, h, route)
		return err
	})
}

// SetAddress adds an address to a machine's device, as one of its own (/32), or deletes it; an address that is already
// gone is no error.
func (h *Host) SetAddress(address netip.Addr, on bool) error {
	_, err := runTask(addressTask, h, remoteAddress{address, on})
	return err
}
