// SPDX-License-Identifier: Apache-2.0

package datapath

import "github.com/jeoul/jeoul/internal/balancer/lb"

// FlowsCounted returns a channel that has something to receive after flows have been counted again, which takes some
// seconds, while a service is of full NAT. There is one channel, for one receiver.
func (d *Datapath) FlowsCounted() <-chan struct{} { return d.flowsCounted }

// PortsHeld returns how many ports of full NAT's pool the flows of each of these backends keep, as BackendCount has it;
// 0 for an unknown backend. It costs much less than Counters.
func (d *Datapath) PortsHeld(keys []lb.BackendKey) []uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return make([]uint32, len(keys))
	}
	return d.janitor.PortsHeld(len(keys), func(i int) (index uint32, there bool) {
		place, there := d.register.Places.Backends[keys[i]]
		return place.Index, there
	})
}

// notifyFlowsCounted notifies the receiver of FlowsCounted that flows were counted, while a service is of full NAT.
func (d *Datapath) notifyFlowsCounted() {
	if !d.janitor.Pooled() {
		return
	}
	select {
	case d.flowsCounted <- struct{}{}:
	default: // one that is waiting stands for this one too
	}
}
