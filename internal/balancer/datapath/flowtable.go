// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// flowTable is a table of flows in memory that packets read and write at the same time:
// the control plane's part of bpf/balancer/flow/flowtable.h. Nothing here waits for packets, and
// packets never wait for it.
type flowTable struct {
	buckets []objects.XDPFlowBucket
	secret  uint64
	// memory is what is to be unmapped; nil of a table that is no map.
	memory mapmem.Storage
}

const (
	flowsPerBucket = int(objects.XDPFlowTableFLOW_BUCKET)
	// bucketFlows is how many flows a bucket is planned for: where so many are in
	// each, nearly every new one finds room in one of its two.
	bucketFlows = 5
	bucketSize  = int(unsafe.Sizeof(objects.XDPFlowBucket{}))
	busyTag     = uint64(objects.XDPFlowTableFLOW_BUSY)
	affinityKey = uint32(objects.XDPFlowTableFLOW_KEY_AFFINITY)
)

// bucketsFor returns how many buckets a table for that many flows has.
func bucketsFor(flows uint32) uint32 {
	return max(uint32((uint64(flows)+bucketFlows-1)/bucketFlows), 1)
}

// mapFlowTable maps a table of flows into our memory; close takes it out. The map may be
// closed before.
func mapFlowTable(m *ebpf.Map, secret uint64) (*flowTable, error) {
	memory, err := mapmem.Map(m)
	if err != nil {
		return nil, err
	}
	return &flowTable{buckets: mapmem.ElementsOf[objects.XDPFlowBucket](memory)[:m.MaxEntries()], secret: secret, memory: memory}, nil
}

// close takes the table out of our memory.
func (t *flowTable) close() {
	if t != nil {
		t.memory.Unmap()
		t.memory, t.buckets = nil, nil
	}
}

// flowWords is a flow as it is read and written: no two halves of a word are of
// different times.
type flowWords [4]uint64

// In the third word: the service in the low half, the backend in the high one. In the
// fourth: the port, and then the backend's generation.
const (
	ownerWord       = 2
	portWord        = 3
	backendShift    = 32
	generationShift = 16
	sourceShift     = 48
)

func flowWordsOf(flow *objects.XDPFlow) *flowWords { return (*flowWords)(unsafe.Pointer(flow)) }

func loadFlow(from *objects.XDPFlow) (flow objects.XDPFlow) {
	to := flowWordsOf(&flow)
	for i := range to {
		to[i] = atomic.LoadUint64(&flowWordsOf(from)[i])
	}
	return flow
}

func storeFlow(to *objects.XDPFlow, flow objects.XDPFlow) {
	for i, word := range flowWordsOf(&flow) {
		atomic.StoreUint64(&flowWordsOf(to)[i], word)
	}
}

// hashKey is hash_key of bpf/balancer/flow/flowtable.h.
func (t *flowTable) hashKey(flow *objects.XDPFlow) uint64 {
	of := flowWordsOf(flow)
	key := uint64(flow.Port)<<32 | uint64(flow.Service)
	return mapmem.HashMix(t.secret + of[0]*mapmem.HashMultiplier + of[1]*mapmem.HashMultiplier2 + key*mapmem.HashMultiplier3)
}

func scaled(hash uint32, size int) uint32 { return uint32(uint64(hash) * uint64(size) >> 32) }

// homes returns the two buckets in which a flow of that hash may be, and its tag.
func (t *flowTable) homes(hash uint64) (home, second uint32, tag uint64) {
	return homesAmong(hash, len(t.buckets))
}

func homesAmong(hash uint64, buckets int) (home, second uint32, tag uint64) {
	tag = hash & 0xffff
	if tag < 2 {
		tag += 2
	}
	return scaled(uint32(hash>>32), buckets), scaled(uint32(hash>>16)*0x9e3779b1, buckets), tag
}

// flowPlace is one of the flows of a bucket.
type flowPlace struct {
	bucket *objects.XDPFlowBucket
	// at is its number there, 0 to 7.
	at int
}

