// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/maglev"
)

// maxMembers is how many backends of one service its table can name.
const maxMembers = int(xdpSlotBitsSLOT_MEMBER)

// recipe is what a table is made of.
type recipe struct {
	scheduler lb.Scheduler
	size      uint32
	// owners are the members: the backends that take new flows, in the order of the
	// service. They are known by their addresses: a table must not depend on the
	// names that a person gives, and is to tell two configurations' backends apart.
	owners  []netip.AddrPort
	weights []uint32
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
func recipeOf(s *Service, size uint32) recipe {
	r := recipe{scheduler: s.Scheduler, size: sizeOf(s, size)}
	for i, backend := range s.Backends {
		if s.member(i) {
			r.owners = append(r.owners, netip.AddrPortFrom(backend.Address, backend.Port))
			r.weights = append(r.weights, uint32(weightOf(s, i)))
		}
	}
	return r
}

// sizeOf returns how many slots a service's table has. Backends that take no flows
// count too: when one goes down, the others keep their slots.
func sizeOf(s *Service, size uint32) uint32 {
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
func weightOf(s *Service, i int) uint16 {
	switch b := s.Backends[i]; {
	case !b.TakesFlows():
		return 0
	case s.Scheduler.Weighted():
		return b.Weight
	}
	return 1
}

// makes says whether t is what the recipe makes.
func (r *recipe) makes(t *table) bool {
	return t != nil && t.scheduler == r.scheduler && t.size == r.size &&
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
	names := make([]string, len(t.owners))
	for i, owner := range t.owners {
		names[i] = owner.String()
	}
	var err error
	t.slots, err = maglev.Build(t.weights, names, t.size)
	if err != nil {
		return nil, err
	}
	return t, nil
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
