// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"maps"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// saved returns the places after a change.
func (r *placeChange) saved() snapshot.Head {
	p := r.places
	head := snapshot.Head{IDs: r.ids, FreeIDs: r.freeIDs, Free: r.free, GroupIDs: p.groupIDs + uint32(len(r.newGroups)),
		LastList: p.lastList, Generations: make([]uint16, r.indices)}
	copy(head.Generations, p.generations)
	for index, generation := range r.generations {
		head.Generations[index] = generation
	}
	quarantine := maps.Clone(p.quarantine)
	for _, key := range r.leftServices {
		quarantine[p.services[key]] = 0
	}
	head.Quarantine = slices.Sorted(maps.Keys(quarantine))
	previous := maps.Clone(p.previous)
	for _, key := range r.forgotten {
		delete(previous, key)
	}
	for key, e := range r.gone {
		previous[key] = r.previousOf(e)
	}
	for key, e := range previous {
		head.Former = append(head.Former, snapshot.Endpoint{Address: key.address, Protocol: key.protocol, VIP: e.vip,
			MSS: e.mss, Index: e.index, Exceptions: e.exceptions, Until: e.until})
	}
	return head
}

// saved returns a service as it is written down.
func (r *record) saved() *snapshot.Service {
	s := &snapshot.Service{Service: r.service.Service, ID: r.id, GroupID: r.group, Exceptions: r.exceptions,
		Clients: r.clients,
		Places: make([]snapshot.Place,
			len(r.places)), Table: *r.view.Table.Saved(), Base: r.view.Base.Saved(), Last: r.view.Last.Saved(),
		Since: r.view.Since, Until: r.view.Until}
	for i, p := range r.places {
		s.Places[i] = snapshot.Place{Index: p.index, Generation: p.generation}
	}
	if m := r.view.Moved; m != nil {
		s.Moved = &snapshot.Slots{Size: m.Size, Bits: m.Bits}
	}
	return s
}
