// SPDX-License-Identifier: Apache-2.0

package datapath

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

// shared holds the maps that outlive a generation: counters and flows.
type shared struct {
	counts, outcomes *ebpf.Map
	flows, newcomers *ebpf.Map
	returns          *ebpf.Map
	ways             *ebpf.Map
	replyHops        *ebpf.Map
	// The mirror of the routes that replies take. We write it.
	replyRoutes, replyBlocks array
	fragments                *ebpf.Map
	allowances               *ebpf.Map
	// prefixes is shared by all that were made one from another, as are its lists.
	prefixes generation.PrefixMap
	// What schedulers and limits remember, by the service's id, and how many flows a
	// backend has, by its index. We write some of it.
	turns, loads array
	// The janitor's view of the tables of flows.
	proven, unproven *flowtable.Table
	// fullNAT is likewise that of the returns; nil where no service has that mode.
	fullNAT *flowtable.ReturnTable
	// secret places flows in them.
	secret uint64
}

// array is an array map, and its memory.
type array struct {
	*ebpf.Map
	memory mapmem.Storage
}

// Words of an element.
const (
	turnWords = 16
	loadWords = 4
)

// turn returns what is remembered for a service's id.
func (s *shared) turn(id uint32) mapmem.Storage { return s.turns.memory[id*turnWords:][:turnWords] }

// load returns what is known of a backend's index.
func (s *shared) load(index uint32) mapmem.Storage {
	return s.loads.memory[index*loadWords:][:loadWords]
}

// sizes is what the shared maps must hold at least.
type sizes struct{ backends, services, flows, newcomers, returns, ways uint32 }

// sizesOf returns what they hold.
func sizesOf(s *shared) sizes {
	return sizes{backends: s.counts.MaxEntries(), services: s.turns.MaxEntries(), flows: s.flows.MaxEntries(),
		newcomers: s.newcomers.MaxEntries(), returns: s.returns.MaxEntries(), ways: s.ways.MaxEntries()}
}

func (s sizes) within(have *shared) bool {
	return have != nil && s.backends <= have.counts.MaxEntries() && s.backends <= have.loads.MaxEntries() &&
		s.services <= have.turns.MaxEntries() && s.flows <= have.flows.MaxEntries() &&
		s.newcomers <= have.newcomers.MaxEntries() && s.returns <= have.returns.MaxEntries() &&
		s.ways <= have.ways.MaxEntries() && s.replyHops() <= have.replyHops.MaxEntries() &&
		s.replyBlocks() <= have.replyBlocks.MaxEntries()
}

// replyBlocks is how many blocks the mirror of routes has: as many, or one where no mode has replies.
func (s sizes) replyBlocks() uint32 {
	if s.ways > 1 {
		return mirror.Blocks
	}
	return 1
}

// mirror is the mirror of routes.
func (s *shared) mirror() mirror.Table {
	return mirror.Table{Head: s.replyRoutes.memory, Groups: s.replyBlocks.memory}
}

// replyHops is how many neighbours replies are noted of: none where no mode has replies.
func (s sizes) replyHops() uint32 {
	if s.ways > 1 {
		return uint32(objects.XDPHopTableREPLY_HOPS)
	}
	return 1
}

// newShared makes the maps that are missing or too small, and takes the others
// from old. A map that grows loses nothing: the caller adds what the old one
// counted, and turns and loads are copied.
func newShared(spec *ebpf.CollectionSpec, want sizes, old *shared, secret uint64) (*shared, error) {
	next := &shared{secret: secret}
	if old != nil {
		*next = *old
	}
	entries := map[string]uint32{
		objects.XDPMapBackendCounts: want.backends, objects.XDPMapOutcomes: uint32(objects.XDPOutcomeOUTCOME_COUNT),
		objects.XDPMapTurns: want.services,
		objects.XDPMapLoads: want.backends, objects.XDPMapFlows: want.flows, objects.XDPMapNewcomers: want.newcomers,
		objects.XDPMapReturns: want.returns,
		objects.XDPMapWays:    want.ways, objects.XDPMapReplyHops: want.replyHops(), objects.XDPMapReplyRoutes: 1,
		objects.XDPMapReplyBlocks: want.replyBlocks(),
		objects.XDPMapFragments:   spec.Maps[objects.XDPMapFragments].MaxEntries, objects.XDPMapAllowances: 1,
		objects.XDPMapPrefixes: spec.Maps[objects.XDPMapPrefixes].MaxEntries,
	}
	for _, at := range next.places() {
		if *at.of != nil && (*at.of).MaxEntries() >= entries[at.name] {
			continue
		}
		mapSpec := spec.Maps[at.name].Copy()
		mapSpec.MaxEntries = entries[at.name]
		made, err := ebpf.NewMap(mapSpec)
		if err != nil {
			next.closeUnless(old)
			return nil, fmt.Errorf("making the map %s with %d entries: %w", at.name, mapSpec.MaxEntries, err)
		}
		*at.of = made
		next.forget(made)
	}
	if err := errors.Join(next.mapVectors(old), next.mapFlows(old)); err != nil {
		next.closeUnless(old)
		return nil, err
	}
	return next, nil
}

