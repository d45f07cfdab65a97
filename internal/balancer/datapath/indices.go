// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// place is where a backend lives in the maps. It keeps its place for as long
// as it is configured, so that its counters and its flows stay its own.
type place struct {
	index uint32
	// generation tells this owner of the index from those before it. It is not 0.
	generation uint16
}

// places are the indices of backends and the ids of services.
type places struct {
	backends map[lb.BackendKey]place
	services map[lb.ServiceKey]uint32
	// generations[i] counts the owners that index i has had, and their leaving.
	generations []uint16
	// holders[i] is for how many reasons index i is not free: its backend, and
	// endpoints of one that has left.
	holders []uint8
	// free are the indices without a holder, the one that has been for longest first.
	free []uint32
	// ids is the first id that no service has had. freeIDs may be given
	// again; those in quarantine may be, too, once the janitor has found no flow of
	// theirs in some rounds, which are counted: a flow's key holds an id, and there is
	// no generation to tell its owners apart.
	ids        uint32
	freeIDs    []uint32
	quarantine map[uint32]int
	// groups are those that services share their persistence in, by name, and groupIDs the
	// first id that none has had.
	groups   map[string]group
	groupIDs uint32
	// endpoints are those of the backends of mode NAT, and previous those of
	// backends that have left lately.
	endpoints, previous map[endpointKey]natEndpoint
	// pool are the numbers of full NAT's addresses.
	pool poolNumbers
	// lastList is the number that a list of prefixes got last.
	lastList uint32
	// stale are indices that may have had owners which nothing here knows: see markStale.
	stale map[uint32]bool
}

// markStale notes that changes were made which nothing has written down: any of these indices may have had further
// owners. The next owner of one gets a generation far from theirs, so that their flows are not taken for its own.
func (p *places) markStale(indices uint32) {
	p.stale = make(map[uint32]bool, indices)
	for index := range indices {
		p.stale[index] = true
	}
}

// staleOwners is more than the generations that an index goes through between two snapshots.
const staleOwners = 1 << 12

// ownedFrom returns the generation of the next owner of an index that had this one last.
func (p *places) ownedFrom(index uint32, last uint16) uint16 {
	if p.stale[index] {
		last += staleOwners
	}
	return nextGeneration(last)
}

func newPlaces() *places {
	return &places{
		backends: map[lb.BackendKey]place{}, services: map[lb.ServiceKey]uint32{}, quarantine: map[uint32]int{},
		groups:    map[string]group{},
		endpoints: map[endpointKey]natEndpoint{}, previous: map[endpointKey]natEndpoint{},
	}
}

// nextGeneration returns the one after g: of an owner, or of none.
func nextGeneration(g uint16) uint16 {
	if g == 1<<16-1 {
		return 1
	}
	return g + 1
}

// placeChange is a change of the places, put together first and made later, or never.
type placeChange struct {
	places *places
	now    time.Time
	// left and arrived are backends that go and come.
	left    []departing
	arrived []arriving
	// leftServices and newServices likewise.
	leftServices []lb.ServiceKey
	newServices  []*record
	// newGroups are the ids of groups that there were not before.
	newGroups map[string]uint32
	// endpoints are to be set, gone to be taken for those of backends that have left.
	endpoints map[endpointKey]natEndpoint
	gone      map[endpointKey]natEndpoint
	// claimed are previous endpoints that a backend has now.
	claimed map[endpointKey]bool
	// forgotten are previous endpoints that are no more: too long ago, or a backend has them.
	forgotten []endpointKey
	// vacated are the indices that the endpoints of backends which left were the last
	// to hold.
	vacated []uint32
	// holders and generations are what differs from those of places, by index.
	holders     map[uint32]int
	generations map[uint32]uint16
	// free and freeIDs are what is left of those, and how far the others go.
	free, freeIDs []uint32
	indices, ids  uint32
}

// departing is a backend that leaves, with the place that it had.
type departing struct {
	key lb.BackendKey
	place
}

// arriving is a backend that comes: the at-th of its service.
type arriving struct {
	key lb.BackendKey
	of  *record
	at  int
}

// nextOwners lists the indices that go from one owner to the next; those without an owner before are not among them.
func (r *placeChange) nextOwners() (indices []uint32) {
	for _, a := range r.arrived {
		if index := a.of.places[a.at].index; int(index) < len(r.places.generations) {
			indices = append(indices, index)
		}
	}
	return indices
}

// indicesEver is how many indices backends have had.
func (p *places) indicesEver() int { return len(p.generations) }

// beginChange begins a change.
func (p *places) beginChange(now time.Time) *placeChange {
	return &placeChange{places: p, now: now, endpoints: map[endpointKey]natEndpoint{},
		gone: map[endpointKey]natEndpoint{}, claimed: map[endpointKey]bool{},
		holders: map[uint32]int{}, generations: map[uint32]uint16{},
		newGroups: map[string]uint32{}, freeIDs: p.freeIDs, indices: uint32(len(p.generations)), ids: p.ids}
}

