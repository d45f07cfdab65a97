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
	// generations[i] counts the owners of index i, and their removals.
	generations []uint16
	// References[i] counts the users of index i, which is free at 0: its backend, and endpoints of a removed one.
	References []uint8
	// free are the indices without a user, the longest free one first.
	free []uint32
	// IDs is the first id that no service has had. freeIDs may be reused. Ids in quarantine may be once the janitor has
	// found no flow and no socket of theirs in IDRounds rounds, which the value counts: a flow's key has an id, and no
	// generation that distinguishes its owners.
	IDs        uint32
	freeIDs    []uint32
	quarantine map[uint32]int
	// Groups are the groups of services that share persistence, by name, and groupIDs is the first id that no group has
	// had.
	Groups   map[string]group
	groupIDs uint32
	// Endpoints are the endpoints of the backends of mode NAT, and Previous those of recently removed ones.
	Endpoints, Previous map[endpointKey]natEndpoint
	// pool has the numbers of full NAT's addresses.
	pool PoolNumbers
	// lastList is the last number that was given to a list of prefixes.
	lastList uint32
	// stale are indices that may have had unknown owners: see MarkStale.
	stale map[uint32]bool
}

// MarkStale records that changes were made which no snapshot has: each of these indices may have had further owners.
// The next owner of an index gets a generation far from theirs, so that their flows are not taken for its own.
func (p *Places) MarkStale(indices uint32) {
	p.stale = make(map[uint32]bool, indices)
	for index := range indices {
		p.stale[index] = true
	}
}

// staleOwners is more than the number of generations of an index between two snapshots.
const staleOwners = 1 << 12

// ownedFrom returns the generation of the next owner of an index, after the last one.
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

// PlaceChange is a prepared change of the places, which commit makes.
type PlaceChange struct {
	Places *Places
	now    time.Time
	// countSockets is Register.SocketsAt.
	countSockets func() map[uint32]uint32
	// removed and added are the backends that the change removes and adds.
	removed []removedBackend
	added   []addedBackend
	// removedServices and addedServices likewise.
	removedServices []lb.ServiceKey
	addedServices   []*Record
	// newGroups are the ids of new groups.
	newGroups map[string]uint32
	// endpoints are to be set, removedEndpoints to be kept as those of removed backends.
	endpoints        map[endpointKey]natEndpoint
	removedEndpoints map[endpointKey]natEndpoint
	// claimed are previous endpoints that a present backend has.
	claimed map[endpointKey]bool
	// expired are previous endpoints to be removed: expired, or a present backend's again.
	expired []endpointKey
	// vacated are the indices whose last users were the endpoints of removed backends.
	vacated []uint32
	// references and generations are the values that differ from those in Places, by index.
	references  map[uint32]int
	generations map[uint32]uint16
	// freed are the indices whose last user the change removes.
	freed []uint32
	// free and freeIDs are the indices and ids that remain free; Indices and IDs are the first ones that were never
	// used.
	free, freeIDs []uint32
	Indices, IDs  uint32
}

// removedBackend is a removed backend and its place.
type removedBackend struct {
	key lb.BackendKey
	Place
}

// addedBackend is an added backend: number at of the service of a record.
type addedBackend struct {
	key    lb.BackendKey
	record *Record
	at     int
}

// NextOwners lists the indices that get a new owner after a previous one.
func (r *PlaceChange) NextOwners() (indices []uint32) {
	for _, a := range r.added {
		if index := a.record.Places[a.at].Index; int(index) < len(r.Places.generations) {
			indices = append(indices, index)
		}
	}
	return indices
}

// IndicesEver returns how many indices were ever used.
func (p *Places) IndicesEver() int { return len(p.generations) }

