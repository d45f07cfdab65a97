// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"runtime"

	"github.com/safchain/ethtool"
	"k8s.io/utils/cpuset"

	"github.com/jeoul/jeoul/internal/host/cpus"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// coreQueues says whether each core has a queue of its own.
func (l *Lab) coreQueues() bool { return l.spec.CoreQueues || l.spec.Wire }

// queues is the number of queues of each device of the lab.
func (l *Lab) queues() int {
	if l.coreQueues() {
		return runtime.NumCPU()
	}
	return deviceQueues
}

// backQueues is the number of queues for what comes from a host to the switch.
func (l *Lab) backQueues(h *Host) int {
	if l.spec.BackQueues && h.role == topology.Balancer {
		return runtime.NumCPU()
	}
	return l.queues()
}

// useQueues has the host send by as many queues as the lab's devices have. Its device has one
// for each of the port's, which XDP chooses by itself, by the core: the stack must not,
// for more than one get stuck behind a queueing discipline (see [deviceQueues]). It runs inside the host.
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

// setQueues gives each core a queue of its own to send by (XPS,
// Documentation/networking/scaling.rst). The frames of a veth's queue are worked on
// by the core that put them there, as long as no other does: so a core's frames
// stay on it from device to device. Frames of XDP do so by themselves. It runs
// inside the device's namespace.
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
