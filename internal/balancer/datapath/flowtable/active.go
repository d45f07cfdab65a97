// SPDX-License-Identifier: Apache-2.0

package flowtable

import "sync/atomic"

// The active flows of backends and services are counted by additions, here and by packets on every CPU. A flow that
// ends on two CPUs at the same instant, or a service that begins to be tracked while it has flows, may make such a
// count slightly wrong for good, which would reduce a backend's limit for good.

// counter is a count of active flows, and the number that the last rounds found.
type counter struct {
	active   *uint32
	observed uint32
}

// drift has the counts that differed from the last round's.
type drift struct {
	backends, services []disagreement
	// Corrected is how often a count was corrected.
	Corrected uint64
}

// disagreement is a count, the number that a round found instead, and for how many rounds both have not changed.
type disagreement struct{ active, observed, rounds uint32 }

// stillRounds is for how many rounds a differing count, and the number that the rounds find, must stay the same before
// the count is corrected: about a minute. Where flows begin and end, one of the two changes.
const stillRounds = 12

// reconcileCounts compares the counts of tracked services and of their backends with the flows that a round found, and
// corrects a count above the size of the table (it went below 0), and one that has differed for stillRounds rounds in
// which neither number changed.
func (j *Janitor) reconcileCounts() {
	limit := uint32((len(j.Input.Flows.Buckets) + len(j.Input.Newcomers.Buckets)) * PerBucket)
	grow(&j.Drift.backends, len(j.Rules.backends))
	grow(&j.Drift.services, len(j.Rules.services))
	at := j.countSockets()
	for index := range j.Rules.backends {
		id := j.Rules.backends[index].Service
		if index >= len(j.Rules.Loads) || !j.tracked(id) || j.Rules.backends[index].Generation == 0 {
			continue
		}
		c := counter{&j.Rules.Loads[index].Active, activeIn(j.flows.Last.backends, index) +
			activeIn(j.Newcomers.Last.backends, index) + at.Backends[uint32(index)]}
		if j.Drift.check(c, &j.Drift.backends[index], limit) && int(id) < len(j.Rules.Turns) {
			j.Rules.Turns[id].LowerMinimum(c.observed)
		}
	}
	for id := range j.Rules.services {
		if id >= len(j.Rules.Turns) || !j.tracked(uint32(id)) {
			continue
		}
		c := counter{&j.Rules.Turns[id].Active, activeIn(j.flows.Last.services, id) +
			activeIn(j.Newcomers.Last.services, id) + at.Services[uint32(id)]}
		j.Drift.check(c, &j.Drift.services[id], limit)
	}
	j.endUnrememberedWindows()
}

func (j *Janitor) tracked(id uint32) bool {
	return int(id) < len(j.Rules.services) && j.Rules.services[id].Present && j.Rules.services[id].Tracked
}

func grow[T any](list *[]T, size int) {
	if n := size - len(*list); n > 0 {
		*list = append(*list, make([]T, n)...)
	}
}

func activeIn(tally []tallied, at int) uint32 {
	if at >= len(tally) {
		return 0
	}
	return tally[at].active()
}

// check corrects a counter that has been wrong for long enough, and reports whether it did.
func (d *drift) check(c counter, before *disagreement, limit uint32) (corrected bool) {
	now := disagreement{active: atomic.LoadUint32(c.active), observed: c.observed, rounds: 1}
	if now.active == before.active && now.observed == before.observed {
		now.rounds += before.rounds
	}
	if now.active > limit || now.active != now.observed && now.rounds >= stillRounds {
		if corrected = atomic.CompareAndSwapUint32(c.active, now.active, now.observed); corrected {
			d.Corrected++
		}
	}
	*before = now
	return corrected
}

// recount counts the active flows of services again, and of their backends.
func (j *Janitor) recount(ids map[uint32]bool) {
	if j.Input.Flows == nil {
		return
	}
	at := j.countSockets()
	// Invalid entries first: expiring subtracts them from the counts.
	j.survey()
	var before []uint32
	for _, c := range j.countersOf(ids, &Tally{}, socketTally{}) {
		before = append(before, atomic.LoadUint32(c.active))
	}
	for i, c := range j.countersOf(ids, j.survey(), at) {
		// Additions by packets since `before` stay.
		atomic.AddUint32(c.active, c.observed-before[i])
	}
	for id := range j.Rules.Turns {
		j.Rules.Turns[id].LowerMinimum(0)
	}
}

// survey walks over both tables at once.
func (j *Janitor) survey() *Tally {
	tally := &Tally{}
	tally.resize(&j.Rules)
	for _, t := range []*Table{j.Input.Flows, j.Input.Newcomers} {
		j.Rules.walk(t, 0, len(t.Buckets), j.clock(), tally)
	}
	return tally
}

// countSockets counts the sockets of this host, by backend and service. If that fails, it returns the last result, and
// a later round corrects the counts.
func (j *Janitor) countSockets() socketTally {
	if j.Input.Sockets == nil {
		j.sockets = socketTally{}
	} else if t, err := j.tallySockets(j.Input.Sockets); err == nil {
		j.sockets = t
	}
	return j.sockets
}

// countersOf lists the counters of services, and of all backends, with the numbers that a walk and a count of sockets
// found.
func (j *Janitor) countersOf(ids map[uint32]bool, tally *Tally, at socketTally) (counters []counter) {
	for index := range min(len(j.Rules.backends), len(j.Rules.Loads)) {
		// Of every backend: the earlier rules may have counted flows of a removed one, and the next backend with its
		// index inherits its count.
		counters = append(counters, counter{&j.Rules.Loads[index].Active, activeIn(tally.backends, index) +
			at.Backends[uint32(index)]})
	}
	for id := range j.Rules.services {
		if ids[uint32(id)] && id < len(j.Rules.Turns) {
			counters = append(counters, counter{&j.Rules.Turns[id].Active, activeIn(tally.services, id) +
				at.Services[uint32(id)]})
		}
	}
	return counters
}
