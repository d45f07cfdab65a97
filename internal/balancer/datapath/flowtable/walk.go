// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"math"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Rules are the rules by which an entry of a table of flows is still good, and the counters that it is subtracted from
// where it is not.
type Rules struct {
	// timeouts are how long an entry may be silent, by its state, in milliseconds.
	timeouts [256]uint32
	// backends are by index, services by id.
	backends []Backend
	services []Service
	// groups are how long the clients of each are remembered, in milliseconds, by id.
	groups map[uint32]uint32
	// The memory that packets count active flows in: Loads by index, Turns by id.
	Loads []objects.XDPBackendLoad
	Turns []objects.XDPTurn
	// pooled: a service is of full NAT, whose flows hold ports of the pool.
	pooled bool
	// own says, by family and by the number of an address in the pool, whether it is this balancer's; nil where all
	// are.
	own [2][]bool
}

// Backend is the owner of an index.
type Backend struct {
	// Generation is that of its flows; 0 where no backend has the index.
	Generation uint16
	// Service is the id of its service.
	Service uint32
	// Weight is its share of new flows; 0 where it takes none.
	Weight uint16
}

// Service has the properties of a service that the tables of flows go by.
type Service struct {
	// Present: its entries are good.
	Present bool
	// Tracked: flows that neither side has ended are counted as active. Of a service that is
	// gone: they were.
	Tracked bool
	// Affinity is how long a client without flows is remembered, in milliseconds; 0
	// where clients are not.
	Affinity uint32
	// NAT: the service is of mode NAT.
	NAT bool
	// Window is that of its transitions, in milliseconds.
	Window uint32
	// Family is that of its VIP.
	Family uint8
}

// holdsPort reports whether a flow of full NAT in that state keeps its port of the pool whatever comes: it gives it up
// to a new flow once it is over, or before it is proven (is_evictable in bpf/balancer/flow/evict.h). One that only half
// has ended keeps it.
func holdsPort(state objects.XDPFlowState) bool {
	return state-objects.XDPFlowStateFLOW_SEEN <= objects.XDPFlowStateFLOW_BACKEND_FIN-objects.XDPFlowStateFLOW_SEEN &&
		state != objects.XDPFlowStateFLOW_FIRST
}

// isOwnPort reports whether an entry of a service has its port of an address of this balancer's own.
func (r *Rules) isOwnPort(s *Service, port uint64) bool {
	own, number := r.own[s.Family], int(uint16(port>>sourceShift))
	return own == nil || number < len(own) && own[number]
}

// SilentFor returns for how long an entry has been silent; 0 where it was seen at a time
// that is yet to come: the clock of another generation.
func SilentFor(clock, seen uint32) uint32 {
	if idle := clock - seen; idle < 1<<31 {
		return idle
	}
	return 0
}

// isValid reports whether an entry is to stay at a time.
func (r *Rules) isValid(owner, port uint64, state uint8, idle uint32) bool {
	backend, id := uint32(owner>>backendShift), uint32(owner)&^AffinityKey
	if int(backend) >= len(r.backends) || int(id) >= len(r.services) {
		return r.isValidInGroup(id, state, idle)
	}
	service := &r.services[id]
	if !service.Present || r.backends[backend].Generation != uint16(port>>generationShift) {
		return false
	}
	if state == uint8(objects.XDPFlowStateFLOW_AFFINITY) {
		return idle < service.Affinity
	}
	return idle < r.timeouts[state]
}

// isValidInGroup is good for a client's affinity of a group, by the id with GroupKey. Whether the group still has the
// host does not matter: packets find out where it has not.
func (r *Rules) isValidInGroup(id uint32, state uint8, idle uint32) bool {
	timeout, there := r.groups[id&^GroupKey]
	there = there && id&GroupKey != 0
	if state != uint8(objects.XDPFlowStateFLOW_AFFINITY) {
		timeout = r.timeouts[state]
	}
	return there && idle < timeout
}

// subtract subtracts a flow from the counts of its backend and its service, if it counts. That holds for flows of
// previous backends too: they were counted under that index.
func (r *Rules) subtract(flow *objects.XDPFlow, state objects.XDPFlowState) {
	id := flow.Service &^ AffinityKey
	if !IsLive(state) || int(id) >= len(r.services) || !r.services[id].Tracked {
		return
	}
	active := uint32(math.MaxUint32)
	if int(flow.Backend) < len(r.Loads) {
		active = atomic.AddUint32(&r.Loads[flow.Backend].Active, ^uint32(0))
	}
	if int(id) < len(r.Turns) {
		atomic.AddUint32(&r.Turns[id].Active, ^uint32(0))
		r.Turns[id].LowerMinimum(active)
	}
}

// tallied has the number of entries in the low half, and in the high half the number of those that count as active: one
// addition for both.
type tallied uint64

