// SPDX-License-Identifier: Apache-2.0

package datapath

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

// maxMembers is how many backends of one service its table can name.
const maxMembers = int(objects.XDPSlotBitsSLOT_MEMBER)

// quickTable is up to how many slots a table is filled anew for each change, in a
// millisecond or few. Larger ones are made of the table of all backends, which is filled
// once: then a change takes little more than to copy it. It is not done for all, for when a
// backend is taken out of the configuration the table of all is another one, and what it
// had left to others moves once more.
const quickTable = 1 << 17

// fullRecipe is what the table is made of that a service's is made of.
type fullRecipe struct {
	size uint32
	// all are, in a large table, all backends, and otherwise those that take new flows. The
	// table knows them by address and not by configured name, so that balancers whose
	// configurations name backends differently agree: see identities.
	all    []netip.AddrPort
	shares []uint32
}

// recipe is what a table is made of.
type recipe struct {
	fullRecipe
	// full is the table of all, where it has been made already.
	full      *maglev.Table
	scheduler lb.Scheduler
	// owners are the members: the backends that take new flows, in the order of the service.
	owners  []netip.AddrPort
	weights []uint32
	// absent says which of all are not among them.
	absent []bool
}

// table is a service's slots over its members, numbered from 0, and the sequence of
// their turns, if the scheduler has one. It is not changed once it is built.
type table struct {
	recipe
	slots    []uint16
	sequence []uint16
}

// recipeOf says of what a service's table is to be made. Size is that of services
// that do not say, 0 for one by the number of backends.
func recipeOf(s *lb.RoutedService, size uint32) recipe {
	n := len(s.Backends)
	r := recipe{scheduler: s.Scheduler, absent: make([]bool, n), owners: make([]netip.AddrPort, 0, n), weights: make([]uint32, 0, n)}
	for i, b := range s.Backends {
		if r.absent[i] = !s.TakesFlows(i); !r.absent[i] {
			r.owners = append(r.owners, netip.AddrPortFrom(b.Address, b.Port))
			r.weights = append(r.weights, uint32(weightOf(s, i)))
		}
	}
	r.size = sizeOf(s, size)
	all := identitiesOf(s)
	if r.size > quickTable && len(s.Backends) <= maxMembers {
		r.all, r.shares = all, fullShares(s)
		return r
	}
	r.all, r.shares = make([]netip.AddrPort, 0, len(r.owners)), r.weights
	for i, absent := range r.absent {
		if !absent {
			r.all = append(r.all, all[i])
		}
	}
	r.absent = make([]bool, len(r.owners))
	return r
}

// identities are what a table knows the backends by, which alone decides on their slots.
// Where flows go by the client's address and port, that is a backend's address and port.
// Where they go by the client's address alone, the port is left out (0) of an address that
// only one backend has: then services with the same hosts have the same table whatever
// their ports, and a client gets the same host from all of them, as SIP over UDP and TLS,
// FTP's control and data connections, or 80 and 443 need it.
func identitiesOf(s *lb.RoutedService) []netip.AddrPort {
	all := endpointsOf(s)
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

// sizeOf returns how many slots a service's table has. Backends that take no flows
// count too: when one goes down, the others keep their slots.
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

// weightOf returns backend i's share of new flows.
func weightOf(s *lb.RoutedService, i int) uint16 {
	switch b := s.Backends[i]; {
	case !b.TakesFlows():
		return 0
	case s.Scheduler.Weighted():
		return b.Weight
	}
	return 1
}

// same says whether two make the same table.
func (f *fullRecipe) same(o *fullRecipe) bool {
	return f.size == o.size && slices.Equal(f.all, o.all) && slices.Equal(f.shares, o.shares)
}

// makes says whether t is what the recipe makes.
func (r *recipe) makes(t *table) bool {
	return t != nil && t.scheduler == r.scheduler && t.fullRecipe.same(&r.fullRecipe) &&
		slices.Equal(t.owners, r.owners) && slices.Equal(t.weights, r.weights)
}

// build makes the table; one without members has no slots.
func (r recipe) build() (*table, error) {
	t := &table{recipe: r}
	if len(t.owners) > maxMembers {
		return nil, fmt.Errorf("%d backends take new flows, and a service can have %d that do: give some weight 0, or make two services of it", len(t.owners), maxMembers)
	}
	if len(t.owners) == 0 {
		return t, nil
	}
	switch r.scheduler {
	case lb.Failover:
		t.slots = []uint16{0}
		return t, nil
	case lb.RoundRobin, lb.WeightedRoundRobin:
		t.sequence = sequenceOf(t.weights)
	}
	if err := t.fillSlots(); err != nil {
		return nil, err
	}
	return t, nil
}

// fillSlots takes the slots from the table of all backends, which it makes if there is none.
func (t *table) fillSlots() error {
	if t.full == nil {
		names := make([]string, len(t.all))
		for i, backend := range t.all {
			names[i] = backend.String()
		}
		full, err := maglev.New(t.shares, names, t.size)
		if err != nil {
			return err
		}
		t.full = full
	}
	slots, err := t.full.Without(t.absent)
	if err != nil {
		return err
	}
	t.slots = t.numbered(slots)
	return nil
}

// numbered returns slots that say which of all backends they lead to, as slots that say
// which member: the same ones, changed, which are not the full table's where a backend
// is absent.
func (t *table) numbered(slots []uint16) []uint16 {
	if len(t.owners) == len(t.all) {
		return slots
	}
	numbers, next := make([]uint16, len(t.all)), uint16(0)
	for i, absent := range t.absent {
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

// buildAll makes tables, several at a time. On an error it returns that of the
// first recipe that cannot be made, with its number.
func buildAll(recipes []recipe) (made []*table, failed int, err error) {
	made, errs := make([]*table, len(recipes)), make([]error, len(recipes))
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(recipes)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(recipes)); i = next.Add(1) - 1 {
				made[i], errs[i] = recipes[i].build()
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
