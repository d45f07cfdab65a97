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

// MaxMembers is the number of backends of one service that its table can name.
const MaxMembers = int(objects.XDPSlotBitsSLOT_MEMBER)

// smallTable is the largest number of slots of a table that is filled again for each change, in a few milliseconds.
// Larger ones are derived from the table of all backends, which is filled once: then a change takes little more than
// copying it. Smaller ones are not: when a backend is taken out of the configuration the table of all changes, and
// slots that the backend had left to others move once more.
const smallTable = 1 << 17

// FullRecipe has the inputs of the table of all backends, from which a service's is derived.
type FullRecipe struct {
	Size uint32
	// All are, in a large table, all backends, and otherwise those that take new flows. The
	// table knows them by address and not by configured name, so that balancers whose
	// configurations name backends differently agree: see identities.
	All    []netip.AddrPort
	Shares []uint32
}

// Recipe has the inputs of a service's table.
type Recipe struct {
	FullRecipe
	// Full is the table of all, where it has been made already.
	Full      *maglev.Table
	Scheduler lb.Scheduler
	// Owners are the members: the backends that take new flows, in the order of the service.
	Owners  []netip.AddrPort
	Weights []uint32
	// Absent[i] says that All[i] is not among them.
	Absent []bool
}

// Table is a service's slots over its members, numbered from 0, and the sequence of
// their turns, if the scheduler has one. It is not changed once it is built.
type Table struct {
	Recipe
	Slots    []uint16
	Sequence []uint16
}

// RecipeOf returns the inputs of a service's table. Size is that of services that name none, 0 for one by the number of
// backends.
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

// identitiesOf returns the identities by which a table knows the backends; they alone decide on their slots. Where
// flows go by the client's address and port, that is a backend's address and port. Where they go by the client's
// address alone, the port is left out (0) of an address that only one backend has: then services with the same hosts
// have the same table whatever their ports, and a client gets the same host from all of them, as SIP over UDP and TLS,
// FTP's control and data connections, or 80 and 443 need it.
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

// fullShares returns the weights of all backends in the table of all. One of weight 0 has
// the heaviest's there: where weights are equal, as they mostly are, it has the same when
// it takes flows.
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

// sizeOf returns the number of slots of a service's table. Backends that take no flows count too: when one goes down,
// the others keep their slots.
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

// same reports whether two make the same table.
func (f *FullRecipe) same(o *FullRecipe) bool {
	return f.Size == o.Size && slices.Equal(f.All, o.All) && slices.Equal(f.Shares, o.Shares)
}

// makes reports whether t is the recipe's table.
func (r *Recipe) makes(t *Table) bool {
	return t != nil && t.Scheduler == r.Scheduler && t.FullRecipe.same(&r.FullRecipe) &&
		slices.Equal(t.Owners, r.Owners) && slices.Equal(t.Weights, r.Weights)
}

// Build makes the table; one without members has no slots.
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

// fillSlots takes the slots from the table of all backends, which it makes if there is none.
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

// renumbered converts slots with numbers among all backends into slots with numbers of members. It changes them in
// place; they are not the full table's own slots where a backend is absent.
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

// BuildAll makes tables, several at a time. On an error it returns that of the
// first recipe that cannot be made, with its number.
func BuildAll(recipes []Recipe) (made []*Table, failed int, err error) {
	made, errs := make([]*Table, len(recipes)), make([]error, len(recipes))
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(recipes)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(recipes)); i = next.Add(1) - 1 {
				made[i], errs[i] = recipes[i].Build()
			}
		})
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, i, err
		}
	}
	return made, 0, nil
}

// Find returns the table that a recipe makes, if the view has it.
func (v View) Find(r *Recipe) *Table {
	for _, t := range []*Table{v.Table, v.Base, v.Last} {
		if r.makes(t) {
			return t
		}
	}
	return nil
}

// FindFull returns the table of all backends that a recipe makes, if the view has it.
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
