// SPDX-License-Identifier: Apache-2.0

package sharedmaps

import (
	"maps"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Ledger corrects the maps' counters: the counts of an index with a new owner start from 0, and the counts of a
// replaced map are added. Its Go maps are immutable, because a view shares them: each change makes others.
type Ledger struct {
	// Baselines[i] is the count of index i when its present owner got it.
	Baselines map[uint32]lb.BackendCount
	// carried[i] is the count of index i in maps that were replaced.
	carried map[uint32]lb.BackendCount
	// outcomes are the counters by outcome of maps that were replaced.
	outcomes map[string]uint64
	// Previous is another build's map of outcomes in which packets still count; nil where there is none.
	Previous *PreviousOutcomes
	// Backends is another build's map of backends' counters in which packets still count; nil where there is none.
	Backends *ForeignElements
}

// OtherCount returns the count of an index in the maps of other builds and earlier generations.
func (l *Ledger) OtherCount(index uint32) lb.BackendCount {
	counted := l.carried[index]
	if l.Backends != nil {
		// Reading fails only for an index that the map lacks.
		if before, err := l.Backends.backend(index); err == nil {
			counted = counted.Plus(before)
		}
	}
	return counted
}

// Commit records a change from one generation to the next, after the programs were replaced. Reading fails only for
// maps that are closed; then there is no count to carry.
func (l *Ledger) Commit(old, next *Maps, change *generation.PlaceChange) {
	if old != nil && old.Counts != next.Counts {
		carried := map[uint32]lb.BackendCount{}
		for index := range uint32(change.Places.IndicesEver()) {
			if count, err := ReadBackend(old.Counts, index); err == nil {
				carried[index] = l.carried[index].Plus(count)
			}
		}
		l.carried = carried
	}
	l.Baselines = l.NextBaselines(next, change)
}

// NextBaselines returns the value of Baselines after a change of owners, by the counters of these maps. The last
// packets of an owner may still be counted, and then seem to be the next owner's.
func (l *Ledger) NextBaselines(counted *Maps, change *generation.PlaceChange) map[uint32]lb.BackendCount {
	before := make(map[uint32]lb.BackendCount, len(l.Baselines))
	maps.Copy(before, l.Baselines)
	for _, index := range change.NextOwners() {
		if count, err := ReadBackend(counted.Counts, index); err == nil {
			before[index] = count.Plus(l.OtherCount(index))
		}
	}
	return before
}

// RestoreLedger returns the ledger of a snapshot.
func RestoreLedger(h *snapshot.Head) Ledger {
	counts := func(saved []snapshot.Count) map[uint32]lb.BackendCount {
		counts := make(map[uint32]lb.BackendCount, len(saved))
		for _, c := range saved {
			counts[c.Index] = lb.BackendCount{Packets: c.Packets, Bytes: c.Bytes, Connections: c.Connections,
				ReturnedPackets: c.ReturnedPackets, ReturnedBytes: c.ReturnedBytes,
				Answered: c.Answered, Refused: c.Refused, Unreachable: c.Unreachable}
		}
		return counts
	}
	return Ledger{Baselines: counts(h.Before), carried: counts(h.Carried), outcomes: h.CountedOutcomes}
}

// AddOutcomes adds the counts of replaced maps, and of maps that are about to be replaced.
func (l *Ledger) AddOutcomes(to []lb.OutcomeCount) error {
	var previous map[string]uint64
	if l.Previous != nil {
		var err error
		if previous, err = l.Previous.counts(); err != nil {
			return err
		}
	}
	for i := range to {
		to[i].Packets += l.outcomes[to[i].Name] + previous[to[i].Name]
	}
	return nil
}

// Counted returns the counters of all maps but the present ones.
func (l *Ledger) Counted() (backends map[uint32]lb.BackendCount, outcomes map[string]uint64, err error) {
	backends, outcomes = l.carried, l.outcomes
	if l.Previous != nil {
		if outcomes, err = l.Previous.counts(); err != nil {
			return nil, nil, err
		}
		for name, n := range l.outcomes {
			outcomes[name] += n
		}
	}
	if l.Backends != nil {
		backends = map[uint32]lb.BackendCount{}
		for index := range l.Backends.m.MaxEntries() {
			if n := l.OtherCount(index); n != (lb.BackendCount{}) {
				backends[index] = n
			}
		}
	}
	return backends, outcomes, nil
}

// EndPrevious adds the counters of the previous maps to the ledger, once no packet counts there, and returns the
// functions that close those maps, which readers may still use. It returns none where there are no such maps.
func (l *Ledger) EndPrevious() (ended []func()) {
	if l.Previous == nil && l.Backends == nil {
		return nil
	}
	rcu.Wait()
	backends, outcomes, err := l.Counted()
	if err != nil {
		return nil // their counters are still read
	}
	ended = []func(){l.Previous.Close, l.Backends.Close}
	l.carried, l.outcomes, l.Previous, l.Backends = backends, outcomes, nil, nil
	return ended
}
