// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"maps"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// Saved returns the places after a change, for a snapshot.
func (r *PlaceChange) Saved() snapshot.Head {
	p := r.Places
	head := snapshot.Head{IDs: r.IDs, FreeIDs: r.freeIDs, Free: r.free, GroupIDs: p.groupIDs + uint32(len(r.newGroups)),
		LastList: p.lastList, Generations: make([]uint16, r.Indices)}
	copy(head.Generations, p.generations)
	for index, generation := range r.generations {
		head.Generations[index] = generation
	}
	quarantine := maps.Clone(p.quarantine)
	for _, key := range r.removedServices {
		quarantine[p.Services[key]] = 0
	}
	head.Quarantine = slices.Sorted(maps.Keys(quarantine))
	previous := maps.Clone(p.Previous)
	for _, key := range r.expired {
		delete(previous, key)
	}
	for key, e := range r.removedEndpoints {
		previous[key] = r.previousOf(e)
	}
	for key, e := range previous {
		head.Previous = append(head.Previous, snapshot.Endpoint{Address: key.address, Protocol: key.protocol,
			VIP: e.VIP, MSS: e.mss, Index: e.Index, Exceptions: e.exceptions, Until: e.Until})
	}
	return head
}

// Saved returns a service for a snapshot.
func (r *Record) Saved() *snapshot.Service {
	s := &snapshot.Service{Service: r.Service.Service, Backends: snapshot.BackendsOf(&r.Service),
		ID: r.ID, GroupID: r.Group, Exceptions: r.Exceptions,
		Clients: r.clients, Places: make([]snapshot.Place, len(r.Places)), Table: *r.View.Table.Saved(),
		Base: r.View.Base.Saved(), Last: r.View.Last.Saved(), Since: r.View.Since, Until: r.View.Until}
	for i, p := range r.Places {
		s.Places[i] = snapshot.Place{Index: p.Index, Generation: p.Generation}
	}
	if m := r.View.Moved; m != nil {
		s.Moved = &snapshot.Slots{Size: m.Size, Bits: m.Bits}
	}
	return s
}
