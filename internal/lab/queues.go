// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"runtime"

	"k8s.io/utils/cpuset"

	"github.com/jeoul/jeoul/internal/cpus"
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
		if err := writeSys(name, fmt.Sprintf("queues/tx-%d/xps_cpus", cpu), cpus.Mask(cpuset.New(cpu))); err != nil {
			return err
		}
	}
	return nil
}
