// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/maglev"
)

// table is a service's slots over its members: the backends that take new
// flows, numbered from 0 in the order of the service.
type table struct {
	slots []uint16
	// What it was built of, to tell whether it can serve again: building is
	// most of what a change costs.
	scheduler lb.Scheduler
	size      uint32
	names     []string
	weights   []uint32
}

// tables holds the table of each service.
type tables map[lb.ServiceKey]table

// with returns the tables of a state. Those that t has already are taken over.
func (t tables) with(state State, size uint32) (tables, error) {
	next := make(tables, len(state.Services))
	for _, service := range state.Services {
		want := describe(service, size)
		if have := t[service.Key()]; want.builtAs(have) {
			next[service.Key()] = have
			continue
		}
		if err := want.build(); err != nil {
			return nil, fmt.Errorf("service %s: %v", service.Name, err)
		}
		next[service.Key()] = want
	}
	return next, nil
}

// describe says of what a service's table is to be built.
func describe(service Service, size uint32) table {
	t := table{scheduler: service.Scheduler, size: size}
	for i, backend := range service.Backends {
		if service.member(i) {
			// By address: a table must not depend on the names that a person gives.
			t.names = append(t.names, netip.AddrPortFrom(backend.Address, backend.Port).String())
			t.weights = append(t.weights, uint32(backend.Weight))
		}
	}
	return t
}

func (t table) builtAs(o table) bool {
	return o.slots != nil && t.scheduler == o.scheduler && t.size == o.size &&
		slices.Equal(t.names, o.names) && slices.Equal(t.weights, o.weights)
}

// build fills the slots; a service without members has none.
func (t *table) build() error {
	if len(t.names) > maxMembers {
		return fmt.Errorf("%d backends take new flows, and a table can name %d", len(t.names), maxMembers)
	}
	t.slots = []uint16{}
	if len(t.names) == 0 {
		return nil
	}
	if t.scheduler == lb.RoundRobin {
		for member := range t.names {
			t.slots = append(t.slots, uint16(member))
		}
		return nil
	}
	slots, err := maglev.Build(t.weights, t.names, t.size)
	for _, member := range slots {
		t.slots = append(t.slots, uint16(member))
	}
	return err
}
