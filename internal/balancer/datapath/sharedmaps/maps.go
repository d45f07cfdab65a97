// SPDX-License-Identifier: Apache-2.0

package sharedmaps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mirror"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Maps holds the maps that outlive a generation: counters and flows.
type Maps struct {
	Counts, Outcomes *ebpf.Map
	Flows, Newcomers *ebpf.Map
	Returns          *ebpf.Map
	RouteCache       *ebpf.Map
	ReplyHops        *ebpf.Map
	// The mirror of the routes of replies, which the control plane writes.
	replyRoutes, ReplyBlocks array
	fragments                *ebpf.Map
	allowances               *ebpf.Map
	// Prefixes, with its lists, is shared by all Maps that New made from one another.
	Prefixes generation.PrefixMap
	// Turns has the state of schedulers and limits, by the service's id, and Loads the number of a backend's flows, by
	// its index. The control plane writes a part of both.
	Turns, Loads array
	// Proven and Unproven are the mapped tables of flows.
	Proven, Unproven *flowtable.Table
	// FullNAT is the mapped table of returns; nil where no service has that mode.
	FullNAT *flowtable.ReturnTable
	// Secret seeds their hash.
	Secret uint64
}

// array is an array map, and its memory.
type array struct {
	*ebpf.Map
	Memory mapmem.Storage
}

// The sizes of elements in words.
const (
	turnWords = 16
	loadWords = 4
)

// Turn returns the memory of a service's turn, by its id.
func (s *Maps) Turn(id uint32) mapmem.Storage { return s.Turns.Memory[id*turnWords:][:turnWords] }

// Load returns the memory of a backend's load, by its index.
func (s *Maps) Load(index uint32) mapmem.Storage {
	return s.Loads.Memory[index*loadWords:][:loadWords]
}

// Sizes are the numbers of entries that the shared maps must have at least.
type Sizes struct{ Backends, Services, Flows, Newcomers, Returns, RouteCache uint32 }

// SizesOf returns the numbers of entries of maps.
func SizesOf(s *Maps) Sizes {
	return Sizes{Backends: s.Counts.MaxEntries(), Services: s.Turns.MaxEntries(), Flows: s.Flows.MaxEntries(),
		Newcomers: s.Newcomers.MaxEntries(), Returns: s.Returns.MaxEntries(), RouteCache: s.RouteCache.MaxEntries()}
}

// Within reports whether the present maps are large enough.
func (s Sizes) Within(present *Maps) bool {
	return present != nil && s.Backends <= present.Counts.MaxEntries() && s.Backends <= present.Loads.MaxEntries() &&
		s.Services <= present.Turns.MaxEntries() && s.Flows <= present.Flows.MaxEntries() &&
		s.Newcomers <= present.Newcomers.MaxEntries() && s.Returns <= present.Returns.MaxEntries() &&
		s.RouteCache <= present.RouteCache.MaxEntries() && s.replyHops() <= present.ReplyHops.MaxEntries() &&
		s.replyBlocks() <= present.ReplyBlocks.MaxEntries()
}

// replyBlocks returns the number of blocks of the mirror of routes: all of them, or one where no mode has replies.
func (s Sizes) replyBlocks() uint32 {
	if s.RouteCache > 1 {
		return mirror.Blocks
	}
	return 1
}

// Mirror returns the mirror of routes.
func (s *Maps) Mirror() mirror.Table {
	return mirror.Table{Head: s.replyRoutes.Memory, Groups: s.ReplyBlocks.Memory}
}

// replyHops returns the number of places for next hops of replies: one where no mode has replies.
func (s Sizes) replyHops() uint32 {
	if s.RouteCache > 1 {
		return uint32(objects.XDPHopTableREPLY_HOPS)
	}
	return 1
}

// New creates the maps that are missing or too small, and takes the others from old. Replaced maps lose nothing: the
// caller adds the old one's counts, and turns and loads are copied. newMap is ebpf.NewMap, or a substitute in tests.
func New(newMap func(*ebpf.MapSpec) (*ebpf.Map, error), spec *ebpf.CollectionSpec, sizes Sizes, old *Maps,
	secret uint64) (*Maps, error) {
	next := &Maps{Secret: secret}
	if old != nil {
		*next = *old
	}
	entries := map[string]uint32{
		objects.XDPMapBackendCounts: sizes.Backends, objects.XDPMapOutcomes: uint32(objects.XDPOutcomeOUTCOME_COUNT),
		objects.XDPMapTurns: sizes.Services,
		objects.XDPMapLoads: sizes.Backends, objects.XDPMapFlows: sizes.Flows, objects.XDPMapNewcomers: sizes.Newcomers,
		objects.XDPMapReturns:   sizes.Returns,
		objects.XDPMapWays:      sizes.RouteCache,
		objects.XDPMapReplyHops: sizes.replyHops(), objects.XDPMapReplyRoutes: 1,
		objects.XDPMapReplyBlocks: sizes.replyBlocks(),
		objects.XDPMapFragments:   spec.Maps[objects.XDPMapFragments].MaxEntries, objects.XDPMapAllowances: 1,
		objects.XDPMapPrefixes: spec.Maps[objects.XDPMapPrefixes].MaxEntries,
	}
	for _, at := range next.Places() {
		if *at.Map != nil && (*at.Map).MaxEntries() >= entries[at.Name] {
			continue
		}
		mapSpec := spec.Maps[at.Name].Copy()
		mapSpec.MaxEntries = entries[at.Name]
		m, err := newMap(mapSpec)
		if err != nil {
			next.CloseUnless(old)
			return nil, fmt.Errorf("making the map %s with %d entries: %w", at.Name, mapSpec.MaxEntries, err)
		}
		*at.Map = m
		next.dropMemory(m)
	}
	if err := errors.Join(next.MapVectors(old), next.MapFlows(old)); err != nil {
		next.CloseUnless(old)
		return nil, err
	}
	return next, nil
}

