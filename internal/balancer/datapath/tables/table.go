// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/maglev"
)

// MaxMembers is the largest number of members of a table.
const MaxMembers = int(objects.XDPSlotBitsSLOT_MEMBER)

// smallTable is the largest number of slots of a table that is filled anew for each change, in a few milliseconds.
// Larger tables are derived from the table of all backends, which is filled once: then a change takes little more than
// copying it. Smaller ones are not, because removing a down backend from the configuration changes the table of all
// backends, and moves slots that the backend had passed to others once more.
const smallTable = 1 << 17

// FullRecipe has the inputs of the table of all backends, from which a service's is derived.
type FullRecipe struct {
	Size uint32
	// All are, for a large table, all backends, and otherwise those that accept new flows. The table identifies them by
	// address and not by configured name, so that balancers whose configurations name backends differently agree: see
	// identitiesOf.
	All    []netip.AddrPort
	Shares []uint32
}

// Recipe has the inputs of a service's table.
type Recipe struct {
	FullRecipe
	// Full is the table of all backends, if it was built already.
	Full      *maglev.Table
	Scheduler lb.Scheduler
	// Owners are the members: the backends that accept new flows, in the order of the service.
	Owners  []netip.AddrPort
	Weights []uint32
	// Absent[i] says that All[i] is not among Owners.
	Absent []bool
}

// Table is a service's slots over its members, numbered from 0, and the sequence of their turns, if the scheduler has
// one. It is immutable.
type Table struct {
	Recipe
	Slots    []uint16
	Sequence []uint16
}

// RecipeOf returns the inputs of a service's table. size is the default table size; 0: by the number of backends.
func RecipeOf(s *lb.RoutedService, size uint32) Recipe {
	n := len(s.Backends)
	r := Recipe{Scheduler: s.Scheduler, Absent: make([]bool, n), Owners: make([]netip.AddrPort, 0, n),
		Weights: make([]uint32, 0, n)}
	for i, b := range s.Backends {
		if r.Absent[i] = !s.TakesFlows(i); !r.Absent[i] {
			r.Owners = append(r.Owners, netip.AddrPortFrom(b.Address, b.Port))
			r.Weights = append(r.Weights, uint32(Weight(s, i)))
		}
	}
	r.Size = sizeOf(s, size)
	all := identitiesOf(s)
	if r.Size > smallTable && len(s.Backends) <= MaxMembers {
		r.All, r.Shares = all, fullShares(s)
		return r
	}
	r.All, r.Shares = make([]netip.AddrPort, 0, len(r.Owners)), r.Weights
	for i, absent := range r.Absent {
		if !absent {
			r.All = append(r.All, all[i])
		}
	}
	r.Absent = make([]bool, len(r.Owners))
	return r
}

// identitiesOf returns the identities of the backends in a table, which alone determine their slots. If flows are
// hashed by the client's address and port, the identity is a backend's address and port. If they are hashed by the
// client's address alone, the port of an address that only one backend has is omitted (0): then services with the same
// hosts have the same table whatever their ports, and a client gets the same host from all of them, as SIP over UDP and
// TLS, FTP's control and data connections, or ports 80 and 443 need it.
func identitiesOf(s *lb.RoutedService) []netip.AddrPort {
	all := Endpoints(s)
	if !s.BySource() {
		return all
	}
	backends := make(map[netip.Addr]int, len(all))
	for _, b := range all {
		backends[b.Addr()]++
	}
	for i, b := range all {
		if backends[b.Addr()] == 1 {
			all[i] = netip.AddrPortFrom(b.Addr(), 0)
		}
	}
	return all
}

// fullShares returns the weights of all backends in the table of all backends. A backend of weight 0 gets the largest
// weight there: if weights are equal, as they mostly are, that is its weight when it accepts flows again.
func fullShares(s *lb.RoutedService) []uint32 {
	shares, heaviest := make([]uint32, len(s.Backends)), uint32(1)
	for i, b := range s.Backends {
		shares[i] = 1
		if s.Scheduler.Weighted() {
			shares[i] = uint32(b.Weight)
		}
		heaviest = max(heaviest, shares[i])
	}
	for i := range shares {
		if shares[i] == 0 {
			shares[i] = heaviest
		}
	}
	return shares
}