// beginChange returns an empty change of the places.
func (p *Places) beginChange(now time.Time) *PlaceChange {
	return &PlaceChange{Places: p, now: now, endpoints: map[endpointKey]natEndpoint{},
		removedEndpoints: map[endpointKey]natEndpoint{}, claimed: map[endpointKey]bool{},
		references: map[uint32]int{}, generations: map[uint32]uint16{},
		newGroups: map[string]uint32{}, freeIDs: p.freeIDs, Indices: uint32(len(p.generations)), IDs: p.IDs}
}

// assignService assigns a service its id, and its backends the places that they had in before, the service before the
// change, which may be nil. assign gives new backends their places.
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
// mode fullnat an entry has a port of the pool in the field where the other modes have the sequence number of its SYN,
// and the flow cannot continue without the port.
func (r *Record) keepsFlows(after *Record) bool {
	return r != nil && (r.Service.Mode == lb.FullNAT) == (after.Service.Mode == lb.FullNAT)
}

// keepPlaces assigns backends that stay their places, and returns, by their previous numbers, which backends stay.
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

// assign frees the places of removed backends, and assigns places to added ones. A packet that still reads the previous
// tables finds the next owner of an index that the change frees. So that is a backend of the same service, or of a
// later change. No backend gets an index that counts sockets of this host.
func (r *PlaceChange) assign() {
	var held []uint32
	sockets := r.socketsAt()
	for _, index := range r.Places.free {
		if sockets[index] > 0 {
			held = append(held, index)
		} else {
			r.free = append(r.free, index)
		}
	}
	r.holdPrevious()
	own := map[lb.ServiceKey][]uint32{}
	for _, d := range r.removed {
		r.generations[d.Index] = nextGeneration(d.Generation)
		if r.releaseIndex(d.Index) && sockets[d.Index] == 0 {
			own[d.key.Service] = append(own[d.key.Service], d.Index)
		}
	}
	r.expirePrevious()
	for _, a := range r.added {
		index := r.takeIndex(own, a.key.Service)
		r.retainIndex(index)
		p := Place{index, r.Places.ownedFrom(index, r.generation(index))}
		r.generations[index] = p.Generation
		a.record.Places[a.at] = p
	}
	r.free = append(held, r.free...)
	for _, index := range r.freed {
		if r.holdersOf(index) == 0 {
			r.free = append(r.free, index)
		}
	}
}

// socketsAt returns how many sockets of this host each index counts, if that matters to the change.
func (r *PlaceChange) socketsAt() map[uint32]uint32 {
	if r.countSockets == nil || len(r.added) == 0 {
		return nil
	}
	return r.countSockets()
}

// takeIndex returns an index for a backend of a service: a free one, or else one of those that the service's removed
// backends had, or else a new one.
func (r *PlaceChange) takeIndex(own map[lb.ServiceKey][]uint32, service lb.ServiceKey) (index uint32) {
	if len(r.free) > 0 {
		index, r.free = r.free[0], r.free[1:]
		return index
	}
	if left := own[service]; len(left) > 0 {
		own[service] = left[1:]
		return left[0]
	}
	r.Indices++
	return r.Indices - 1
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
		r.freed = append(r.freed, index)
	}
	return n == 0
}

// commit applies the change to the places.
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
		delete(p.stale, a.record.Places[a.at].Index)
		p.Backends[a.key] = a.record.Places[a.at]
	}
	for _, s := range r.addedServices {
		p.Services[s.Key] = s.ID
	}
	r.commitEndpoints()
}

// IDRounds is after how many rounds of the janitor without a flow or socket of a service its id may be reused.
const IDRounds = 2

// FreeIDs frees ids in quarantine after a complete round of the janitor. flowsOf is the number of flows by id, and
// socketsOf that of this host's sockets: each of them is subtracted from the id's active flows when it is closed.
func (p *Places) FreeIDs(flowsOf map[uint32]uint64, socketsOf map[uint32]uint32) {
	var released []uint32
	for id, rounds := range p.quarantine {
		switch {
		case flowsOf[id] > 0 || socketsOf[id] > 0:
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