// dropMemory drops the memory of a recreated map: it is still that of the old map, which belongs to the old Maps.
func (s *Maps) dropMemory(m *ebpf.Map) {
	switch m {
	case s.Turns.Map:
		s.Turns.Memory = nil
	case s.Loads.Map:
		s.Loads.Memory = nil
	case s.replyRoutes.Map:
		s.replyRoutes.Memory = nil
	case s.ReplyBlocks.Map:
		s.ReplyBlocks.Memory = nil
	case s.Flows:
		s.Proven = nil
	case s.Newcomers:
		s.Unproven = nil
	case s.Returns:
		s.FullNAT = nil
	case s.Prefixes.Map:
		s.Prefixes.Lists = map[uint32][]objects.XDPPrefixKey{}
	}
}

// MapVectors maps the memory of new array maps, and copies the old contents, except routes, which are written again.
func (s *Maps) MapVectors(old *Maps) error {
	for _, v := range []struct {
		new  *array
		old  func() array
		anew bool
	}{
		{&s.Turns, func() array { return old.Turns }, false},
		{&s.Loads, func() array { return old.Loads }, false},
		{&s.replyRoutes, func() array { return old.replyRoutes }, true},
		{&s.ReplyBlocks, func() array { return old.ReplyBlocks }, true},
	} {
		var before array
		if old != nil {
			before = v.old()
		}
		if v.new.Map == before.Map {
			continue
		}
		var err error
		if v.new.Memory, err = mapmem.Map(v.new.Map); err != nil {
			return err
		}
		if !v.anew {
			copy(v.new.Memory, before.Memory)
		}
	}
	// New blocks have no routes yet, and the routes of an earlier process may be outdated.
	if old == nil || s.ReplyBlocks.Map != old.ReplyBlocks.Map {
		s.Mirror().Invalidate()
	}
	return nil
}

// MapFlows maps the tables of flows that are new.
func (s *Maps) MapFlows(old *Maps) (err error) {
	if old == nil || s.Flows != old.Flows {
		if s.Proven, err = flowtable.MapTable(s.Flows, s.Secret); err != nil {
			return err
		}
	}
	if old == nil || s.Newcomers != old.Newcomers {
		if s.Unproven, err = flowtable.MapTable(s.Newcomers, s.Secret); err != nil {
			return err
		}
	}
	if s.Returns.MaxEntries() > 1 && (old == nil || s.Returns != old.Returns) {
		s.FullNAT, err = flowtable.MapReturns(s.Returns)
	}
	return err
}

// mapPlace is the name of a map in the program, and the field that holds it.
type mapPlace struct {
	Name string
	Map  **ebpf.Map
}

// Places lists the maps by their names in the program.
func (s *Maps) Places() []mapPlace {
	return []mapPlace{
		{objects.XDPMapBackendCounts, &s.Counts},
		{objects.XDPMapOutcomes, &s.Outcomes},
		{objects.XDPMapTurns, &s.Turns.Map},
		{objects.XDPMapLoads, &s.Loads.Map},
		{objects.XDPMapFlows, &s.Flows},
		{objects.XDPMapNewcomers, &s.Newcomers},
		{objects.XDPMapReturns, &s.Returns},
		{objects.XDPMapWays, &s.RouteCache},
		{objects.XDPMapReplyHops, &s.ReplyHops},
		{objects.XDPMapReplyRoutes, &s.replyRoutes.Map},
		{objects.XDPMapReplyBlocks, &s.ReplyBlocks.Map},
		{objects.XDPMapFragments, &s.fragments},
		{objects.XDPMapAllowances, &s.allowances},
		{objects.XDPMapPrefixes, &s.Prefixes.Map},
	}
}

// ByName returns the maps by their names in the program.
func (s *Maps) ByName() map[string]*ebpf.Map {
	maps := map[string]*ebpf.Map{}
	for _, at := range s.Places() {
		maps[at.Name] = *at.Map
	}
	return maps
}

// SetSizes sets the sizes of the maps in a spec whose maps these are to replace: the library rejects other sizes.
func (s *Maps) SetSizes(spec *ebpf.CollectionSpec) {
	for name, m := range s.ByName() {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
}

// CloseUnless closes the maps that other does not hold.
func (s *Maps) CloseUnless(other *Maps) {
	if s == nil || s == other {
		return
	}
	kept := map[*ebpf.Map]bool{}
	if other != nil {
		for _, m := range other.ByName() {
			kept[m] = true
		}
	}
	s.closeFlows(kept)
	for _, v := range []array{s.Turns, s.Loads, s.replyRoutes, s.ReplyBlocks} {
		if v.Map != nil && !kept[v.Map] {
			v.Memory.Unmap()
		}
	}
	for _, m := range s.ByName() {
		if m != nil && !kept[m] {
			m.Close()
		}
	}
}

// closeFlows unmaps the tables of flows.
func (s *Maps) closeFlows(kept map[*ebpf.Map]bool) {
	for _, table := range []struct {
		flows *ebpf.Map
		close func()
	}{{s.Flows, s.Proven.Close}, {s.Newcomers, s.Unproven.Close}, {s.Returns, s.FullNAT.Close}} {
		if table.flows != nil && !kept[table.flows] {
			table.close()
		}
	}
}

// MakeLike creates a map.
func MakeLike(name string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("making the map %s with %d entries: %w", name, spec.MaxEntries, err)
	}
	return m, nil
}