// sizeOf returns the number of slots of a service's table. Backends that accept no flows count, too: when one goes
// down, the others keep their slots.
func sizeOf(s *lb.RoutedService, size uint32) uint32 {
	switch {
	case s.Scheduler == lb.Failover:
		return 1
	case s.TableSize != 0:
		return s.TableSize
	case size != 0:
		return size
	}
	return lb.DefaultTableSize(len(s.Backends))
}

// Weight returns backend i's share of new flows.
func Weight(s *lb.RoutedService, i int) uint16 {
	switch {
	case !s.Admits(i):
		return 0
	case s.Scheduler.Weighted():
		return s.Backends[i].Weight
	}
	return 1
}

// same reports whether two recipes give the same table.
func (f *FullRecipe) same(o *FullRecipe) bool {
	return f.Size == o.Size && slices.Equal(f.All, o.All) && slices.Equal(f.Shares, o.Shares)
}

// makes reports whether t is the recipe's table.
func (r *Recipe) makes(t *Table) bool {
	return t != nil && t.Scheduler == r.Scheduler && t.FullRecipe.same(&r.FullRecipe) &&
		slices.Equal(t.Owners, r.Owners) && slices.Equal(t.Weights, r.Weights)
}

// Build builds the table; a table without members has no slots.
func (r Recipe) Build() (*Table, error) {
	t := &Table{Recipe: r}
	if len(t.Owners) > MaxMembers {
		return nil, fmt.Errorf(
			"%d backends take new flows, and a service can have %d that do: give some weight 0, or make two services of it", len(t.Owners), MaxMembers)
	}
	if len(t.Owners) == 0 {
		return t, nil
	}
	switch r.Scheduler {
	case lb.Failover:
		t.Slots = []uint16{0}
		return t, nil
	case lb.RoundRobin, lb.WeightedRoundRobin:
		t.Sequence = sequenceOf(t.Weights)
	}
	if err := t.fillSlots(); err != nil {
		return nil, err
	}
	return t, nil
}

// fillSlots derives the slots from the table of all backends, which it builds if there is none.
func (t *Table) fillSlots() error {
	if t.Full == nil {
		names := make([]string, len(t.All))
		for i, backend := range t.All {
			names[i] = backend.String()
		}
		full, err := maglev.New(t.Shares, names, t.Size)
		if err != nil {
			return err
		}
		t.Full = full
	}
	slots, err := t.Full.Without(t.Absent)
	if err != nil {
		return err
	}
	t.Slots = t.renumbered(slots)
	return nil
}

// renumbered converts the numbers in slots from those among all backends to those among members. It changes the slots
// in place, which are a copy of the full table's if a backend is absent.
func (t *Table) renumbered(slots []uint16) []uint16 {
	if len(t.Owners) == len(t.All) {
		return slots
	}
	numbers, next := make([]uint16, len(t.All)), uint16(0)
	for i, absent := range t.Absent {
		numbers[i] = next
		if !absent {
			next++
		}
	}
	for slot, backend := range slots {
		slots[slot] = numbers[backend]
	}
	return slots
}

// BuildAll builds tables in parallel. On an error it returns that of the first recipe that failed, with its number.
func BuildAll(recipes []Recipe) (tables []*Table, failed int, err error) {
	tables, errs := make([]*Table, len(recipes)), make([]error, len(recipes))
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(recipes)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(recipes)); i = next.Add(1) - 1 {
				tables[i], errs[i] = recipes[i].Build()
			}
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, i, err
		}
	}
	return tables, 0, nil
}

// Find returns the table of a recipe, if the view has it.
func (v View) Find(r *Recipe) *Table {
	for _, t := range []*Table{v.Table, v.Base, v.Last} {
		if r.makes(t) {
			return t
		}
	}
	return nil
}

// FindFull returns the table of all backends of a recipe, if the view has it.
func (v View) FindFull(r *FullRecipe) *maglev.Table {
	for _, t := range []*Table{v.Table, v.Base, v.Last} {
		if t != nil && t.Full != nil && t.same(r) {
			return t.Full
		}
	}
	return nil
}

// Endpoints lists the addresses of the backends, in their order.
func Endpoints(s *lb.RoutedService) []netip.AddrPort {
	list := make([]netip.AddrPort, len(s.Backends))
	for i, b := range s.Backends {
		list[i] = netip.AddrPortFrom(b.Address, b.Port)
	}
	return list
}