func (p flowPlace) tags() (word *uint64, shift int) { return &p.bucket.Tags[p.at/4], p.at % 4 * 16 }

func (p flowPlace) tag() uint64 {
	word, shift := p.tags()
	return atomic.LoadUint64(word) >> shift & 0xffff
}

func (p flowPlace) flow() objects.XDPFlow { return loadFlow(&p.bucket.Flows[p.at]) }

func (p flowPlace) seen() uint32 { return atomic.LoadUint32(&p.bucket.Seen[p.at]) }

func (p flowPlace) state() objects.XDPFlowState {
	return objects.XDPFlowState(atomic.LoadUint64(&p.bucket.States) >> (8 * p.at) & 0xff)
}

// exchangeState puts a state in the place of another, and returns that.
func (p flowPlace) exchangeState(state objects.XDPFlowState) objects.XDPFlowState {
	shift := 8 * p.at
	for {
		was := atomic.LoadUint64(&p.bucket.States)
		if atomic.CompareAndSwapUint64(&p.bucket.States, was, was&^(0xff<<shift)|uint64(state)<<shift) {
			return objects.XDPFlowState(was >> shift & 0xff)
		}
	}
}

// claim makes the place ours if it has that tag; 0 claims a free one.
func (p flowPlace) claim(tag uint64) bool {
	word, shift := p.tags()
	for {
		was := atomic.LoadUint64(word)
		if was>>shift&0xffff != tag {
			return false
		}
		if atomic.CompareAndSwapUint64(word, was, was^(tag^busyTag)<<shift) {
			return true
		}
	}
}

// publish gives a place that is ours a tag; 0 makes it free.
func (p flowPlace) publish(tag uint64) {
	word, shift := p.tags()
	atomic.AddUint64(word, (tag-busyTag)<<shift)
}

// release forgets the flow of a place if it still has that tag, and if `over` says so
// of what is there when no other writer can take the place. It returns the flow and the
// state that it had: once for a flow, to the caller that ends it.
func (t *flowTable) release(p flowPlace, tag uint64, over func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) bool) (flow objects.XDPFlow, state objects.XDPFlowState, released bool) {
	if tag <= busyTag || !p.claim(tag) {
		return flow, 0, false
	}
	flow = p.flow()
	if !over(&flow, p.state(), p.seen()) {
		p.publish(tag)
		return flow, 0, false
	}
	// A packet that has found the flow before may yet want to change its state, and
	// count it: it must not find the one that we count.
	state = p.exchangeState(objects.XDPFlowStateFLOW_FREE)
	p.publish(0)
	home, _, _ := t.homes(t.hashKey(&flow))
	if p.bucket != &t.buckets[home] {
		comeHome(&t.buckets[home])
	}
	return flow, state, true
}

// find returns where a flow is.
func (t *flowTable) find(key *objects.XDPFlow) (flowPlace, bool) {
	home, second, tag := t.homes(t.hashKey(key))
	if place, ok := findIn(&t.buckets[home], key, tag); ok || atomic.LoadUint64(&t.buckets[home].Elsewhere)&elsewhereBit(tag) == 0 {
		return place, ok
	}
	return findIn(&t.buckets[second], key, tag)
}

func findIn(bucket *objects.XDPFlowBucket, key *objects.XDPFlow, tag uint64) (flowPlace, bool) {
	for at := range flowsPerBucket {
		place := flowPlace{bucket, at}
		if place.tag() != tag {
			continue
		}
		flow := place.flow()
		if flow.Address == key.Address && flow.Port == key.Port && flow.Service == key.Service && place.tag() == tag {
			return place, true
		}
	}
	return flowPlace{}, false
}

func tagsIn(bucket *objects.XDPFlowBucket) (n int) {
	for at := range flowsPerBucket {
		if (flowPlace{bucket, at}).tag() != 0 {
			n++
		}
	}
	return n
}

// homeEnough is how many tags a home bucket has from which on the second is looked at.
const homeEnough = 6

