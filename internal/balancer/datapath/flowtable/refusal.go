// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"sync/atomic"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// A backend that refuses connections (TCP RST in answer to SYN, in modes in which its packets pass the balancer) has a
// penalty: a number of flows that the schedulers count in addition. Refusals raise it (bpf/balancer/flow/refusal.h);
// the janitor lowers it over time.

// decayEvery is how often a penalty halves.
const decayEvery = time.Second

// decayPenalties lowers penalties, once for each whole second of the janitor's clock.
func (j *Janitor) decayPenalties() {
	seconds := int(j.time/decayEvery - j.lastDecay/decayEvery)
	j.lastDecay = j.time
	if j.Input.Head == nil {
		return
	}
	if atomic.SwapUint32(&j.Input.Head.Refused, 0) != 0 {
		j.hasPenalties = true
	}
	for ; seconds > 0 && j.hasPenalties; seconds-- {
		j.hasPenalties = j.Rules.decayPenalties()
	}
}

// leastLoaded is the load of the backend of a service with the fewest flows for its weight, among those without a
// penalty. flows includes the next one that it would get; weight is 0 where there is no such backend.
type leastLoaded struct{ flows, weight uint64 }

// decayPenalties lowers all penalties for one second, and reports whether any remains.
func (r *Rules) decayPenalties() (remaining bool) {
	penalised := map[uint32]*leastLoaded{}
	for i := range r.indexCount() {
		if atomic.LoadUint32(&r.Loads[i].Penalty) != 0 {
			penalised[r.backends[i].Service] = &leastLoaded{}
		}
	}
	if len(penalised) == 0 {
		return false
	}
	for i := range r.indexCount() {
		best, load := penalised[r.backends[i].Service], &r.Loads[i]
		if best == nil || r.backends[i].Weight == 0 || r.backends[i].Generation == 0 ||
			atomic.LoadUint32(&load.Penalty) != 0 {
			continue
		}
		flows, weight := uint64(atomic.LoadUint32(&load.Active))+1, uint64(r.backends[i].Weight)
		if best.weight == 0 || flows*best.weight < best.flows*weight {
			*best = leastLoaded{flows, weight}
		}
	}
	for i := range r.indexCount() {
		if best := penalised[r.backends[i].Service]; best != nil && r.decayPenalty(i, best) {
			remaining = true
		}
	}
	return remaining
}

// indexCount returns the number of indices.
func (r *Rules) indexCount() int { return min(len(r.backends), len(r.Loads)) }

// decayPenalty halves a backend's penalty. For REFUSAL_LASTS seconds after a refusal it keeps the penalty high enough
// that the backend counts as loaded as the best of the others, so that having fewer flows gives it no preference.
func (r *Rules) decayPenalty(i int, best *leastLoaded) (remaining bool) {
	load, id := &r.Loads[i], r.backends[i].Service
	penalty := atomic.LoadUint32(&load.Penalty)
	if penalty == 0 {
		return false
	}
	idle, next, active := atomic.AddUint32(&load.Quiet, 1), penalty/2, atomic.LoadUint32(&load.Active)
	if idle < uint32(objects.XDPRefusalREFUSAL_LASTS) && r.backends[i].Generation != 0 {
		next = max(next, best.penaltyFor(uint64(r.backends[i].Weight), uint64(active)))
	}
	if !atomic.CompareAndSwapUint32(&load.Penalty, penalty, next) {
		return true // a packet has changed it meanwhile
	}
	if int(id) < len(r.Turns) {
		r.Turns[id].LowerMinimum(uint32(min(uint64(active)+uint64(next), 1<<32-1)))
	}
	return next != 0
}

// penaltyFor returns the penalty with which a backend of that weight and with that many flows counts as loaded as the
// least loaded of the others.
func (best *leastLoaded) penaltyFor(weight, active uint64) uint32 {
	if best.weight == 0 {
		return 0
	}
	flows := (best.flows*weight + best.weight - 1) / best.weight
	if flows <= active+1 {
		return 0
	}
	return uint32(min(flows-active-1, uint64(objects.XDPRefusalREFUSAL_MOST)))
}
