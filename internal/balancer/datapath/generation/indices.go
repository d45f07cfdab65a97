// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Places are the indices of backends and the ids of services.
type Places struct {
	Backends map[lb.BackendKey]Place
	Services map[lb.ServiceKey]uint32
	// generations[i] counts the owners that index i has had, and their leaving.
	generations []uint16
	// References[i] counts what uses index i, which is free at 0: its backend, and
	// endpoints of one that has left.
	References []uint8
	// free are the indices without a holder, the one that has been for longest first.
	free []uint32
	// IDs is the first id that no service has had. freeIDs may be given
	// again; those in quarantine may be, too, once the janitor has found no flow of
	// theirs in some rounds, which are counted: a flow's key holds an id, and there is
	// no generation to tell its owners apart.
	IDs        uint32
	freeIDs    []uint32
	quarantine map[uint32]int
	// Groups are those that services share their persistence in, by name, and groupIDs the
	// first id that none has had.
	Groups   map[string]group
	groupIDs uint32
	// Endpoints are those of the backends of mode NAT, and previous those of
	// backends that have left lately.
	Endpoints, Previous map[endpointKey]natEndpoint
	// pool are the numbers of full NAT's addresses.
	pool PoolNumbers
	// lastList is the number that a list of prefixes got last.
	lastList uint32
	// stale are indices that may have had unknown owners: see MarkStale.
	stale map[uint32]bool
}

// MarkStale notes that changes were made which no snapshot has: any of these indices may have had further owners. The
// next owner of one gets a generation far from theirs, so that their flows are not taken for its own.
func (p *Places) MarkStale(indices uint32) {
	p.stale = make(map[uint32]bool, indices)
	for index := range indices {
		p.stale[index] = true
	}
}

// staleOwners is more than the generations that an index goes through between two snapshots.
const staleOwners = 1 << 12

// ownedFrom returns the generation of the next owner of an index that had this one last.
func (p *Places) ownedFrom(index uint32, last uint16) uint16 {
	if p.stale[index] {
		last += staleOwners
	}
	return nextGeneration(last)
}

func newPlaces() *Places {
	return &Places{
		Backends: map[lb.BackendKey]Place{}, Services: map[lb.ServiceKey]uint32{}, quarantine: map[uint32]int{},
		Groups:    map[string]group{},
		Endpoints: map[endpointKey]natEndpoint{}, Previous: map[endpointKey]natEndpoint{},
	}
}

// nextGeneration returns the generation after g.
func nextGeneration(g uint16) uint16 {
	if g == 1<<16-1 {
		return 1
	}
	return g + 1
}

// PlaceChange is a change of the places, prepared first and made later, or never.
type PlaceChange struct {
	Places *Places
	now    time.Time
	// removed and arrived are backends that were removed and added.
	removed []removedBackend
	added   []addedBackend
	// removedServices and addedServices likewise.
	removedServices []lb.ServiceKey
	addedServices   []*Record
	// newGroups are the ids of groups that there were not before.
	newGroups map[string]uint32
	// endpoints are to be set, gone to be taken for those of backends that have left.
	endpoints        map[endpointKey]natEndpoint
	removedEndpoints map[endpointKey]natEndpoint
	// claimed are previous endpoints that a backend has now.
	claimed map[endpointKey]bool
	// expired are previous endpoints to be removed: too long gone, or a backend's again.
	expired []endpointKey
	// vacated are the indices that the endpoints of backends which left were the last
	// to hold.
	vacated []uint32
	// references and generations are those that differ from the ones of places, by index.
	references  map[uint32]int
	generations map[uint32]uint16
	// free and freeIDs are the indices and ids that remain free; Indices and IDs are the first ones that were never
	// given.
	free, freeIDs []uint32
	Indices, IDs  uint32
}

// removedBackend is a backend that leaves, with the place that it had.
type removedBackend struct {
	key lb.BackendKey
	Place
}

// addedBackend is a backend that comes: the at-th of its service.
type addedBackend struct {
	key lb.BackendKey
	of  *Record
	at  int
}

// NextOwners lists the indices that go from one owner to the next; those without an owner before are not among them.
func (r *PlaceChange) NextOwners() (indices []uint32) {
	for _, a := range r.added {
		if index := a.of.Places[a.at].Index; int(index) < len(r.Places.generations) {
			indices = append(indices, index)
		}
	}
	return indices
}

// IndicesEver is how many indices backends have had.
func (p *Places) IndicesEver() int { return len(p.generations) }

// beginChange begins a change.
func (p *Places) beginChange(now time.Time) *PlaceChange {
	return &PlaceChange{Places: p, now: now, endpoints: map[endpointKey]natEndpoint{},
		removedEndpoints: map[endpointKey]natEndpoint{}, claimed: map[endpointKey]bool{},
		references: map[uint32]int{}, generations: map[uint32]uint16{},
		newGroups: map[string]uint32{}, freeIDs: p.freeIDs, Indices: uint32(len(p.generations)), IDs: p.IDs}
}

// assignService assigns a service an id, and its backends places: those that they had in was,
// the same service before, which may be nil. New ones get theirs in assign.
func (r *PlaceChange) assignService(after, before *Record) {
	after.Places = make([]Place, len(after.Service.Backends))
	if before.keepsFlows(after) {
		after.ID = before.ID
	} else {
		after.ID = r.allocateID()
		r.addedServices = append(r.addedServices, after)
		if before != nil {
			r.removedServices = append(r.removedServices, before.Key)
		}
	}
	r.Places.numberLists(after, before)
	after.Group = r.groupOf(after.Service.Persistence.Group)
	kept := r.keepPlaces(after, before)
	for i, backend := range after.Service.Backends {
		if after.Places[i] == (Place{}) {
			r.added = append(r.added, addedBackend{after.Service.BackendKey(backend), after, i})
		}
	}
	if before != nil {
		r.removeBackends(before, kept)
	}
}