// insert puts a flow into the table; false says that there is no room.
func (t *flowTable) insert(flow objects.XDPFlow, state objects.XDPFlowState, seen uint32) bool {
	hash := t.hashKey(&flow)
	first, other, tag := t.homes(hash)
	home, second := &t.buckets[first], &t.buckets[other]
	if n := tagsIn(home); n >= homeEnough && second != home && tagsIn(second) < n {
		goElsewhere(home, tag)
		if settleIn(second, flow, hash, tag, state, seen) {
			return true
		}
		comeHome(home)
		return false
	}
	return settleIn(home, flow, hash, tag, state, seen)
}

// favourite is favourite_of of bpf/balancer/flow/flowtable.h.
func favourite(hash uint64) int { return int(hash>>24) % flowsPerBucket }

// elsewhereBit is elsewhere_bit of bpf/balancer/flow/flowtable.h.
func elsewhereBit(tag uint64) uint64 { return 1 << (32 + tag&31) }

// goElsewhere notes in a home bucket that a flow is in its second one.
func goElsewhere(home *objects.XDPFlowBucket, tag uint64) {
	for {
		was := atomic.LoadUint64(&home.Elsewhere)
		if atomic.CompareAndSwapUint64(&home.Elsewhere, was, (was+1)|elsewhereBit(tag)) {
			return
		}
	}
}

// comeHome takes it back. With the last one go the bits of all.
func comeHome(home *objects.XDPFlowBucket) {
	for {
		was := atomic.LoadUint64(&home.Elsewhere)
		is := was - 1
		if uint32(is) == 0 {
			is = 0
		}
		if atomic.CompareAndSwapUint64(&home.Elsewhere, was, is) {
			return
		}
	}
}

// settleIn writes a flow into a bucket, for others to see when it is whole.
func settleIn(bucket *objects.XDPFlowBucket, flow objects.XDPFlow, hash, tag uint64, state objects.XDPFlowState, seen uint32) bool {
	place := flowPlace{bucket, favourite(hash)}
	for at := 0; !place.claim(0); at++ {
		if at == flowsPerBucket {
			return false
		}
		place.at = at
	}
	storeFlow(&bucket.Flows[place.at], flow)
	atomic.StoreUint32(&bucket.Seen[place.at], seen)
	place.exchangeState(state)
	place.publish(tag)
	return true
}

// flowSource is a table of flows that another table takes over.
type flowSource interface {
	// each calls visit with every flow that is whole, its state and when it was last seen.
	each(visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32))
}

func (t *flowTable) each(visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32)) {
	for i := range t.buckets {
		if atomic.LoadUint64(&t.buckets[i].Tags[0])|atomic.LoadUint64(&t.buckets[i].Tags[1]) == 0 {
			continue
		}
		for at := range flowsPerBucket {
			place := flowPlace{&t.buckets[i], at}
			tag := place.tag()
			if tag <= busyTag {
				continue
			}
			flow, state, seen := place.flow(), place.state(), place.seen()
			if place.tag() == tag && state != objects.XDPFlowStateFLOW_FREE {
				visit(&flow, state, seen)
			}
		}
	}
}

// adopt copies the flows of a table into one of another size or layout that does not have them
// yet, and has those follow there that have changed here since. It calls arrived for each that it
// copies, unless that is nil, and returns for how many there is no room. Once before packets use the
// new table and once after they have left the old one, it loses no flow that begins in between. Places
// change: what leads to them (struct return_bucket) does not follow.
func (t *flowTable) adopt(old flowSource, arrived func(flow *objects.XDPFlow)) (lost int) {
	old.each(func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
		switch place, there := t.find(flow); {
		case there:
			place.follow(flow, state, seen)
		case !t.insert(*flow, state, seen) && !(t.makeRoom(flow) && t.insert(*flow, state, seen)):
			lost++
		case arrived != nil:
			arrived(flow)
		}
	})
	return lost
}

