// SPDX-License-Identifier: Apache-2.0

package flowtable

import "sync/atomic"

// The active flows of backends and services are counted by additions, here and by packets on every CPU. A flow that
// ends on two CPUs at the same instant, or a service that begins to be tracked in the middle of its flows, may leave
// such a count a little off, and nothing would ever correct it: it would use up a part of a backend's limit for ever.

// counter is a count of active flows, and how many the last rounds have met.
type counter struct {
	active   *uint32
	observed uint32
}

// drift has the counts that did not agree when the last round ended.
type drift struct {
	backends, services []disagreement
	// Corrected is how often a count was put right.
	Corrected uint64
}

// disagreement is a count and the number that a round has met instead, and for how many rounds both have stayed.
type disagreement struct{ active, observed, rounds uint32 }

// stillRounds is for how many rounds a differing count, and the number that the rounds meet, must stay the same for the
// count to be taken for wrong: about a minute. Where flows come and go, one of the two changes.
const stillRounds = 12

// reconcileCounts compares the counts of tracked services and of their backends with the flows that a round has met,
// and corrects impossible ones: a count above the size of the table (it went below 0), and one that has differed for
// some rounds in which neither changed.
func (j *Janitor) reconcileCounts() {
	most := uint32((len(j.Input.Flows.Buckets) + len(j.Input.Newcomers.Buckets)) * PerBucket)
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
		if j.Drift.check(c, &j.Drift.backends[index], most) && int(id) < len(j.Rules.Turns) {
			j.Rules.Turns[id].LowerMinimum(c.observed)
		}
	}
	for id := range j.Rules.services {
		if id >= len(j.Rules.Turns) || !j.tracked(uint32(id)) {
			continue
		}
		c := counter{&j.Rules.Turns[id].Active, activeIn(j.flows.Last.services, id) +
			activeIn(j.Newcomers.Last.services, id) + at.Services[uint32(id)]}
		j.Drift.check(c, &j.Drift.services[id], most)
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
func (d *drift) check(c counter, before *disagreement, most uint32) (corrected bool) {
	now := disagreement{active: atomic.LoadUint32(c.active), observed: c.observed, rounds: 1}
	if now.active == before.active && now.observed == before.observed {
		now.rounds += before.rounds
	}
	if now.active > most || now.active != now.observed && now.rounds >= stillRounds {
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
	// Entries that are not good any more go first: expiring subtracts them from the counts.
	j.survey()
	var before []uint32
	for _, c := range j.countersOf(ids, &Tally{}, socketTally{}) {
		before = append(before, atomic.LoadUint32(c.active))
	}
	for i, c := range j.countersOf(ids, j.survey(), at) {
		// The packets' additions meanwhile stay.
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

// countSockets counts the backends that sockets of this host have. Where that fails, a later round corrects the counts.
func (j *Janitor) countSockets() (t socketTally) {
	if j.Input.Sockets != nil {
		t, _ = TallySockets(j.Input.Sockets)
	}
	return t
}

// countersOf lists the counters of services, and of all backends, with the numbers that a walk and a count of sockets
// have met.
func (j *Janitor) countersOf(ids map[uint32]bool, tally *Tally, at socketTally) (counters []counter) {
	for index := range min(len(j.Rules.backends), len(j.Rules.Loads)) {
		// Of every backend: flows of one that left may have been counted by the earlier rules, and the next backend
		// with its index inherits its count.
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
