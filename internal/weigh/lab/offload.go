// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/safchain/ethtool"
	"k8s.io/utils/cpuset"

	"github.com/jeoul/jeoul/internal/host/cpus"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// apply sets the offloads and the queueing of a device of the calling thread's namespace.
func (l *Lab) apply(name string, o netdev.Offloads) error {
	if err := o.Set(name); err != nil {
		return err
	}
	return netdev.SetQueueing(name, !o.Segments && !l.coreQueues())
}

// hostOffloads are the offloads of a host's device.
//
// Without TSO each device is polled by itself, which shows how full it is: a veth with GRO has a NAPI instance, but
// takes frames into it only from a peer without TSO. The other frames end in the core's own queue, whose work is spread
// over cores as they arrive.
func (l *Lab) hostOffloads() netdev.Offloads {
	return netdev.Offloads{Segments: l.offload, Checksums: l.offload}
}

// portOffloads are the offloads of the switch's port to a host. Frames to a balancer that may use XDP must be complete:
// GRO in the switch merges segments and leaves their checksum incomplete, which an XDP frame cannot carry.
func (l *Lab) portOffloads(h *Host) netdev.Offloads {
	whole := h.role == topology.Balancer && (l.xdp || !l.offload)
	return netdev.Offloads{Segments: l.offload && !whole, Checksums: !whole}
}

// Offload gives all links TSO and checksum offload, as network cards have them, or removes them, as in a new lab. With
// them a packet of up to 64 KiB goes the whole way in one piece, and bulk transfer is several times as fast. A small
// packet costs each hop of the laboratory a third less, because it passes no NAPI instance, no GRO and no queueing
// discipline on its way. But nothing holds a sender back: frames that do not fit a core's queue
// (net.core.netdev_max_backlog) are dropped and counted.
func (l *Lab) Offload(on bool) error {
	l.offload = on
	if l.remote != nil {
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

// AcceptXDP prepares the switch, and a router, for a balancer that sends by XDP_TX or redirect, as in a new lab, or
// undoes that.
//
// A veth whose peer sends in this way needs an XDP program of its own. Otherwise it is never told that frames wait for
// it, and they vanish uncounted. The program passes everything, but makes the kernel copy each frame that comes from a
// socket: subjects that do not send by XDP are better off without it (measured: HAProxy served 6,800 requests a second
// instead of 6,200).
func (l *Lab) AcceptXDP(on bool) error {
	l.xdp = on
	if l.remote != nil {
		return nil
	}
	return errors.Join(l.acceptAtSwitch(on), l.acceptAtRouter(on))
}

// acceptAtSwitch is AcceptXDP at the ports of the balancers.
func (l *Lab) acceptAtSwitch(on bool) error {
	return l.Switch.Do(func() error {
		if l.wires != nil {
			// The switch's own program is on the port, and forwards the frames.
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

// acceptAtRouter is AcceptXDP at the router's ends of the balancers' links: frames to a balancer that may use XDP must
// be complete there, too.
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

// deviceQueues is the number of queues of each device, and so of cores that can share a host's kernel work, unless the
// lab has CoreQueues. With a queueing discipline, several queues get stuck (seen on 6.18): a veth with GRO but without
// XDP signals that there is room again only to its peer's first queue, whichever queue was held back.
const deviceQueues = 1

// coreQueues reports whether each core has a queue of its own.
func (l *Lab) coreQueues() bool { return l.spec.CoreQueues || l.spec.Wire }

// queues is the number of queues of each device of the lab.
func (l *Lab) queues() int {
	if l.coreQueues() {
		return runtime.NumCPU()
	}
	return deviceQueues
}

// backQueues is the number of queues for frames from a host to the switch.
func (l *Lab) backQueues(h *Host) int {
	if l.spec.BackQueues && h.role == topology.Balancer {
		return runtime.NumCPU()
	}
	return l.queues()
}

// useQueues makes the host send by as many queues as the lab's devices have. The host's device has one queue for each
// queue of the port. XDP selects one by the core. The stack must not use several, because they get stuck behind a
// queueing discipline (see [deviceQueues]). It runs inside the host.
func (h *Host) useQueues(l *Lab) error {
	if l.backQueues(h) == l.queues() {
		return nil
	}
	e, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("set the queues of %s: %w", h.Interface, err)
	}
	defer e.Close()
	channels, err := e.GetChannels(h.Interface)
	if err != nil {
		return fmt.Errorf("read the queues of %s: %w", h.Interface, err)
	}
	channels.TxCount = uint32(l.queues())
	if _, err := e.SetChannels(h.Interface, channels); err != nil {
		return fmt.Errorf("set the queues of %s: %w", h.Interface, err)
	}
	return nil
}

// setQueues gives each core its own queue to send by (XPS, Documentation/networking/scaling.rst). The frames of a
// veth's queue are processed by the core that put them there, as long as no other core does: so a core's frames stay on
// it from device to device. Frames of XDP do so by themselves. It runs inside the device's namespace.
func (l *Lab) setQueues(name string) error {
	if l.queues() == 1 {
		return nil
	}
	for cpu := range l.queues() {
		if err := netdev.WriteSys(name, fmt.Sprintf("queues/tx-%d/xps_cpus", cpu), cpus.Mask(cpuset.New(cpu))); err != nil {
			return err
		}
	}
	return nil
}