// keepsFlows reports whether the entries of a service's flows (nil for a new service) stay valid after its change. In
// mode fullnat a flow has a port of the pool where the others have the number of its SYN, and without a port it cannot
// go on.
func (r *Record) keepsFlows(after *Record) bool {
	return r != nil && (r.Service.Mode == lb.FullNAT) == (after.Service.Mode == lb.FullNAT)
}

// keepPlaces assigns the backends that stay their places, and says by their previous numbers which those are.
func (r *PlaceChange) keepPlaces(after, before *Record) (kept []bool) {
	if before == nil {
		return nil
	}
	kept = make([]bool, len(before.Service.Backends))
	for i, previousNumber := range tables.Renumbered(tables.Endpoints(&after.Service),
		tables.Endpoints(&before.Service)) {
		if previousNumber != tables.NoMember && !cannotContinue(&after.Service, &before.Service, i,
			int(previousNumber)) {
			after.Places[i], kept[previousNumber] = before.Places[previousNumber], true
		}
	}
	return kept
}

// removeBackends records the backends of a service that do not stay.
func (r *PlaceChange) removeBackends(before *Record, kept []bool) {
	for i, backend := range before.Service.Backends {
		if kept == nil || !kept[i] {
			r.removed = append(r.removed, removedBackend{before.Service.BackendKey(backend), before.Places[i]})
		}
	}
}

// removeService records that a service is removed.
func (r *PlaceChange) removeService(before *Record) {
	r.removedServices = append(r.removedServices, before.Key)
	r.removeBackends(before, nil)
}

func (r *PlaceChange) allocateID() (id uint32) {
	if len(r.freeIDs) > 0 {
		id, r.freeIDs = r.freeIDs[0], r.freeIDs[1:]
		return id
	}
	r.IDs++
	return r.IDs - 1
}

// assign frees the places of those that leave and gives places to those that come.
func (r *PlaceChange) assign() {
	r.free = slices.Clone(r.Places.free)
	r.holdPrevious()
	for _, d := range r.removed {
		r.generations[d.Index] = nextGeneration(d.Generation)
		r.releaseIndex(d.Index)
	}
	r.expirePrevious()
	for _, a := range r.added {
		var index uint32
		if len(r.free) > 0 {
			index, r.free = r.free[0], r.free[1:]
		} else {
			index = r.Indices
			r.Indices++
		}
		r.retainIndex(index)
		p := Place{index, r.Places.ownedFrom(index, r.generation(index))}
		r.generations[index] = p.Generation
		a.of.Places[a.at] = p
	}
}

func (r *PlaceChange) generation(index uint32) uint16 {
	if g, changed := r.generations[index]; changed || int(index) >= len(r.Places.generations) {
		return g
	}
	return r.Places.generations[index]
}

func (r *PlaceChange) holdersOf(index uint32) int {
	if n, changed := r.references[index]; changed || int(index) >= len(r.Places.References) {
		return n
	}
	return int(r.Places.References[index])
}

func (r *PlaceChange) retainIndex(index uint32) { r.references[index] = r.holdersOf(index) + 1 }

// releaseIndex drops one reference to an index, and reports whether that was the last.
func (r *PlaceChange) releaseIndex(index uint32) (free bool) {
	n := r.holdersOf(index) - 1
	r.references[index] = n
	if n == 0 {
		r.free = append(r.free, index)
	}
	return n == 0
}

// commit makes the change.
func (r *PlaceChange) commit() {
	p := r.Places
	for _, d := range r.removed {
		delete(p.Backends, d.key)
	}
	for _, key := range r.removedServices {
		p.quarantine[p.Services[key]] = 0
		delete(p.Services, key)
	}
	grow := int(r.Indices) - len(p.generations)
	p.generations = append(p.generations, make([]uint16, grow)...)
	p.References = append(p.References, make([]uint8, grow)...)
	for index, generation := range r.generations {
		p.generations[index] = generation
	}
	for index, n := range r.references {
		p.References[index] = uint8(n)
	}
	p.free, p.freeIDs, p.IDs = r.free, r.freeIDs, r.IDs
	for _, a := range r.added {
		delete(p.stale, a.of.Places[a.at].Index)
		p.Backends[a.key] = a.of.Places[a.at]
	}
	for _, s := range r.addedServices {
		p.Services[s.Key] = s.ID
	}
	r.commitEndpoints()
}

// IDRounds is after how many rounds of the janitor without a flow of a service its id may be given again.
const IDRounds = 2

// FreeIDs notes a full round of the janitor, which found so many flows by id.
func (p *Places) FreeIDs(flowsOf map[uint32]uint64) {
	var released []uint32
	for id, rounds := range p.quarantine {
		switch {
		case flowsOf[id] > 0:
			p.quarantine[id] = 0
		case rounds+1 < IDRounds:
			p.quarantine[id]++
		default:
			delete(p.quarantine, id)
			released = append(released, id)
		}
	}
	slices.Sort(released)
	p.freeIDs = append(slices.Clone(p.freeIDs), released...)
}
