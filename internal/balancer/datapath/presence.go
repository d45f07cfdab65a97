// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// present is what a backend or a service has: now, and as of the last round.
type present struct {
	active  uint32
	entries uint64
	// held are ports of the pool; 0 of a service.
	held uint32
}

// presence is all of that, by index and by id.
type presence struct {
	flows              lb.FlowCounts
	backends, services []present
}

// met returns what there is.
func (j *janitor) met() presence {
	j.mu.Lock()
	defer j.mu.Unlock()
	var p presence
	if j.scene.flows == nil {
		return p
	}
	p.flows = lb.FlowCounts{Proven: j.flows.last.entries, Unproven: j.newcomers.last.entries}
	p.backends = make([]present, min(len(j.rules.backends), len(j.rules.loads)))
	for i := range p.backends {
		p.backends[i] = present{atomic.LoadUint32(&j.rules.loads[i].Active), entriesOf(j.flows.last.backends, i) + entriesOf(j.newcomers.last.backends, i), j.held(i)}
	}
	p.services = make([]present, min(len(j.rules.services), len(j.rules.turns)))
	for i := range p.services {
		p.services[i] = present{atomic.LoadUint32(&j.rules.turns[i].Active), entriesOf(j.flows.last.services, i) + entriesOf(j.newcomers.last.services, i), 0}
	}
	return p
}

func entriesOf(tally []tallied, at int) uint64 {
	if at >= len(tally) {
		return 0
	}
	return uint64(tally[at].entries())
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

// portsHeld returns how many ports of the pool the flows of each of n backends keep, 0 for one without an index.
func (j *janitor) portsHeld(n int, indexOf func(i int) (index uint32, there bool)) []uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	held := make([]uint32, n)
	for i := range held {
		if index, there := indexOf(i); there {
			held[i] = j.held(int(index))
		}
	}
	return held
}

// pooled says whether a service is of full NAT.
func (j *janitor) pooled() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rules.pooled
}
