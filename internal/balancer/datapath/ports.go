// SPDX-License-Identifier: Apache-2.0

package datapath

import "github.com/jeoul/jeoul/internal/balancer/lb"

// FlowsCounted returns a channel that signals a completed count of flows, every few seconds, while a service uses full
// NAT. There is one channel, for one receiver.
func (d *Datapath) FlowsCounted() <-chan struct{} { return d.flowsCounted }

// PortsHeld returns how many ports of full NAT's pool the flows of each of these backends hold, the same number as in
// BackendCount; 0 for an unknown backend. It costs much less than Counters.
func (d *Datapath) PortsHeld(keys []lb.BackendKey) []uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return make([]uint32, len(keys))
	}
	return d.janitor.PortsHeld(len(keys), func(i int) (index uint32, found bool) {
		place, found := d.register.Places.Backends[keys[i]]
		return place.Index, found
	})
}

// notifyFlowsCounted notifies the receiver of FlowsCounted that flows were counted, while a service uses full NAT.
func (d *Datapath) notifyFlowsCounted() {
	if !d.janitor.Pooled() {
		return
	}
	select {
	case d.flowsCounted <- struct{}{}:
	default: // a pending notification covers this one
	}
}
