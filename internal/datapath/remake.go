// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/lb"
)

// Between two builds, shared maps may differ in their layout. Those that can be are made anew
// beside the old ones, by which packets go until the programs are exchanged.

// remake makes a shared map in the place of one that is laid out differently, which it closes or keeps
// for its counters.
func (f *found) remake(name string, old *ebpf.Map, like *ebpf.MapSpec) (*ebpf.Map, error) {
	spec := like.Copy()
	switch name {
	case xdpMapFlows, xdpMapNewcomers:
		entries, err := f.leaveFlows(name, old)
		if err != nil {
			return nil, errors.Join(err, old.Close())
		}
		spec.MaxEntries = entries
	case xdpMapOutcomes:
		f.former = &formerOutcomes{m: old, names: f.snapshot.Outcomes}
		if old.Type() != like.Type || old.ValueSize() != like.ValueSize || int(old.MaxEntries()) != len(f.former.names) {
			return nil, fmt.Errorf("%w: %s does not hold the %d counters that it says", snapshot.ErrDamaged, old, len(f.former.names))
		}
	default:
		if name != xdpMapFragments {
			spec.MaxEntries = old.MaxEntries()
		}
		old.Close()
	}
	made, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("making the map %s with %d entries: %w", name, spec.MaxEntries, err)
	}
	return made, nil
}

// leaveFlows keeps a table of another layout to take its flows over, and says how many buckets the new one
// has.
func (f *found) leaveFlows(name string, old *ebpf.Map) (entries uint32, err error) {
	table, err := openForeign(old, f.reading)
	if err != nil {
		return 0, err
	}
	to := &f.flows.proven
	if name == xdpMapNewcomers {
		to = &f.flows.unproven
	}
	*to = append(*to, table)
	f.flows.bytes += table.size()
	return table.room(), nil
}

// writeAnew writes what packets need of turns and loads that were made anew. What is active is
// counted with the first change; until then limits let more in.
func (f *found) writeAnew(r *register) {
	now := atomic.LoadUint32(&f.memory.head().Clock) | 1
	for _, is := range r.records {
		if slices.Contains(f.differ, xdpMapTurns) {
			turn := f.shared.turn(is.id)
			is.putTurn(turn)
			// Which flows nothing remembers is not known any more.
			if is.remembers {
				elements[xdpTurn](turn)[0].Unremembered = now
			}
		}
		if slices.Contains(f.differ, xdpMapLoads) {
			for i := range is.places {
				is.putLoad(f.shared.load(is.places[i].index), i)
			}
		}
	}
}

// formerOutcomes are counters of another build, in its order.
type formerOutcomes struct {
	m     *ebpf.Map
	names []string
}

func (o *formerOutcomes) close() {
	if o != nil {
		o.m.Close()
	}
}

// counts reads them by their names.
func (o *formerOutcomes) counts() (map[string]uint64, error) {
	counts := make(map[string]uint64, len(o.names))
	for i, name := range o.names {
		var perCPU []uint64
		if err := o.m.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("reading the counter %s of the data plane before: %v", name, err)
		}
		for _, n := range perCPU {
			counts[name] += n
		}
	}
	return counts, nil
}

// addOutcomes adds what was counted in maps that are not in use any more, or will not be.
func (l *ledger) addOutcomes(to []lb.OutcomeCount) error {
	var former map[string]uint64
	if l.former != nil {
		var err error
		if former, err = l.former.counts(); err != nil {
			return err
		}
	}
	for i := range to {
		to[i].Packets += l.outcomes[to[i].Name] + former[to[i].Name]
	}
	return nil
}

// endFormer takes what the map before has counted, once no packet counts there, and returns it: readers
// may still have it. Nil where there is none.
func (l *ledger) endFormer() *formerOutcomes {
	former := l.former
	if former == nil {
		return nil
	}
	waitForReaders()
	counts, err := former.counts()
	if err != nil {
		return nil // it goes on to be read
	}
	for name, n := range l.outcomes {
		counts[name] += n
	}
	l.outcomes, l.former = counts, nil
	return former
}
