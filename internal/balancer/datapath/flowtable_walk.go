// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// flowRules is what it takes to tell whether an entry of a table of flows is still
// good, and to count it off where it is not.
type flowRules struct {
	// timeouts are how long an entry may be silent, by its state, in milliseconds.
	timeouts [256]uint32
	// backends are by index, services by id.
	backends []flowBackend
	services []flowService
	// groups are how long the clients of each are remembered, in milliseconds, by id.
	groups map[uint32]uint32
	// What packets count in: by index, and by id.
	loads []objects.XDPBackendLoad
	turns []objects.XDPTurn
	// pooled: a service is of full NAT, whose flows hold ports of the pool.
	pooled bool
	// others are the numbers in the pool, by family, from which on addresses are other balancers'; 0 where none are.
	own [2][]bool
}

// flowBackend is who has an index.
type flowBackend struct {
	// generation is that of its flows; 0 where no backend has the index.
	generation uint16
	// service is the id of its service.
	service uint32
	// weight is its share of new flows; 0 where it takes none.
	weight uint16
}

// flowService is a service to the tables of flows.
type flowService struct {
	// present: its entries are good.
	present bool
	// tracked: flows that neither side has ended are counted as active. Of a service that is
	// gone: they were.
	tracked bool
	// affinity is how long a client without flows is remembered, in milliseconds; 0
	// where clients are not.
	affinity uint32
	// nat: the service is of mode NAT.
	nat bool
	// window is that of its transitions, in milliseconds.
	window uint32
	// family is that of its VIP.
	family uint8
}

// isLive says whether a flow in that state counts among those that neither side has ended.
func isLive(state objects.XDPFlowState) bool {
	return state-objects.XDPFlowStateFLOW_OPENING <= objects.XDPFlowStateFLOW_UDP-objects.XDPFlowStateFLOW_OPENING
}

// holdsPort says whether a flow of full NAT in that state keeps its port of the pool whatever
// comes: it gives it up to a new flow once it is over, or before it is proven (may_go in
// bpf/balancer/flow/evict.h). One that only half has ended keeps it.
func holdsPort(state objects.XDPFlowState) bool {
	return state-objects.XDPFlowStateFLOW_SEEN <= objects.XDPFlowStateFLOW_BACKEND_FIN-objects.XDPFlowStateFLOW_SEEN && state != objects.XDPFlowStateFLOW_FIRST
}

// isOwnPort says whether an entry of a service has its port of an address of this balancer's own.
func (r *flowRules) isOwnPort(s *flowService, port uint64) bool {
	own, number := r.own[s.family], int(uint16(port>>sourceShift))
	return own == nil || number < len(own) && own[number]
}

// silentFor returns for how long an entry has been silent; 0 where it was seen at a time
// that is yet to come: the clock of another generation.
func silentFor(clock, seen uint32) uint32 {
	if silent := clock - seen; silent < 1<<31 {
		return silent
	}
	return 0
}

// good says whether an entry is to stay at a time.
func (r *flowRules) good(owner, port uint64, state uint8, silent uint32) bool {
	backend, id := uint32(owner>>backendShift), uint32(owner)&^affinityKey
	if int(backend) >= len(r.backends) || int(id) >= len(r.services) {
		return r.goodInGroup(id, state, silent)
	}
	service := &r.services[id]
	if !service.present || r.backends[backend].generation != uint16(port>>generationShift) {
		return false
	}
	if state == uint8(objects.XDPFlowStateFLOW_AFFINITY) {
		return silent < service.affinity
	}
	return silent < r.timeouts[state]
}

// goodInGroup says that of a client of a group, by the id with groupKey. Whether the group
// still has the host does not matter: packets see that it has not.
func (r *flowRules) goodInGroup(id uint32, state uint8, silent uint32) bool {
	timeout, there := r.groups[id&^groupKey]
	there = there && id&groupKey != 0
	if state != uint8(objects.XDPFlowStateFLOW_AFFINITY) {
		timeout = r.timeouts[state]
	}
	return there && silent < timeout
}