const (
	oneEntry  tallied = 1
	oneActive tallied = 1<<32 | oneEntry
)

func (c tallied) entries() uint32 { return uint32(c) }
func (c tallied) active() uint32  { return uint32(c >> 32) }

// Tally counts the entries that a walk over a table has met.
type Tally struct {
	entries, Expired uint64
	// By index and by id.
	backends, services []tallied
	// held are the ports of the balancer's own addresses in the pool that flows keep, by index; empty without full NAT.
	held []uint32
}

// resize makes room for all backends and services of the rules.
func (c *Tally) resize(rules *Rules) {
	if n := len(rules.backends) - len(c.backends); n > 0 {
		c.backends = append(c.backends, make([]tallied, n)...)
	}
	if n := len(rules.services) - len(c.services); n > 0 {
		c.services = append(c.services, make([]tallied, n)...)
	}
	if n := len(rules.backends) - len(c.held); n > 0 && rules.pooled {
		c.held = append(c.held, make([]uint32, n)...)
	}
}

// reset sets all counts to 0.
func (c *Tally) reset() {
	c.entries, c.Expired = 0, 0
	clear(c.backends)
	clear(c.services)
	clear(c.held)
}

// walk goes over the buckets from..to-1 of a table, frees the entries that are not good any more and tallies the rest.
// It is the one loop here whose speed matters: a bucket's first line tells which of its flows there are and how old,
// and most lines are read in the order in which they lie.
func (r *Rules) walk(t *Table, from, to int, clock uint32, tally *Tally) {
	backends, services, held := tally.backends, tally.services, tally.held
	for i := from; i < to; i++ {
		bucket := &t.Buckets[i]
		// Nearly all are empty where there are few flows, or none.
		if atomic.LoadUint64(&bucket.Tags[0])|atomic.LoadUint64(&bucket.Tags[1]) == 0 {
			continue
		}
		for half := range bucket.Tags {
			tags := atomic.LoadUint64(&bucket.Tags[half])
			if tags == 0 {
				continue
			}
			states := uint32(atomic.LoadUint64(&bucket.States) >> (32 * half))
			for at := 4 * half; tags != 0; at, tags, states = at+1, tags>>16, states>>8 {
				if tags&0xffff <= BusyTag {
					continue
				}
				flow := WordsOf(&bucket.Flows[at&7])
				owner, port := atomic.LoadUint64(&flow[OwnerWord]), atomic.LoadUint64(&flow[PortWord])
				idle := SilentFor(clock, atomic.LoadUint32(&bucket.Seen[at&7]))
				if !r.isValid(owner, port, uint8(states), idle) {
					if r.expire(t, Place{bucket, at}, tags&0xffff, clock) {
						tally.Expired++
					}
					continue
				}
				tally.entries++
				id, one := uint32(owner)&^AffinityKey, oneEntry
				// The affinity of a group belongs to no service, and to no single backend.
				if int(id) >= len(services) {
					continue
				}
				if IsLive(objects.XDPFlowState(uint8(states))) && r.services[id].Tracked {
					one = oneActive
				}
				backends[owner>>backendShift] += one
				services[id] += one
				if index := owner >> backendShift; index < uint64(len(held)) &&
					holdsPort(objects.XDPFlowState(uint8(states))) && r.isOwnPort(&r.services[id], port) {
					held[index]++
				}
			}
		}
	}
}

// expire frees a place whose entry is not good any more.
func (r *Rules) expire(t *Table, place Place, tag uint64, clock uint32) bool {
	flow, state, released := t.Release(place, tag, func(flow *objects.XDPFlow, state objects.XDPFlowState,
		seen uint32) bool {
		words := WordsOf(flow)
		return !r.isValid(words[OwnerWord], words[PortWord], uint8(state), SilentFor(clock, seen))
	})
	if released {
		r.subtract(&flow, state)
		r.noteForgotten(&flow, state, clock)
	}
	return released
}

// GroupKey is the bit of a flow's key that makes an affinity a group's.
const GroupKey = uint32(objects.XDPFlowTableFLOW_KEY_GROUP)

// noteForgotten notes that a connection was forgotten which its two ends may go on with.
func (r *Rules) noteForgotten(flow *objects.XDPFlow, state objects.XDPFlowState, clock uint32) {
	id := flow.Service
	if state != objects.XDPFlowStateFLOW_ESTABLISHED && state != objects.XDPFlowStateFLOW_CONTESTED ||
		int(id) >= len(r.services) || int(id) >= len(r.Turns) || int(flow.Backend) >= len(r.backends) {
		return
	}
	if s := &r.services[id]; s.Present && s.Tracked && s.NAT && r.backends[flow.Backend].Generation == flow.Generation {
		r.Turns[id].NoteUnremembered(clock)
	}
}
