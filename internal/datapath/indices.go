// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/lb"
)

// place is where a backend lives in the maps. It keeps its place for as long
// as it is configured, so that its counters and its flows stay its own.
type place struct {
	index uint32
	// generation tells this owner of the index from those before it.
	generation uint32
}

// places hands out indices of backends and ids of services.
type places struct {
	backends map[lb.BackendKey]place
	services map[lb.ServiceKey]uint32
	// generations[i] counts the owners that index i has had.
	generations []uint32
	// serviceIDs is the next id that no service has had. Ids are not given
	// twice: a flow's key holds one, and has no generation to tell owners apart.
	serviceIDs uint32
	// endpoints are those of the backends of mode NAT, and former those of
	// backends that have left lately.
	endpoints, former map[endpointKey]natEndpoint
}

// with returns the places for a state: those of p where a backend stays, free
// or new ones where it is new. p itself is not changed.
func (p places) with(state State) places {
	next := places{
		backends:    make(map[lb.BackendKey]place),
		services:    make(map[lb.ServiceKey]uint32),
		generations: append([]uint32(nil), p.generations...),
		serviceIDs:  p.serviceIDs,
	}
	next.former = p.formerAfter(state, time.Now())
	free := next.without(p.freeAfter(state))
	for _, service := range state.Services {
		next.addService(service.Key(), p)
		for _, backend := range service.Backends {
			key := service.BackendKey(backend)
			if old, ok := p.backends[key]; ok {
				next.backends[key] = old
				continue
			}
			var index uint32
			if len(free) > 0 {
				index, free = free[0], free[1:]
			} else {
				index = uint32(len(next.generations))
				next.generations = append(next.generations, 0)
			}
			next.generations[index]++
			next.backends[key] = place{index: index, generation: next.generations[index]}
		}
	}
	next.endpoints = endpointsOf(state, next.backends)
	next.disown(p)
	return next
}

// disown ends the flows of the backends that have left since old, and whose index
// is kept.
func (p *places) disown(old places) {
	before, owned, kept := old.owned(), p.owned(), p.kept()
	for index := range before {
		if kept[index] && !owned[index] {
			p.generations[index]++
		}
	}
}

// owned returns the indices that a backend has.
func (p *places) owned() map[uint32]bool {
	owned := make(map[uint32]bool, len(p.backends))
	for _, place := range p.backends {
		owned[place.index] = true
	}
	return owned
}

// kept returns the indices of backends that have left and whose replies are still
// counted under them.
func (p *places) kept() map[uint32]bool {
	kept := make(map[uint32]bool, len(p.former))
	for _, e := range p.former {
		kept[e.index] = true
	}
	return kept
}

// without leaves out the indices that are kept.
func (p *places) without(free []uint32) []uint32 {
	kept := p.kept()
	return slices.DeleteFunc(free, func(index uint32) bool { return kept[index] })
}

func (p *places) addService(key lb.ServiceKey, old places) {
	id, ok := old.services[key]
	if !ok {
		id = p.serviceIDs
		p.serviceIDs++
	}
	p.services[key] = id
}

// freeAfter lists, in order, the indices that no backend of state has.
func (p places) freeAfter(state State) []uint32 {
	left := maps.Clone(p.backends)
	for _, service := range state.Services {
		for _, backend := range service.Backends {
			delete(left, service.BackendKey(backend))
		}
	}
	used := make([]bool, len(p.generations))
	for key, place := range p.backends {
		if _, gone := left[key]; !gone {
			used[place.index] = true
		}
	}
	var free []uint32
	for index, inUse := range used {
		if !inUse {
			free = append(free, uint32(index))
		}
	}
	return free
}