// countOff takes a flow from what its backend and its service have, if it counts. That
// holds for flows of former backends too: it was counted under that index.
func (r *flowRules) countOff(flow *objects.XDPFlow, state objects.XDPFlowState) {
	id := flow.Service &^ affinityKey
	if !isLive(state) || int(id) >= len(r.services) || !r.services[id].tracked {
		return
	}
	active := uint32(math.MaxUint32)
	if int(flow.Backend) < len(r.loads) {
		active = atomic.AddUint32(&r.loads[flow.Backend].Active, ^uint32(0))
	}
	if int(id) < len(r.turns) {
		atomic.AddUint32(&r.turns[id].Active, ^uint32(0))
		r.turns[id].HasOneWith(active)
	}
}

// tallied is how many entries there are, in the low half, and in the high half how many
// of them count as active: one addition for both.
type tallied uint64

const (
	oneEntry  tallied = 1
	oneActive tallied = 1<<32 | oneEntry
)

func (c tallied) entries() uint32 { return uint32(c) }
func (c tallied) active() uint32  { return uint32(c >> 32) }

// flowTally is what a walk over a table has met.
type flowTally struct {
	entries, expired uint64
	// By index and by id.
	backends, services []tallied
	// held are the ports of the balancer's own addresses in the pool that flows keep, by index; empty without full NAT.
	held []uint32
}

// fit makes room for all that rules know.
func (c *flowTally) fit(rules *flowRules) {
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

// reset begins anew.
func (c *flowTally) reset() {
	c.entries, c.expired = 0, 0
	clear(c.backends)
	clear(c.services)
	clear(c.held)
}

// walk goes over the buckets from..to-1 of a table, frees what is not good any more and
// tallies the rest. It is the one loop here whose speed matters: a bucket's first line
// tells which of its flows there are and how old, and most lines are read in the order
// in which they lie.
func (r *flowRules) walk(t *flowTable, from, to int, clock uint32, tally *flowTally) {
	backends, services, held := tally.backends, tally.services, tally.held
	for i := from; i < to; i++ {
		bucket := &t.buckets[i]
		// Nearly all are empty where few flows are remembered, or none.
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
				if tags&0xffff <= busyTag {
					continue
				}
				flow := flowWordsOf(&bucket.Flows[at&7])
				owner, port := atomic.LoadUint64(&flow[ownerWord]), atomic.LoadUint64(&flow[portWord])
				silent := silentFor(clock, atomic.LoadUint32(&bucket.Seen[at&7]))
				if !r.good(owner, port, uint8(states), silent) {
					if r.expire(t, flowPlace{bucket, at}, tags&0xffff, clock) {
						tally.expired++
					}
					continue
				}
				tally.entries++
				id, one := uint32(owner)&^affinityKey, oneEntry
				// It is no service's, nor any one backend's.
				if int(id) >= len(services) {
					continue
				}
				if isLive(objects.XDPFlowState(uint8(states))) && r.services[id].tracked {
					one = oneActive
				}
				backends[owner>>backendShift] += one
				services[id] += one
				if index := owner >> backendShift; index < uint64(len(held)) && holdsPort(objects.XDPFlowState(uint8(states))) && r.isOwnPort(&r.services[id], port) {
					held[index]++
				}
			}
		}
	}
}

// expire frees a place whose entry is not good any more.
func (r *flowRules) expire(t *flowTable, place flowPlace, tag uint64, clock uint32) bool {
	flow, state, released := t.release(place, tag, func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) bool {
		words := flowWordsOf(flow)
		return !r.good(words[ownerWord], words[portWord], uint8(state), silentFor(clock, seen))
	})
	if released {
		r.countOff(&flow, state)
		r.noteForgotten(&flow, state, clock)
	}
	return released
}

// groupKey is the bit of a flow's key that makes an affinity a group's.
const groupKey = uint32(objects.XDPFlowTableFLOW_KEY_GROUP)
