// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// flowPresence has the flows of a backend or a service: the active flows now, and the entries as of the last round.
type flowPresence struct {
	Active  uint32
	Entries uint64
	// Held is the number of ports of the pool in use; 0 for a service.
	Held uint32
}

// Presence has the flows of all backends, by index, and of all services, by id.
type Presence struct {
	Flows              lb.FlowCounts
	Backends, Services []flowPresence
}

// Presence returns the number of flows, in all, of each backend and of each service.
func (j *Janitor) Presence() Presence {
	j.mu.Lock()
	defer j.mu.Unlock()
	var p Presence
	if j.Input.Flows == nil {
		return p
	}
	p.Flows = lb.FlowCounts{Proven: j.flows.Last.entries, Unproven: j.Newcomers.Last.entries}
	p.Backends = make([]flowPresence, min(len(j.Rules.backends), len(j.Rules.Loads)))
	for i := range p.Backends {
		p.Backends[i] = flowPresence{atomic.LoadUint32(&j.Rules.Loads[i].Active), entriesOf(j.flows.Last.backends, i) +
			entriesOf(j.Newcomers.Last.backends, i), j.held(i)}
	}
	p.Services = make([]flowPresence, min(len(j.Rules.services), len(j.Rules.Turns)))
	for i := range p.Services {
		p.Services[i] = flowPresence{atomic.LoadUint32(&j.Rules.Turns[i].Active), entriesOf(j.flows.Last.services, i) +
			entriesOf(j.Newcomers.Last.services, i), 0}
	}
	return p
}

func entriesOf(tally []tallied, at int) uint64 {
	if at >= len(tally) {
		return 0
	}
	return uint64(tally[at].entries())
}

// held returns how many ports the flows of an index held at the last walks; the caller holds the lock.
func (j *Janitor) held(index int) (ports uint32) {
	for _, tally := range []*Tally{&j.flows.Last, &j.Newcomers.Last} {
		if index < len(tally.held) {
			ports += tally.held[index]
		}
	}
	return ports
}

// PortsHeld returns how many ports of the pool the flows of each of n backends hold, 0 for one without an index.
func (j *Janitor) PortsHeld(n int, indexOf func(i int) (index uint32, found bool)) []uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	held := make([]uint32, n)
	for i := range held {
		if index, found := indexOf(i); found {
			held[i] = j.held(int(index))
		}
	}
	return held
}

// Pooled reports whether a service uses full NAT.
func (j *Janitor) Pooled() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Rules.pooled
}
