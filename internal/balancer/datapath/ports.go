// SPDX-License-Identifier: Apache-2.0

package datapath

import "github.com/jeoul/jeoul/internal/balancer/lb"

// Counted returns a channel that has something to receive after flows have been counted anew,
// which takes some seconds, while a service is of full NAT. There is one channel, for one
// receiver.
func (d *Datapath) Counted() <-chan struct{} { return d.counted }

// PortsHeld returns how many ports of full NAT's pool the flows of each of these backends keep,
// as BackendCount has it; 0 for one that there is not. It costs much less than Counters.
func (d *Datapath) PortsHeld(keys []lb.BackendKey) []uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := make([]uint32, len(keys))
	if d.current == nil {
		return held
	}
	d.janitor.mu.Lock()
	defer d.janitor.mu.Unlock()
	for i, key := range keys {
		if place, there := d.current.places.backends[key]; there {
			held[i] = d.janitor.held(int(place.index))
		}
	}
	return held
}

// held returns how many ports the last walks have found the flows of an index to keep; the
// caller holds the lock.
func (j *janitor) held(index int) (ports uint32) {
	for _, tally := range []*flowTally{&j.flows.last, &j.newcomers.last} {
		if index < len(tally.held) {
			ports += tally.held[index]
		}
	}
	return ports
}

// tellCounted says that flows were counted, while a service is of full NAT.
func (d *Datapath) tellCounted() {
	d.janitor.mu.Lock()
	pooled := d.janitor.rules.pooled
	d.janitor.mu.Unlock()
	if !pooled {
		return
	}
	select {
	case d.counted <- struct{}{}:
	default: // one that is waiting stands for this one too
	}
}
