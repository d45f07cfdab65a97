// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/maglev"
)

// The model's tables, and its state of them while they change.

// serviceState is the model's state of a service beside its configuration.
type serviceState struct {
	// id is the number that the program has for it.
	id uint32
	// tracked and bySource are properties of the service as it was last applied, and recipe the description of its
	// table.
	tracked, bySource bool
	recipe            string
	// untrackedBefore: it was not tracked once, so that flows of that time may have no entry.
	untrackedBefore bool
	// owners are those of the slots now, and last the latest ones that there were.
	owners, last []lb.BackendKey
	// sequence is that of rr and wrr.
	sequence []int
	// base are the slots' owners before the transitions that have not ended yet; nil if there is none.
	base []lb.BackendKey
	// until is when those transitions end.
	until time.Time
	// moved are the slots that have ever changed hands. That the program forgets them
	// when nothing is remembered any more makes a difference only where a slot is back (isBack).
	moved []bool

	turn   uint64
	due    uint64
	active uint32
	// unremembered is when there was the last sign of a flow without an entry though the service tracks all, in
	// milliseconds; 0 where that is too long ago.
	unremembered uint32
	// cameBack is the same of a backend that left recently and is there again.
	cameBack uint32
}

// noteUnremembered notes that there may be such a flow of a service of NAT.
func (m *model) noteUnremembered(s *lb.RoutedService) {
	if s.Mode == lb.NAT && isTracked(s) {
		m.standings[s.Key()].unremembered = m.clock | 1
	}
}

// endUnrememberedWindows forgets signs that were noted too long ago.
func (m *model) endUnrememberedWindows() {
	for i := range m.state.Services {
		s := &m.state.Services[i]
		at := m.standings[s.Key()]
		if int32(m.clock-at.unremembered) >= int32(transitionWindow(s).Milliseconds()) {
			at.unremembered = 0
		}
		if int32(m.clock-at.cameBack) >= int32(transitionWindow(s).Milliseconds()) {
			at.cameBack = 0
		}
	}
}

// returned reports whether a service has a backend that left recently, by the endpoints of before, and is there again.
func (m *model) returned(s *lb.RoutedService, before map[endpoint]origin) bool {
	return slices.ContainsFunc(s.Backends, func(b lb.Backend) bool {
		o := before[endpoint{netip.AddrPortFrom(b.Address, b.Port), byte(s.Protocol)}]
		return !o.until.IsZero() && !m.now.After(o.until)
	})
}

// isMoved says that a flow of that hash may be remembered. Without slots, any may.
func (at *serviceState) isMoved(hash uint32) bool {
	if len(at.owners) == 0 {
		return slices.Contains(at.moved, true)
	}
	return len(at.moved) > 0 && at.moved[scale(hash, len(at.moved))]
}

// baseOf is the backend that the base has for a hash, if packets can be sent to it.
func (at *serviceState) baseOf(m *model, hash uint32) (backend int, usable bool) {
	if at.base == nil {
		return 0, false
	}
	s, i := m.find(at.base[scale(hash, len(at.base))])
	return i, s != nil && s.Up(i)
}

// change gives the service a table. One with the same owners as the last prolongs a transition that is under way, and
// begins none.
func (at *serviceState) change(owners []lb.BackendKey, recipe string, now time.Time, lasts time.Duration) {
	made := at.recipe != recipe
	at.recipe, at.owners = recipe, owners
	before := at.last
	if len(owners) > 0 {
		at.last = owners
	}
	if !made || before == nil || at.base == nil && slices.Equal(before, owners) {
		return
	}
	if at.base == nil {
		at.base = before
	}
	at.until = now.Add(lasts)
	if len(owners) > 0 {
		at.mark()
	}
}

// rehash gives a table to a service whose slots do not mean the same flows any more.
func (at *serviceState) rehash(owners []lb.BackendKey, recipe string) {
	at.recipe, at.owners, at.base, at.last = recipe, owners, nil, nil
	if len(owners) == 0 {
		return
	}
	at.last = owners
	if slices.Contains(at.moved, true) {
		at.moved = make([]bool, len(owners))
		at.markAll()
	}
}

// recipeFor returns the inputs of a service's table: scheduler, size, and the backends with their weights.
func (m *model) recipeFor(s *lb.RoutedService) string {
	recipe := fmt.Sprint(s.Scheduler, m.tableSize(s))
	for _, i := range takersOf(s) {
		recipe += fmt.Sprint(" ", tableName(s, i), s.Backends[i].Address, s.Backends[i].Port, modelWeight(s, i))
	}
	return recipe
}

