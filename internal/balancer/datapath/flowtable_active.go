// SPDX-License-Identifier: Apache-2.0

package datapath

import "sync/atomic"

// What backends and services have of active flows is counted by additions, here and by
// packets on every CPU. A flow that ends on two CPUs at the same instant, or a service
// that begins to be tracked in the middle of its flows, may leave such a count a little
// off, and nothing would ever bring it back: it would lean on a backend's limit for ever.

// counter is a count of active flows, and how many the last rounds have met.
type counter struct {
	active *uint32
	met    uint32
}

// drift remembers what did not agree when the last round ended.
type drift struct {
	backends, services []disagreement
	// corrected is how often a count was put right.
	corrected uint64
}

// disagreement is what a count was and what the round has met, for so many rounds.
type disagreement struct{ active, met, rounds uint32 }

// stillRounds is how many rounds a count that differs must be the same, and what they
// meet too, to be taken for wrong: about a minute. Where flows come and go, one of the
// two changes.
const stillRounds = 12

// settle compares the counts of tracked services and of their backends with what a
// round has met, and puts right what cannot be: more than there is room for (it went
// below 0), and what differs though nothing has moved for some rounds.
func (j *janitor) settle() {
	most := uint32((len(j.scene.flows.buckets) + len(j.scene.newcomers.buckets)) * flowsPerBucket)
	grow(&j.drift.backends, len(j.rules.backends))
	grow(&j.drift.services, len(j.rules.services))
	at := j.atSockets()
	for index := range j.rules.backends {
		id := j.rules.backends[index].service
		if index >= len(j.rules.loads) || !j.tracked(id) || j.rules.backends[index].generation == 0 {
			continue
		}
		c := counter{&j.rules.loads[index].Active, metOf(j.flows.last.backends, index) + metOf(j.newcomers.last.backends, index) + at.backends[uint32(index)]}
		if j.drift.check(c, &j.drift.backends[index], most) && int(id) < len(j.rules.turns) {
			j.rules.turns[id].HasOneWith(c.met)
		}
	}
	for id := range j.rules.services {
		if id >= len(j.rules.turns) || !j.tracked(uint32(id)) {
			continue
		}
		c := counter{&j.rules.turns[id].Active, metOf(j.flows.last.services, id) + metOf(j.newcomers.last.services, id) + at.services[uint32(id)]}
		j.drift.check(c, &j.drift.services[id], most)
	}
	j.settleUnremembered()
}

func (j *janitor) tracked(id uint32) bool {
	return int(id) < len(j.rules.services) && j.rules.services[id].present && j.rules.services[id].tracked
}

func grow[T any](list *[]T, size int) {
	if n := size - len(*list); n > 0 {
		*list = append(*list, make([]T, n)...)
	}
}

func metOf(tally []tallied, at int) uint32 {
	if at >= len(tally) {
		return 0
	}
	return tally[at].active()
}

// check puts a counter right, if it has been wrong for long enough, and says so.
func (d *drift) check(c counter, before *disagreement, most uint32) (corrected bool) {
	now := disagreement{active: atomic.LoadUint32(c.active), met: c.met, rounds: 1}
	if now.active == before.active && now.met == before.met {
		now.rounds += before.rounds
	}
	if now.active > most || now.active != now.met && now.rounds >= stillRounds {
		if corrected = atomic.CompareAndSwapUint32(c.active, now.active, now.met); corrected {
			d.corrected++
		}
	}
	*before = now
	return corrected
}

// recount counts the active flows of services anew, and of their backends.
func (j *janitor) recount(ids map[uint32]bool) {
	if j.scene.flows == nil {
		return
	}
	at := j.atSockets()
	// What is not good any more goes first: it is counted off by itself.
	j.survey()
	var before []uint32
	for _, c := range j.countersOf(ids, &flowTally{}, socketTally{}) {
		before = append(before, atomic.LoadUint32(c.active))
	}
	for i, c := range j.countersOf(ids, j.survey(), at) {
		// What packets have added meanwhile stays.
		atomic.AddUint32(c.active, c.met-before[i])
	}
	for id := range j.rules.turns {
		j.rules.turns[id].HasOneWith(0)
	}
}

// survey walks over both tables at once.
func (j *janitor) survey() *flowTally {
	tally := &flowTally{}
	tally.fit(&j.rules)
	for _, t := range []*flowTable{j.scene.flows, j.scene.newcomers} {
		j.rules.walk(t, 0, len(t.buckets), j.clock(), tally)
	}
	return tally
}

// atSockets counts what sockets of this host have. What cannot be read is put right by a later round.
func (j *janitor) atSockets() (t socketTally) {
	if j.scene.sockets != nil {
		t, _ = tallySockets(j.scene.sockets)
	}
	return t
}

// countersOf lists the counters of services, and of all backends, with what a walk and a count of
// sockets have met of them.
func (j *janitor) countersOf(ids map[uint32]bool, tally *flowTally, at socketTally) (counters []counter) {
	for index := range min(len(j.rules.backends), len(j.rules.loads)) {
		// Of every backend: flows of one that left may have been counted by the rules of
		// before, and the next backend with its index inherits what it counts.
		counters = append(counters, counter{&j.rules.loads[index].Active, metOf(tally.backends, index) + at.backends[uint32(index)]})
	}
	for id := range j.rules.services {
		if ids[uint32(id)] && id < len(j.rules.turns) {
			counters = append(counters, counter{&j.rules.turns[id].Active, metOf(tally.services, id) + at.services[uint32(id)]})
		}
	}
	return counters
}