// service gives a service an id, and its backends places: those that they had in was,
// the same service before, which may be nil. New ones get theirs in assign.
func (r *placeChange) service(is, was *record) {
	is.places = make([]place, len(is.service.Backends))
	if was.keepsFlows(is) {
		is.id = was.id
	} else {
		is.id = r.takeID()
		r.newServices = append(r.newServices, is)
		if was != nil {
			r.leftServices = append(r.leftServices, was.key)
		}
	}
	r.places.numberLists(is, was)
	is.group = r.groupOf(is.service.Persistence.Group)
	stays := r.keep(is, was)
	for i, backend := range is.service.Backends {
		if is.places[i] == (place{}) {
			r.arrived = append(r.arrived, arriving{is.service.BackendKey(backend), is, i})
		}
	}
	if was != nil {
		r.leave(was, stays)
	}
}

// keepsFlows says whether what is remembered of a service's flows, nil for a new one, holds
// for what it becomes. In mode fullnat a flow has a port of the pool where the others have
// the number of its SYN, and without a port it cannot go on.
func (r *record) keepsFlows(is *record) bool {
	return r != nil && (r.service.Mode == lb.FullNAT) == (is.service.Mode == lb.FullNAT)
}

// keep gives the backends that were there the places that they had, and says which
// those are by their numbers before.
func (r *placeChange) keep(is, was *record) (stays []bool) {
	if was == nil {
		return nil
	}
	stays = make([]bool, len(was.service.Backends))
	for i, before := range tables.Renumbered(tables.Endpoints(&is.service), tables.Endpoints(&was.service)) {
		if before != tables.NoMember && !movesAway(&is.service, &was.service, i, int(before)) {
			is.places[i], stays[before] = was.places[before], true
		}
	}
	return stays
}

// leave notes the backends of a service that do not stay.
func (r *placeChange) leave(was *record, stays []bool) {
	for i, backend := range was.service.Backends {
		if stays == nil || !stays[i] {
			r.left = append(r.left, departing{was.service.BackendKey(backend), was.places[i]})
		}
	}
}

// leaveService notes that a service goes.
func (r *placeChange) leaveService(was *record) {
	r.leftServices = append(r.leftServices, was.key)
	r.leave(was, nil)
}

func (r *placeChange) takeID() (id uint32) {
	if len(r.freeIDs) > 0 {
		id, r.freeIDs = r.freeIDs[0], r.freeIDs[1:]
		return id
	}
	r.ids++
	return r.ids - 1
}

// assign frees the places of those that leave and gives places to those that come.
func (r *placeChange) assign() {
	r.free = slices.Clone(r.places.free)
	r.keepPrevious()
	for _, d := range r.left {
		r.generations[d.index] = nextGeneration(d.generation)
		r.release(d.index)
	}
	r.forgetPrevious()
	for _, a := range r.arrived {
		var index uint32
		if len(r.free) > 0 {
			index, r.free = r.free[0], r.free[1:]
		} else {
			index = r.indices
			r.indices++
		}
		r.hold(index)
		p := place{index, r.places.ownedFrom(index, r.generation(index))}
		r.generations[index] = p.generation
		a.of.places[a.at] = p
	}
}

func (r *placeChange) generation(index uint32) uint16 {
	if g, changed := r.generations[index]; changed || int(index) >= len(r.places.generations) {
		return g
	}
	return r.places.generations[index]
}

func (r *placeChange) held(index uint32) int {
	if n, changed := r.holders[index]; changed || int(index) >= len(r.places.holders) {
		return n
	}
	return int(r.places.holders[index])
}

func (r *placeChange) hold(index uint32) { r.holders[index] = r.held(index) + 1 }

// release gives up one hold of an index, and says whether that was the last.
func (r *placeChange) release(index uint32) (free bool) {
	n := r.held(index) - 1
	r.holders[index] = n
	if n == 0 {
		r.free = append(r.free, index)
	}
	return n == 0
}

// commit makes the change.
func (r *placeChange) commit() {
	p := r.places
	for _, d := range r.left {
		delete(p.backends, d.key)
	}
	for _, key := range r.leftServices {
		p.quarantine[p.services[key]] = 0
		delete(p.services, key)
	}
	grow := int(r.indices) - len(p.generations)
	p.generations = append(p.generations, make([]uint16, grow)...)
	p.holders = append(p.holders, make([]uint8, grow)...)
	for index, generation := range r.generations {
		p.generations[index] = generation
	}
	for index, n := range r.holders {
		p.holders[index] = uint8(n)
	}
	p.free, p.freeIDs, p.ids = r.free, r.freeIDs, r.ids
	for _, a := range r.arrived {
		delete(p.stale, a.of.places[a.at].index)
		p.backends[a.key] = a.of.places[a.at]
	}
	for _, s := range r.newServices {
		p.services[s.key] = s.id
	}
	r.commitEndpoints()
}

// idRounds is how many rounds of the janitor that found no flow of a service let its
// id be given again.
const idRounds = 2

// releaseIDs notes a full round of the janitor, which found so many flows by id.
func (p *places) releaseIDs(flowsOf map[uint32]uint64) {
	var released []uint32
	for id, rounds := range p.quarantine {
		switch {
		case flowsOf[id] > 0:
			p.quarantine[id] = 0
		case rounds+1 < idRounds:
			p.quarantine[id]++
		default:
			delete(p.quarantine, id)
			released = append(released, id)
		}
	}
	slices.Sort(released)
	p.freeIDs = append(slices.Clone(p.freeIDs), released...)
}