// tableName is the name by which a table hashes a backend: its address and port; where the hash is of the client's
// address alone, its address alone, unless two backends share it.
func tableName(s *lb.RoutedService, i int) string {
	b := s.Backends[i]
	sharers := 0
	for _, other := range s.Backends {
		if other.Address == b.Address {
			sharers++
		}
	}
	if s.BySource() && sharers == 1 {
		return netip.AddrPortFrom(b.Address, 0).String()
	}
	return netip.AddrPortFrom(b.Address, b.Port).String()
}

// tracked says that the service's flows are remembered.
func isTracked(s *lb.RoutedService) bool { return s.Tracked() || s.Mode == lb.FullNAT }

// mark notes which slots have changed hands since the base.
func (at *serviceState) mark() {
	if len(at.moved) != len(at.owners) {
		all := slices.Contains(at.moved, true)
		at.moved = make([]bool, len(at.owners))
		if all {
			at.markAll()
		}
	}
	for i := range at.owners {
		at.moved[i] = at.moved[i] || len(at.base) != len(at.owners) || at.base[i] != at.owners[i]
	}
}

// markAll is for a service that has remembered flows of all slots.
func (at *serviceState) markAll() {
	for i := range at.moved {
		at.moved[i] = true
	}
}

// The default windows: a change has settled after so long.
const windowTCP, windowUDP = 15 * time.Minute, 30 * time.Second

func transitionWindow(s *lb.RoutedService) time.Duration {
	switch {
	case s.Transition.Window != 0:
		return s.Transition.Window
	case s.Protocol == lb.UDP:
		return windowUDP
	}
	return windowTCP
}

// takes reports whether a backend takes new flows.
func takesFlows(s *lb.RoutedService, i int) bool {
	return s.Up(i) && s.Backends[i].Weight > 0 && !s.Backends[i].Draining && s.Observed.Of(i).Unhealthy == ""
}

// takers are the backends that do, in the configuration's order.
func takersOf(s *lb.RoutedService) (all []int) {
	for i := range s.Backends {
		if takesFlows(s, i) {
			all = append(all, i)
		}
	}
	return all
}

// weightOf is a backend's share of new flows.
func modelWeight(s *lb.RoutedService, i int) uint32 {
	switch s.Scheduler {
	case lb.RoundRobin, lb.LeastConnections, lb.Failover:
		return 1
	}
	return uint32(s.Backends[i].Weight)
}

func backendKeyOf(s *lb.RoutedService, i int) lb.BackendKey { return s.BackendKey(s.Backends[i]) }

// indexOf finds a backend that is configured.
func indexOfBackend(s *lb.RoutedService, key lb.BackendKey) int {
	return slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return s.BackendKey(b) == key })
}

// ownersOf fills a table's slots; without backends that take new flows it has none.
func (m *model) ownersOf(s *lb.RoutedService) (owners []lb.BackendKey, err error) {
	takers := takersOf(s)
	if len(takers) == 0 {
		return nil, nil
	}
	if s.Scheduler == lb.Failover {
		return []lb.BackendKey{backendKeyOf(s, takers[0])}, nil
	}
	var weights []uint32
	var names []string
	for _, i := range takers {
		weights = append(weights, modelWeight(s, i))
		names = append(names, tableName(s, i))
	}
	slots, err := m.slotsFor(weights, names, m.tableSize(s))
	for _, taker := range slots {
		owners = append(owners, backendKeyOf(s, takers[taker]))
	}
	return owners, err
}

// slotsFor builds a table, or returns one that was built from the same inputs before: in a long run of random changes,
// most tables are.
func (m *model) slotsFor(weights []uint32, names []string, size uint32) ([]uint16, error) {
	recipe := fmt.Sprint(size, weights, names)
	if slots, built := m.tables[recipe]; built {
		return slots, nil
	}
	slots, err := maglev.Build(weights, names, size)
	if err == nil {
		if len(m.tables) >= keptTables {
			clear(m.tables)
		}
		m.tables[recipe] = slots
	}
	return slots, err
}

// keptTables bounds the memory of a long run.
const keptTables = 4096

// tableSize is how many slots a service has.
func (m *model) tableSize(s *lb.RoutedService) uint32 {
	switch n := len(s.Backends); {
	case s.Scheduler == lb.Failover:
		return 1
	case s.TableSize != 0:
		return s.TableSize
	case m.options.TableSize != 0:
		return m.options.TableSize
	case n <= 10:
		return 1021
	case n <= 80:
		return 8191
	case n <= 655:
		return 65537
	}
	return 1048573
}

// endTransitions forgets the bases of changes that have settled.
func (m *model) endTransitions() {
	for _, at := range m.standings {
		if at.base != nil && m.now.After(at.until) {
			at.base = nil
		}
	}
}
