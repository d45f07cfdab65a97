// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"math"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Rules are the rules by which an entry of a table of flows is valid, and the counters from which an invalid entry is
// subtracted.
type Rules struct {
	// timeouts has for how long an entry may be idle, by its state, in milliseconds.
	timeouts [256]uint32
	// backends are by index, services by id.
	backends []Backend
	services []Service
	// groups has for how long each group's clients are remembered, in milliseconds, by id.
	groups map[uint32]uint32
	// Loads (by index) and Turns (by id) are the memory in which packets count active flows.
	Loads []objects.XDPBackendLoad
	Turns []objects.XDPTurn
	// pooled: a service uses full NAT, whose flows hold ports of the pool.
	pooled bool
	// own has, by family and by the number of an address in the pool, whether it is this balancer's; nil where all are.
	own [2][]bool
}

// Backend is the owner of an index.
type Backend struct {
	// Generation is the generation of its flows; 0 where no backend has the index.
	Generation uint16
	// Service is the id of its service.
	Service uint32
	// Weight is its share of new flows; 0 where it takes none.
	Weight uint16
}

// Service has the properties of a service that the janitor needs.
type Service struct {
	// Present: its entries are valid.
	Present bool
	// Tracked: flows that neither side has ended are counted as active, or were before the service was removed.
	Tracked bool
	// Affinity is for how long a client without flows is remembered, in milliseconds; 0 where clients are not.
	Affinity uint32
	// NAT: the service is of mode NAT.
	NAT bool
	// Window is the window of its transitions, in milliseconds.
	Window uint32
	// Family is the address family of its VIP.
	Family uint8
}

// holdsPort reports whether a full-NAT flow in that state holds its port of the pool: a new flow may take the port of
// an ended or unproven flow (is_evictable in bpf/balancer/flow/evict.h), but not that of a half-closed one.
func holdsPort(state objects.XDPFlowState) bool {
	return state-objects.XDPFlowStateFLOW_SEEN <= objects.XDPFlowStateFLOW_BACKEND_FIN-objects.XDPFlowStateFLOW_SEEN &&
		state != objects.XDPFlowStateFLOW_FIRST
}

// isOwnPort reports whether the port of a service's entry belongs to an address of this balancer's own.
func (r *Rules) isOwnPort(s *Service, port uint64) bool {
	own, number := r.own[s.Family], int(uint16(port>>sourceShift))
	return own == nil || number < len(own) && own[number]
}

// IdleTime returns for how long an entry has been idle; 0 where it was seen at a future time, by the clock of another
// generation.
func IdleTime(clock, seen uint32) uint32 {
	if idle := clock - seen; idle < 1<<31 {
		return idle
	}
	return 0
}

// isValid reports whether an entry is to be kept.
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

// isValidInGroup is isValid for a client's affinity of a group, by the id with GroupKey. Whether the group still has
// the host does not matter: packets notice where it has not.
func (r *Rules) isValidInGroup(id uint32, state uint8, idle uint32) bool {
	timeout, found := r.groups[id&^GroupKey]
	found = found && id&GroupKey != 0
	if state != uint8(objects.XDPFlowStateFLOW_AFFINITY) {
		timeout = r.timeouts[state]
	}
	return found && idle < timeout
}

// subtract subtracts a flow from the counts of its backend and its service, if it is counted; also a flow of a previous
// backend, which was counted under the same index.
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

// tallied has the number of entries in the low half, and the number of active ones in the high half, so that one
// addition counts both.
type tallied uint64

const (
	oneEntry  tallied = 1
	oneActive tallied = 1<<32 | oneEntry
)

func (c tallied) entries() uint32 { return uint32(c) }
func (c tallied) active() uint32  { return uint32(c >> 32) }

// Tally has the numbers of entries that a walk over a table found.
type Tally struct {
	entries, Expired uint64
	// backends is by index, services by id.
	backends, services []tallied
	// held has the numbers of ports of the balancer's own pool addresses that flows hold, by index; empty without full
	// NAT.
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

// walk iterates over the buckets from..to-1 of a table, frees invalid entries and tallies the valid ones. It is the
// only loop here whose speed matters: a bucket's first cache line has the tags and ages of its flows, and most lines
// are read in their order in memory.
func (r *Rules) walk(t *Table, from, to int, clock uint32, tally *Tally) {
	backends, services, held := tally.backends, tally.services, tally.held
	for i := from; i < to; i++ {
		bucket := &t.Buckets[i]
		// With few flows nearly all buckets are empty.
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
				idle := IdleTime(clock, atomic.LoadUint32(&bucket.Seen[at&7]))
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

// expire frees a place whose entry is invalid.
func (r *Rules) expire(t *Table, place Place, tag uint64, clock uint32) bool {
	flow, state, released := t.Release(place, tag, func(flow *objects.XDPFlow, state objects.XDPFlowState,
		seen uint32) bool {
		words := WordsOf(flow)
		return !r.isValid(words[OwnerWord], words[PortWord], uint8(state), IdleTime(clock, seen))
	})
	if released {
		r.subtract(&flow, state)
		r.noteForgotten(&flow, state, clock)
	}
	return released
}

// GroupKey is the bit of a flow's key that marks the affinity of a group.
const GroupKey = uint32(objects.XDPFlowTableFLOW_KEY_GROUP)

// noteForgotten records that the entry of a connection has expired that client and backend may still have.
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
