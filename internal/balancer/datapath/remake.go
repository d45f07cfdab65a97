// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Between two builds, shared maps may differ in their layout. Those that can be are made anew
// beside the old ones, by which packets go until the programs are exchanged.

// remake makes a shared map in the place of one that is laid out differently, which it closes or keeps
// for its counters.
func (f *found) remake(name string, old *ebpf.Map, like *ebpf.MapSpec) (*ebpf.Map, error) {
	spec := like.Copy()
	switch name {
	case objects.XDPMapFlows, objects.XDPMapNewcomers:
		entries, err := f.leaveFlows(name, old)
		if err != nil {
			return nil, errors.Join(err, old.Close())
		}
		spec.MaxEntries = entries
	case objects.XDPMapOutcomes:
		f.previous = &previousOutcomes{m: old, names: f.snapshot.Outcomes}
		if old.Type() != like.Type || old.ValueSize() != like.ValueSize ||
			int(old.MaxEntries()) != len(f.previous.names) {
			return nil, fmt.Errorf("%w: %s does not hold the %d counters that it says", snapshot.ErrDamaged, old,
				len(f.previous.names))
		}
	case objects.XDPMapBackendCounts:
		spec.MaxEntries = old.MaxEntries()
		var err error
		if f.backends, err = f.elements(name, old, old.ValueSize(), like, countFields); err != nil {
			return nil, errors.Join(err, old.Close())
		}
	case objects.XDPMapPrefixes:
		return f.remakePrefixes(old, spec)
	default:
		if name != objects.XDPMapFragments {
			spec.MaxEntries = old.MaxEntries()
		}
		old.Close()
	}
	return makeLike(name, spec)
}

func makeLike(name string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	made, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("making the map %s with %d entries: %w", name, spec.MaxEntries, err)
	}
	return made, nil
}

// remakePrefixes makes that map anew: its numbers go on to be those that services and endpoints bear, also of
// backends that have left.
func (f *found) remakePrefixes(old *ebpf.Map, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	defer old.Close()
	elements, err := f.elements(objects.XDPMapPrefixes, old, old.KeySize(), spec, prefixFields)
	if err != nil {
		return nil, err
	}
	made, err := makeLike(objects.XDPMapPrefixes, spec)
	if err != nil {
		return nil, err
	}
	if err := elements.prefixesInto(made); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return made, nil
}

// elements opens a map by what the snapshot says of its elements, which have a size.
func (f *found) elements(name string, old *ebpf.Map, size uint32, like *ebpf.MapSpec,
	needed []string) (*foreignElements, error) {
	layout, described := f.snapshot.Elements[name]
	if !described {
		return nil, fmt.Errorf("%w: its map %s is laid out differently, and it does not say where the fields are",
			snapshot.ErrVersion, name)
	}
	if old.Type() != like.Type {
		return nil, fmt.Errorf("%w: %s is not %s", snapshot.ErrDamaged, old, like.Type)
	}
	return openElements(old, size, layout, needed)
}

// leaveFlows keeps a table of another layout to take its flows over, and says how many buckets the new one
// has.
func (f *found) leaveFlows(name string, old *ebpf.Map) (entries uint32, err error) {
	table, err := flowtable.OpenForeign(old, f.reading)
	if err != nil {
		return 0, err
	}
	to := &f.flows.proven
	if name == objects.XDPMapNewcomers {
		to = &f.flows.unproven
	}
	*to = append(*to, table)
	f.flows.bytes += table.Size()
	return table.Room(), nil
}

// writeAnew writes what packets need of turns and loads that were made anew. What is active is
// counted with the first change; until then limits let more in.
func (f *found) writeAnew(r *generation.Register) {
	now := atomic.LoadUint32(&f.memory.Head().Clock) | 1
	for _, is := range r.Records {
		if slices.Contains(f.differ, objects.XDPMapTurns) {
			turn := f.shared.turn(is.ID)
			is.PutTurn(turn)
			// Which flows nothing remembers is not known any more.
			if is.Remembers {
				mapmem.ElementsOf[objects.XDPTurn](turn)[0].Unremembered = now
			}
		}
		if slices.Contains(f.differ, objects.XDPMapLoads) {
			for i := range is.Places {
				is.PutLoad(f.shared.load(is.Places[i].Index), i)
			}
		}
	}
}

// previousOutcomes are counters of another build, in its order.
type previousOutcomes struct {
	m     *ebpf.Map
	names []string
}

func (o *previousOutcomes) close() {
	if o != nil {
		o.m.Close()
	}
}

// counts reads them by their names.
func (o *previousOutcomes) counts() (map[string]uint64, error) {
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
	var previous map[string]uint64
	if l.previous != nil {
		var err error
		if previous, err = l.previous.counts(); err != nil {
			return err
		}
	}
	for i := range to {
		to[i].Packets += l.outcomes[to[i].Name] + previous[to[i].Name]
	}
	return nil
}

// counted is what was counted in all maps but ours.
func (l *ledger) counted() (backends map[uint32]lb.BackendCount, outcomes map[string]uint64, err error) {
	backends, outcomes = l.carried, l.outcomes
	if l.previous != nil {
		if outcomes, err = l.previous.counts(); err != nil {
			return nil, nil, err
		}
		for name, n := range l.outcomes {
			outcomes[name] += n
		}
	}
	if l.backends != nil {
		backends = map[uint32]lb.BackendCount{}
		for index := range l.backends.m.MaxEntries() {
			if n := l.elsewhere(index); n != (lb.BackendCount{}) {
				backends[index] = n
			}
		}
	}
	return backends, outcomes, nil
}

// endPrevious takes what the maps before have counted, once no packet counts there, and returns what closes
// them: readers may still have them. It returns nothing where there are none.
func (l *ledger) endPrevious() (ended []func()) {
	if l.previous == nil && l.backends == nil {
		return nil
	}
	rcu.Wait()
	backends, outcomes, err := l.counted()
	if err != nil {
		return nil // they go on to be read
	}
	ended = []func(){l.previous.close, l.backends.close}
	l.carried, l.outcomes, l.previous, l.backends = backends, outcomes, nil, nil
	return ended
}
