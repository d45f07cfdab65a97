// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
)

// Restore returns the register of an earlier process's snapshot. Its services have no paths, so that all of them differ
// in the next change.
func Restore(s *snapshot.Snapshot) (*Register, error) {
	r := NewRegister()
	r.Places = restorePlaces(&s.Head)
	r.FlowBackends = make([]flowtable.Backend, len(s.Generations))
	r.FlowServices = make([]flowtable.Service, s.IDs)
	tables, err := restoreTables(s)
	if err != nil {
		return nil, err
	}
	for i := range s.Services {
		after := restoreRecord(&s.Services[i], tables)
		r.Records, r.ByKey[after.Key] = append(r.Records, after), after
		r.State.Services = append(r.State.Services, after.Service)
		r.notePlaces(after, s.Services[i].GroupID)
	}
	for _, e := range s.Previous {
		r.Places.Previous[endpointKey{e.Address, e.Protocol}] = natEndpoint{VIP: e.VIP, mss: e.MSS, Index: e.Index,
			service: uint32(objects.XDPNoServiceNO_SERVICE), exceptions: e.Exceptions, Until: e.Until}
		r.Places.References[e.Index]++
	}
	return r, nil
}

func restorePlaces(h *snapshot.Head) *Places {
	p := newPlaces()
	p.generations, p.References = h.Generations, make([]uint8, len(h.Generations))
	p.free, p.IDs, p.freeIDs = h.Free, h.IDs, h.FreeIDs
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
	built, failed, err := tables.BuildAll(recipes)
	if err != nil {
		return nil, fmt.Errorf("%w: a table of %d slots: %v", snapshot.ErrDamaged, recipes[failed].Size, err)
	}
	tables := make(map[*snapshot.Recipe]*tables.Table, len(built))
	for i, t := range built {
		tables[saved[i]] = t
	}
	return tables, nil
}

func restoreRecord(s *snapshot.Service, built map[*snapshot.Recipe]*tables.Table) *Record {
	service := s.Unrouted()
	r := &Record{Key: s.Key(), Service: service, ID: s.ID, Group: s.GroupID,
		Exceptions: s.Exceptions, clients: s.Clients,
		Places: make([]Place, len(s.Places)), Remembers: service.Tracked(), digests: new(digests),
		View: tables.View{Table: built[&s.Table], Base: built[s.Base], Last: built[s.Last], Since: s.Since,
			Until: s.Until}}
	for i, p := range s.Places {
		r.Places[i] = Place{p.Index, p.Generation}
	}
	if s.Moved != nil {
		r.View.Moved = &tables.SlotSet{Size: s.Moved.Size, Bits: s.Moved.Bits}
		r.View.Moved.Recount()
	}
	return r
}

// notePlaces records the places of a service.
func (r *Register) notePlaces(after *Record, groupID uint32) {
	p, s := r.Places, &after.Service
	p.Services[after.Key] = after.ID
	r.FlowServices[after.ID] = after.flows()
	for i, at := range after.Places {
		p.Backends[s.BackendKey(s.Backends[i])] = at
		p.References[at.Index]++
		r.FlowBackends[at.Index] = flowtable.Backend{Generation: at.Generation, Service: after.ID,
			Weight: tables.Weight(s, i)}
	}
	after.endpointsOf(func(key endpointKey, e natEndpoint) { p.Endpoints[key] = e })
	if name := s.Persistence.Group; name != "" {
		g := p.Groups[name]
		p.Groups[name] = group{ID: groupID, Members: g.Members + 1,
			timeout: flowtable.Milliseconds(s.Persistence.Timeout)}
	}
}
