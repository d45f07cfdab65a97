// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/softirq"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// The tasks that are a Host's methods where it is a machine.
var (
	netStatTask = NewTask("net-stat", func(_ context.Context, h *Host, names []string) (map[string]uint64, error) {
		return h.netStat(names...)
	})
	socketsTask = NewTask("sockets", func(_ context.Context, h *Host, of Scope) (SocketCount, error) {
		return h.sockets(of)
	})
	// The result says whether this kernel can.
	destroySocketsTask = NewTask("destroy-sockets", func(_ context.Context, h *Host, of Scope) (bool, error) {
		err := h.destroySockets(of)
		if errors.Is(err, ErrNoSocketDestroy) {
			return false, nil
		}
		return err == nil, err
	})
	conntrackTask = NewTask("conntrack", func(_ context.Context, h *Host, of trackedBy) (int, error) {
		n := 0
		err := h.Do(func() error {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
			if errors.Is(err, os.ErrNotExist) || err != nil && strings.Contains(err.Error(), "protocol not supported") {
				return nil // no connection tracking
			}
			for _, flow := range flows {
				if of.vip(flow) {
					n++
				}
			}
			return err
		})
		return n, err
	})
	forgetTask = NewTask("forget-tracked", func(_ context.Context, h *Host, of trackedBy) (nothing, error) {
		return nothing{}, h.Do(func() error {
			_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, of)
			return err
		})
	})
	deviceTask = NewTask("device", func(_ context.Context, h *Host, _ nothing) (device, error) {
		var d device
		err := h.Do(func() error {
			s, err := netdev.Statistics(h.Interface)
			if err != nil {
				return err
			}
			d.Drops = Drops{HostReceive: s.RxDropped, HostTransmit: s.TxDropped}
			d.Traffic = Traffic{ReceivedFrames: s.RxPackets, ReceivedBytes: s.RxBytes, SentFrames: s.TxPackets,
				SentBytes: s.TxBytes}
			return nil
		})
		return d, err
	})
	usageTask = NewTask("cpu", func(_ context.Context, h *Host, meter bool) (farUsage, error) {
		return h.farUsage(meter)
	})
	machineTask = NewTask("machine", func(_ context.Context, h *Host, _ nothing) (MachineStat, error) {
		return readMachine(h.Name)
	})
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

// trackedBy chooses the tracked connections that were made to an address.
type trackedBy struct{ Address netip.Addr }

func (t trackedBy) vip(flow *netlink.ConntrackFlow) bool {
	to, ok := netip.AddrFromSlice(flow.Forward.DstIP)
	return ok && to.Unmap() == t.Address
}

// MatchConntrackFlow is the netlink library's CustomConntrackFilter.
func (t trackedBy) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return t.vip(flow) }

// device is what a host's device has counted.
type device struct {
	Drops   Drops
	Traffic Traffic
}

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

// farUsage is the CPU time of a machine's processes, and of its packet work.
type farUsage struct {
	CPU CPU
	// Namespace is that of the host.
	Namespace uint64
	// Softirqs is the packet work of the whole machine, by device and namespace.
	Softirqs []farSoftirq
	Billed   map[uint64]int64
}

type farSoftirq struct {
	Device softirq.Device
	Ns     int64
}
