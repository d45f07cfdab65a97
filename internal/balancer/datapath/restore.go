// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// restore makes a register of what a process before has written down. Its services have no
// paths: to the next change all of them differ.
func restore(s *snapshot.Snapshot) (*register, error) {
	r := newRegister()
	r.places = restorePlaces(&s.Head)
	r.flowBackends = make([]flowtable.Backend, len(s.Generations))
	r.flowServices = make([]flowtable.Service, s.IDs)
	tables, err := restoreTables(s)
	if err != nil {
		return nil, err
	}
	for i := range s.Services {
		is := restoreRecord(&s.Services[i], tables)
		r.records, r.byKey[is.key] = append(r.records, is), is
		r.state.Services = append(r.state.Services, is.service)
		r.take(is, s.Services[i].GroupID)
	}
	for _, e := range s.Former {
		r.places.previous[endpointKey{e.Address, e.Protocol}] = natEndpoint{vip: e.VIP, mss: e.MSS, index: e.Index,
			service: uint32(objects.XDPNoServiceNO_SERVICE), exceptions: e.Exceptions, until: e.Until}
		r.places.holders[e.Index]++
	}
	return r, nil
}

func restorePlaces(h *snapshot.Head) *places {
	p := newPlaces()
	p.generations, p.holders = h.Generations, make([]uint8, len(h.Generations))
	p.free, p.ids, p.freeIDs = h.Free, h.IDs, h.FreeIDs
	for _, id := range h.Quarantine {
		p.quarantine[id] = 0
	}
	p.groupIDs, p.lastList, p.pool = h.GroupIDs, h.LastList, poolNumbersOf(h.Pool)
	return p
}

// restoreTables builds the tables of all services.
func restoreTables(s *snapshot.Snapshot) (map[*snapshot.Recipe]*tables.Table, error) {
	var saved []*snapshot.Recipe
	var recipes []tables.Recipe
	for i := range s.Services {
		service := &s.Services[i]
		for _, r := range []*snapshot.Recipe{&service.Table, service.Base, service.Last} {
			if r != nil {
				saved, recipes = append(saved, r), append(recipes, tables.RestoreRecipe(r))
			}
		}
	}
	made, failed, err := tables.BuildAll(recipes)
	if err != nil {
		return nil, fmt.Errorf("%w: a table of %d slots: %v", snapshot.ErrDamaged, recipes[failed].Size, err)
	}
	tables := make(map[*snapshot.Recipe]*tables.Table, len(made))
	for i, t := range made {
		tables[saved[i]] = t
	}
	return tables, nil
}

func restoreRecord(s *snapshot.Service, built map[*snapshot.Recipe]*tables.Table) *record {
	r := &record{key: s.Key(), service: lb.RoutedService{Service: s.Service}, id: s.ID, group: s.GroupID,
		exceptions: s.Exceptions, clients: s.Clients,
		places: make([]place, len(s.Places)), remembers: s.Tracked(), digests: new(digests),
		view: tables.View{Table: built[&s.Table], Base: built[s.Base], Last: built[s.Last], Since: s.Since,
			Until: s.Until}}
	for i, p := range s.Places {
		r.places[i] = place{p.Index, p.Generation}
	}
	if s.Moved != nil {
		r.view.Moved = &tables.SlotSet{Size: s.Moved.Size, Bits: s.Moved.Bits}
		r.view.Moved.Recount()
	}
	return r
}

// take notes the places of a service.
func (r *register) take(is *record, groupID uint32) {
	p, s := r.places, &is.service
	p.services[is.key] = is.id
	r.flowServices[is.id] = is.flows()
	for i, at := range is.places {
		p.backends[s.BackendKey(s.Backends[i])] = at
		p.holders[at.index]++
		r.flowBackends[at.index] = flowtable.Backend{Generation: at.generation, Service: is.id,
			Weight: tables.Weight(s, i)}
	}
	is.endpointsOf(func(key endpointKey, e natEndpoint) { p.endpoints[key] = e })
	if name := s.Persistence.Group; name != "" {
		g := p.groups[name]
		p.groups[name] = group{id: groupID, members: g.members + 1,
			timeout: flowtable.Milliseconds(s.Persistence.Timeout)}
	}
}