// makeRoom moves a flow out of one of the two buckets of another, for which both are full, if one can
// go to its second bucket; it says whether one could. In an order of their own, some seventeen in a million
// flows find no room in a table that is as full as it is planned for.
func (t *flowTable) makeRoom(of *objects.XDPFlow) bool {
	home, second, _ := t.homes(t.hashKey(of))
	for _, number := range [...]uint32{home, second} {
		for at := range flowsPerBucket {
			if t.sendAway(number, at) {
				return true
			}
		}
	}
	return false
}

// sendAway moves a flow from its home bucket to its second one. A packet looks at the home first, so it
// finds the flow in either at any time; it may miss that the packet before was seen. From the second to the home it would
// not find it in a moment between.
func (t *flowTable) sendAway(number uint32, at int) bool {
	place := flowPlace{&t.buckets[number], at}
	tag := place.tag()
	if tag <= busyTag || place.state() == objects.XDPFlowStateFLOW_FREE {
		return false
	}
	flow, state, seen := place.flow(), place.state(), place.seen()
	hash := t.hashKey(&flow)
	home, second, _ := t.homes(hash)
	if home != number || second == home || tagsIn(&t.buckets[second]) == flowsPerBucket {
		return false
	}
	goElsewhere(place.bucket, tag)
	if !settleIn(&t.buckets[second], flow, hash, tag, state, seen) {
		comeHome(place.bucket)
		return false
	}
	t.release(place, tag, func(*objects.XDPFlow, objects.XDPFlowState, uint32) bool { return true })
	return true
}

// follow has the flow of a place go on as the original does: where another connection has begun
// under its key since, as that one, and where it has ended, as ended.
func (p flowPlace) follow(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
	have := p.flow()
	another := have.Backend != flow.Backend || have.Generation != flow.Generation || have.Source != flow.Source
	newer := int32(seen-p.seen()) > 0 || another && isLive(state) && !isLive(p.state())
	if newer && another && p.takeAnother(flow, state, seen) {
		return
	}
	if newer {
		atomic.StoreUint32(&p.bucket.Seen[p.at], seen)
	}
	if was := p.state(); isLive(was) && !isLive(state) {
		p.change(was, state)
	}
}

// takeAnother writes another flow of the same key into a place.
func (p flowPlace) takeAnother(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) bool {
	tag := p.tag()
	if tag <= busyTag || !p.claim(tag) {
		return false
	}
	there := p.flow()
	same := there.Address == flow.Address && there.Port == flow.Port && there.Service == flow.Service
	if same {
		storeFlow(&p.bucket.Flows[p.at], *flow)
		atomic.StoreUint32(&p.bucket.Seen[p.at], seen)
		p.exchangeState(state)
	}
	p.publish(tag)
	return same
}

// change is set_state of bpf/balancer/flow/flowtable.h: it moves a flow from one state to another, once.
func (p flowPlace) change(from, to objects.XDPFlowState) bool {
	for {
		was := atomic.LoadUint64(&p.bucket.States)
		if objects.XDPFlowState(was>>(8*p.at)&0xff) != from {
			return false
		}
		if atomic.CompareAndSwapUint64(&p.bucket.States, was, was^uint64(from^to)<<(8*p.at)) {
			return true
		}
	}
}

// eachIn calls visit with every flow of a bucket that is whole.
func (t *flowTable) eachIn(number int, visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32)) {
	(&flowTable{buckets: t.buckets[number:][:1]}).each(visit)
}

// synOf returns the sequence number of the last SYN, where full NAT has its port and address.
func synOf(flow *objects.XDPFlow) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint16(b[:], flow.Source.Port)
	binary.NativeEndian.PutUint16(b[2:], flow.Source.Address)
	return binary.BigEndian.Uint32(b[:])
}

// putSYN writes it.
func putSYN(flow *objects.XDPFlow, syn uint32) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], syn)
	flow.Source.Port, flow.Source.Address = binary.NativeEndian.Uint16(b[:]), binary.NativeEndian.Uint16(b[2:])
}
