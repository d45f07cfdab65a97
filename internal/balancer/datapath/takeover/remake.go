// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// The layout of shared maps may differ between builds. Such maps are recreated beside the old ones, which packets use
// until the programs are replaced.

// remake creates a shared map to replace one of another layout, which it closes, or keeps for its counters.
func (f *Found) remake(name string, old *ebpf.Map, like *ebpf.MapSpec) (*ebpf.Map, error) {
	spec := like.Copy()
	switch name {
	case objects.XDPMapFlows, objects.XDPMapNewcomers:
		entries, err := f.keepFlowTable(name, old)
		if err != nil {
			return nil, errors.Join(err, old.Close())
		}
		spec.MaxEntries = entries
	case objects.XDPMapOutcomes:
		f.Previous = &sharedmaps.PreviousOutcomes{Map: old, Names: f.Snapshot.Outcomes}
		if old.Type() != like.Type || old.ValueSize() != like.ValueSize ||
			int(old.MaxEntries()) != len(f.Previous.Names) {
			return nil, fmt.Errorf("%w: %s does not hold the %d counters that it says", snapshot.ErrDamaged, old,
				len(f.Previous.Names))
		}
	case objects.XDPMapBackendCounts:
		spec.MaxEntries = old.MaxEntries()
		var err error
		if f.Backends, err = f.elements(name, old, old.ValueSize(), like, sharedmaps.CountFields); err != nil {
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
	return sharedmaps.MakeLike(name, spec)
}

// remakePrefixes recreates the map of prefixes with the same numbers of lists, to which services and endpoints refer.
func (f *Found) remakePrefixes(old *ebpf.Map, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	defer old.Close()
	elements, err := f.elements(objects.XDPMapPrefixes, old, old.KeySize(), spec, sharedmaps.PrefixFields)
	if err != nil {
		return nil, err
	}
	m, err := sharedmaps.MakeLike(objects.XDPMapPrefixes, spec)
	if err != nil {
		return nil, err
	}
	if err := elements.PrefixesInto(m); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// elements opens a map with elements of that size, by the snapshot's layout.
func (f *Found) elements(name string, old *ebpf.Map, size uint32, like *ebpf.MapSpec,
	needed []string) (*sharedmaps.ForeignElements, error) {
	layout, described := f.Snapshot.Elements[name]
	if !described {
		return nil, fmt.Errorf("%w: its map %s is laid out differently, and it does not say where the fields are",
			snapshot.ErrVersion, name)
	}
	if old.Type() != like.Type {
		return nil, fmt.Errorf("%w: %s is not %s", snapshot.ErrDamaged, old, like.Type)
	}
	return sharedmaps.OpenElements(old, size, layout, needed)
}

// keepFlowTable keeps a table of another layout for copying its flows, and returns the number of buckets of the new
// one.
func (f *Found) keepFlowTable(name string, old *ebpf.Map) (entries uint32, err error) {
	table, err := flowtable.OpenForeign(old, f.foreignLayout)
	if err != nil {
		return 0, err
	}
	to := &f.Flows.Proven
	if name == objects.XDPMapNewcomers {
		to = &f.Flows.Unproven
	}
	*to = append(*to, table)
	f.Flows.Bytes += table.Size()
	return table.BucketsNeeded(), nil
}

// RewriteLimits writes the limits and addresses into recreated turns and loads. The first change counts active flows;
// until then limits admit more.
func (f *Found) RewriteLimits(r *generation.Register) {
	now := atomic.LoadUint32(&f.Memory.Head().Clock) | 1
	for _, record := range r.Records {
		if slices.Contains(f.Differ, objects.XDPMapTurns) {
			turn := f.Shared.Turn(record.ID)
			record.PutTurn(turn, flowtable.Monotonic())
			// It is not known any more which flows lack an entry.
			if record.Remembers {
				mapmem.ElementsOf[objects.XDPTurn](turn)[0].Unremembered = now
			}
		}
		if slices.Contains(f.Differ, objects.XDPMapLoads) {
			for i := range record.Places {
				record.PutLoad(f.Shared.Load(record.Places[i].Index), i)
			}
		}
	}
}