// forget takes the memory of the map that a new one is in the place of for none: it
// is the old one's.
func (s *shared) forget(made *ebpf.Map) {
	switch made {
	case s.turns.Map:
		s.turns.memory = nil
	case s.loads.Map:
		s.loads.memory = nil
	case s.replyRoutes.Map:
		s.replyRoutes.memory = nil
	case s.replyBlocks.Map:
		s.replyBlocks.memory = nil
	case s.flows:
		s.proven = nil
	case s.newcomers:
		s.unproven = nil
	case s.returns:
		s.fullNAT = nil
	case s.prefixes.Map:
		s.prefixes.Lists = map[uint32][]objects.XDPPrefixKey{}
	}
}

// mapVectors maps the memory of vectors that are new, and copies what the old ones
// hold, but of routes: then they are written anew.
func (s *shared) mapVectors(old *shared) error {
	for _, v := range []struct {
		new  *array
		old  func() array
		anew bool
	}{
		{&s.turns, func() array { return old.turns }, false},
		{&s.loads, func() array { return old.loads }, false},
		{&s.replyRoutes, func() array { return old.replyRoutes }, true},
		{&s.replyBlocks, func() array { return old.replyBlocks }, true},
	} {
		var before array
		if old != nil {
			before = v.old()
		}
		if v.new.Map == before.Map {
			continue
		}
		var err error
		if v.new.memory, err = mapmem.Map(v.new.Map); err != nil {
			return err
		}
		if !v.anew {
			copy(v.new.memory, before.memory)
		}
	}
	// Blocks that are new know of no routes; and those that a process has left which was followed by
	// this one are followed by nobody.
	if old == nil || s.replyBlocks.Map != old.replyBlocks.Map {
		s.mirror().Retract()
	}
	return nil
}

// mapFlows maps the tables of flows that are new.
func (s *shared) mapFlows(old *shared) (err error) {
	if old == nil || s.flows != old.flows {
		if s.proven, err = flowtable.MapTable(s.flows, s.secret); err != nil {
			return err
		}
	}
	if old == nil || s.newcomers != old.newcomers {
		if s.unproven, err = flowtable.MapTable(s.newcomers, s.secret); err != nil {
			return err
		}
	}
	if s.returns.MaxEntries() > 1 && (old == nil || s.returns != old.returns) {
		s.fullNAT, err = flowtable.MapReturns(s.returns)
	}
	return err
}

// mapPlace is where one of the maps is to be.
type mapPlace struct {
	name string
	of   **ebpf.Map
}

// places lists the maps by their names in the program.
func (s *shared) places() []mapPlace {
	return []mapPlace{
		{objects.XDPMapBackendCounts, &s.counts},
		{objects.XDPMapOutcomes, &s.outcomes},
		{objects.XDPMapTurns, &s.turns.Map},
		{objects.XDPMapLoads, &s.loads.Map},
		{objects.XDPMapFlows, &s.flows},
		{objects.XDPMapNewcomers, &s.newcomers},
		{objects.XDPMapReturns, &s.returns},
		{objects.XDPMapWays, &s.ways},
		{objects.XDPMapReplyHops, &s.replyHops},
		{objects.XDPMapReplyRoutes, &s.replyRoutes.Map},
		{objects.XDPMapReplyBlocks, &s.replyBlocks.Map},
		{objects.XDPMapFragments, &s.fragments},
		{objects.XDPMapAllowances, &s.allowances},
		{objects.XDPMapPrefixes, &s.prefixes.Map},
	}
}

func (s *shared) maps() map[string]*ebpf.Map {
	maps := map[string]*ebpf.Map{}
	for _, at := range s.places() {
		maps[at.name] = *at.of
	}
	return maps
}

// put gives the spec the sizes of the maps that will replace its own, or the
// library would refuse them.
func (s *shared) put(spec *ebpf.CollectionSpec) {
	for name, m := range s.maps() {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
}

// closeUnless closes the maps that other does not hold.
func (s *shared) closeUnless(other *shared) {
	if s == nil || s == other {
		return
	}
	kept := map[*ebpf.Map]bool{}
	if other != nil {
		for _, m := range other.maps() {
			kept[m] = true
		}
	}
	s.closeFlows(kept)
	for _, v := range []array{s.turns, s.loads, s.replyRoutes, s.replyBlocks} {
		if v.Map != nil && !kept[v.Map] {
			v.memory.Unmap()
		}
	}
	for _, m := range s.maps() {
		if m != nil && !kept[m] {
			m.Close()
		}
	}
}

// closeFlows takes the tables of flows out of our memory.
func (s *shared) closeFlows(kept map[*ebpf.Map]bool) {
	for _, table := range []struct {
		of    *ebpf.Map
		close func()
	}{{s.flows, s.proven.Close}, {s.newcomers, s.unproven.Close}, {s.returns, s.fullNAT.Close}} {
		if table.of != nil && !kept[table.of] {
			table.close()
		}
	}
}

func makeLike(name string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	made, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("making the map %s with %d entries: %w", name, spec.MaxEntries, err)
	}
	return made, nil
}
