// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// DefaultFlowEntries is the size of the flow table where a service tracks
// flows: about 100 bytes of kernel memory an entry.
const DefaultFlowEntries = 1 << 20

// DefaultFullNATFlows is how many full-NAT flows there can be at once: about 300
// bytes of kernel memory each, taken where a service has that mode.
const DefaultFullNATFlows = 1 << 18

// DefaultTooBigRate is how many senders a CPU tells in a second that their packet
// was too big.
const DefaultTooBigRate = 1000

// shared holds the maps that outlive a generation: counters and flows.
type shared struct {
	counts, outcomes, turns, flows *ebpf.Map
	natFlows, natReturns           *ebpf.Map
	fragments, allowances          *ebpf.Map
	tooBigRate                     uint32
}

// sizes is what the shared maps must hold at least.
type sizes struct{ backends, services, flows, natFlows uint32 }

func (s sizes) within(have *shared) bool {
	return have != nil && s.backends <= have.counts.MaxEntries() &&
		s.services <= have.turns.MaxEntries() && s.flows <= have.flows.MaxEntries() &&
		s.natFlows <= have.natFlows.MaxEntries()
}

// newShared makes the maps that are missing or too small, and takes the others
// from old. A map that grows loses nothing: the caller adds what the old one
// counted, and turns are copied.
func newShared(spec *ebpf.CollectionSpec, want sizes, old *shared) (*shared, error) {
	next := &shared{}
	if old != nil {
		*next = *old
	}
	for _, m := range []struct {
		name    string
		at      **ebpf.Map
		entries uint32
	}{
		{xdpMapBackendCounts, &next.counts, want.backends},
		{xdpMapOutcomes, &next.outcomes, uint32(xdpOutcomeOUTCOME_COUNT)},
		{xdpMapTurns, &next.turns, want.services},
		{xdpMapFlows, &next.flows, want.flows},
		{xdpMapNatFlows, &next.natFlows, want.natFlows},
		{xdpMapNatReturns, &next.natReturns, want.natFlows},
		{xdpMapFragments, &next.fragments, spec.Maps[xdpMapFragments].MaxEntries},
		{xdpMapAllowances, &next.allowances, 1},
	} {
		if *m.at != nil && (*m.at).MaxEntries() >= m.entries {
			continue
		}
		mapSpec := spec.Maps[m.name].Copy()
		mapSpec.MaxEntries = m.entries
		made, err := ebpf.NewMap(mapSpec)
		if err != nil {
			next.closeUnless(old)
			return nil, fmt.Errorf("making the map %s with %d entries: %w", m.name, m.entries, err)
		}
		*m.at = made
	}
	if old != nil && next.turns != old.turns {
		if err := copyTurns(next.turns, old.turns); err != nil {
			next.closeUnless(old)
			return nil, err
		}
	}
	return next, nil
}

func copyTurns(to, from *ebpf.Map) error {
	for id := range from.MaxEntries() {
		var turn uint64
		if err := from.Lookup(id, &turn); err != nil {
			return fmt.Errorf("reading the turn of service %d: %v", id, err)
		}
		if err := to.Put(id, turn); err != nil {
			return fmt.Errorf("writing the turn of service %d: %v", id, err)
		}
	}
	return nil
}

func (s *shared) maps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		xdpMapBackendCounts: s.counts,
		xdpMapOutcomes:      s.outcomes,
		xdpMapTurns:         s.turns,
		xdpMapFlows:         s.flows,
		xdpMapNatFlows:      s.natFlows,
		xdpMapNatReturns:    s.natReturns,
		xdpMapFragments:     s.fragments,
		xdpMapAllowances:    s.allowances,
	}
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
	if s == nil {
		return
	}
	kept := map[*ebpf.Map]bool{}
	if other != nil {
		for _, m := range other.maps() {
			kept[m] = true
		}
	}
	for _, m := range s.maps() {
		if m != nil && !kept[m] {
			m.Close()
		}
	}
}
