// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"

	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// apply sets a device of the calling thread's namespace, and its queueing.
func (l *Lab) apply(name string, o netdev.Offloads) error {
	if err := o.Set(name); err != nil {
		return err
	}
	return netdev.SetQueueing(name, !o.Segments && !l.coreQueues())
}

// hostOffloads are those of a host's device.
//
// Without TSO each device is polled by itself, which says how full it is: a veth with
// GRO has a NAPI instance, but takes frames into it only from a peer without TSO; the
// others end in the core's own queue, and its work is spread over cores as they come.
func (l *Lab) hostOffloads() netdev.Offloads {
	return netdev.Offloads{Segments: l.offload, Checksums: l.offload}
}

// portOffloads are those of the switch's port to a host. What goes to a balancer
// that may use XDP must be whole: GRO in the switch merges segments and leaves
// their checksum to be made, which an XDP frame cannot carry.
func (l *Lab) portOffloads(h *Host) netdev.Offloads {
	whole := h.role == topology.Balancer && (l.xdp || !l.offload)
	return netdev.Offloads{Segments: l.offload && !whole, Checksums: !whole}
}

// Offload gives all links TSO and checksum offload, as network cards have them,
// or takes them away, as a new lab is. With them a packet of up to 64 KiB goes the
// whole way in one piece, and bulk transfer is several times as fast; and a small one
// costs each hop of the laboratory a third less, for it is in no NAPI instance, no GRO
// and no queueing discipline on its way. But nothing holds a sender back: what does
// not fit a core's queue (net.core.netdev_max_backlog) is dropped and counted.
func (l *Lab) Offload(on bool) error {
	l.offload = on
	if l.far != nil {
		return nil // network cards are as they are
	}
	l.usage.Spread.Store(on)
	if l.usage.Meter != nil {
		if err := l.usage.Meter.Packets(on); err != nil {
			return err
		}
	}
	for _, h := range l.Hosts() {
		if h.Interface == "" {
			continue
		}
		if err := h.Do(func() error { return l.apply(h.Interface, l.hostOffloads()) }); err != nil {
			return err
		}
		if err := h.portOn.Do(func() error { return l.apply(h.Port, l.portOffloads(h)) }); err != nil {
			return err
		}
	}
	return nil
}

// AcceptXDP readies the switch, and a router, for a balancer that sends by XDP_TX or redirect,
// as a new lab is, or takes that back.
//
// A veth whose peer sends so needs an XDP program of its own, or it is never told
// that frames wait for it, and they vanish uncounted. The program passes
// everything, but has the kernel copy each frame that comes from a socket:
// subjects that do not send by XDP are better off without (measured: HAProxy
// served 6,800 requests a second instead of 6,200).
func (l *Lab) AcceptXDP(on bool) error {
	l.xdp = on
	if l.far != nil {
		return nil
	}
	return errors.Join(l.acceptAtSwitch(on), l.acceptAtRouter(on))
}

// acceptAtSwitch is AcceptXDP at the ports of the balancers.
func (l *Lab) acceptAtSwitch(on bool) error {
	return l.Switch.Do(func() error {
		if l.wires != nil {
			// The switch's own program is on the port, and forwards what comes.
			return nil
		}
		var errs []error
		for _, h := range l.allBalancers() {
			if on {
				errs = append(errs, l.apply(h.Port, l.portOffloads(h)), netdev.AcceptXDP(h.Port))
			} else {
				errs = append(errs, netdev.AttachXDP(h.Port, -1), l.apply(h.Port, l.portOffloads(h)))
			}
		}
		return errors.Join(errs...)
	})
}
