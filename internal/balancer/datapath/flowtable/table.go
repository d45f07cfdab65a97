// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Table is a table of flows in memory that packets read and write at the same time: the control plane's part of
// bpf/balancer/flow/flowtable.h. Neither side waits for the other.
type Table struct {
	Buckets []objects.XDPFlowBucket
	secret  uint64
	// memory is the mapping to unmap; nil for a table that is no map.
	memory mapmem.Storage
}

const (
	PerBucket = int(objects.XDPFlowTableFLOW_BUCKET)
	// PlannedPerBucket is how many flows a bucket is planned for: at that load, nearly every new flow has room in one
	// of its two buckets.
	PlannedPerBucket = 5
	BucketSize       = int(unsafe.Sizeof(objects.XDPFlowBucket{}))
	BusyTag          = uint64(objects.XDPFlowTableFLOW_BUSY)
	AffinityKey      = uint32(objects.XDPFlowTableFLOW_KEY_AFFINITY)
)

// BucketsFor returns how many buckets a table for that many flows has.
func BucketsFor(flows uint32) uint32 {
	return max(uint32((uint64(flows)+PlannedPerBucket-1)/PlannedPerBucket), 1)
}

// NewTable makes a table for that many flows in this process's own memory, which no packet reads.
func NewTable(flows uint32, secret uint64) *Table {
	return &Table{Buckets: make([]objects.XDPFlowBucket, BucketsFor(flows)), secret: secret}
}

// MapTable maps a table of flows into this process's memory; Close unmaps it. The map may be closed before.
func MapTable(m *ebpf.Map, secret uint64) (*Table, error) {
	memory, err := mapmem.Map(m)
	if err != nil {
		return nil, err
	}
	return &Table{Buckets: mapmem.ElementsOf[objects.XDPFlowBucket](memory)[:m.MaxEntries()], secret: secret,
		memory: memory}, nil
}

// Close unmaps the table.
func (t *Table) Close() {
	if t != nil {
		t.memory.Unmap()
		t.memory, t.Buckets = nil, nil
	}
}

// Words is a flow as it is read and written, word by word, so that no word is torn.
type Words [4]uint64

// The third word has the service in the low half and the backend in the high half; the fourth has the client's port,
// the backend's generation and the source of full NAT.
const (
	OwnerWord       = 2
	PortWord        = 3
	backendShift    = 32
	generationShift = 16
	sourceShift     = 48
)

// WordsOf returns the memory of a flow as words.
func WordsOf(flow *objects.XDPFlow) *Words { return (*Words)(unsafe.Pointer(flow)) }

func loadFlow(from *objects.XDPFlow) (flow objects.XDPFlow) {
	to := WordsOf(&flow)
	for i := range to {
		to[i] = atomic.LoadUint64(&WordsOf(from)[i])
	}
	return flow
}

func storeFlow(to *objects.XDPFlow, flow objects.XDPFlow) {
	for i, word := range WordsOf(&flow) {
		atomic.StoreUint64(&WordsOf(to)[i], word)
	}
}

// HashKey is hash_key of bpf/balancer/flow/flowtable.h.
func (t *Table) HashKey(flow *objects.XDPFlow) uint64 {
	words := WordsOf(flow)
	key := uint64(flow.Port)<<32 | uint64(flow.Service)
	return mapmem.HashMix(t.secret + words[0]*mapmem.HashMultiplier + words[1]*mapmem.HashMultiplier2 +
		key*mapmem.HashMultiplier3)
}

func scaled(hash uint32, size int) uint32 { return uint32(uint64(hash) * uint64(size) >> 32) }

// bucketsOf returns the two buckets in which a flow of that hash may be, and its tag.
func (t *Table) bucketsOf(hash uint64) (home, second uint32, tag uint64) {
	return bucketsAmong(hash, len(t.Buckets))
}

func bucketsAmong(hash uint64, buckets int) (home, second uint32, tag uint64) {
	tag = hash & 0xffff
	if tag < 2 {
		tag += 2
	}
	return scaled(uint32(hash>>32), buckets), scaled(uint32(hash>>16)*0x9e3779b1, buckets), tag
}

// Place is one of the flows of a bucket.
type Place struct {
	Bucket *objects.XDPFlowBucket
	// At is its number in the bucket, 0 to 7.
	At int
}

func (p Place) tags() (word *uint64, shift int) { return &p.Bucket.Tags[p.At/4], p.At % 4 * 16 }

// Tag returns the tag of the place: 0 where it is free, and BusyTag while it is being written.
func (p Place) Tag() uint64 {
	word, shift := p.tags()
	return atomic.LoadUint64(word) >> shift & 0xffff
}

// Flow returns the flow of the place; it is consistent only if Tag is the same before and after.
func (p Place) Flow() objects.XDPFlow { return loadFlow(&p.Bucket.Flows[p.At]) }

// Seen returns when a packet of the flow was seen last, in milliseconds of the data plane's clock.
func (p Place) Seen() uint32 { return atomic.LoadUint32(&p.Bucket.Seen[p.At]) }

// State returns the state of the flow.
func (p Place) State() objects.XDPFlowState {
	return objects.XDPFlowState(atomic.LoadUint64(&p.Bucket.States) >> (8 * p.At) & 0xff)
}

// exchangeState sets the state, and returns the previous one.
func (p Place) exchangeState(state objects.XDPFlowState) objects.XDPFlowState {
	shift := 8 * p.At
	for {
		old := atomic.LoadUint64(&p.Bucket.States)
		if atomic.CompareAndSwapUint64(&p.Bucket.States, old, old&^(0xff<<shift)|uint64(state)<<shift) {
			return objects.XDPFlowState(old >> shift & 0xff)
		}
	}
}

// claim marks the place as busy if it has that tag; tag 0 claims a free place.
func (p Place) claim(tag uint64) bool {
	word, shift := p.tags()
	for {
		old := atomic.LoadUint64(word)
		if old>>shift&0xffff != tag {
			return false
		}
		if atomic.CompareAndSwapUint64(word, old, old^(tag^BusyTag)<<shift) {
			return true
		}
	}
}

// publish sets the tag of a claimed place; 0 frees it.
func (p Place) publish(tag uint64) {
	word, shift := p.tags()
	atomic.AddUint64(word, (tag-BusyTag)<<shift)
}

// Release frees a place if it still has that tag, and if `over` returns true for its flow while no other writer can
// claim the place. It returns the flow and its last state: once for a flow, to the caller that ends it.
func (t *Table) Release(p Place, tag uint64, over func(flow *objects.XDPFlow, state objects.XDPFlowState,
	seen uint32) bool) (flow objects.XDPFlow, state objects.XDPFlowState, released bool) {
	if tag <= BusyTag || !p.claim(tag) {
		return flow, 0, false
	}
	flow = p.Flow()
	if !over(&flow, p.State(), p.Seen()) {
		p.publish(tag)
		return flow, 0, false
	}
	// A packet that has found the flow before may still change its state, and count that: it must not find the state
	// that the caller counts.
	state = p.exchangeState(objects.XDPFlowStateFLOW_FREE)
	p.publish(0)
	home, _, _ := t.bucketsOf(t.HashKey(&flow))
	if p.Bucket != &t.Buckets[home] {
		decOverflow(&t.Buckets[home])
	}
	return flow, state, true
}

// Find returns the place of a flow.
func (t *Table) Find(key *objects.XDPFlow) (Place, bool) {
	home, second, tag := t.bucketsOf(t.HashKey(key))
	if place, ok := findIn(&t.Buckets[home], key, tag); ok ||
		atomic.LoadUint64(&t.Buckets[home].Elsewhere)&elsewhereBit(tag) == 0 {
		return place, ok
	}
	return findIn(&t.Buckets[second], key, tag)
}

func findIn(bucket *objects.XDPFlowBucket, key *objects.XDPFlow, tag uint64) (Place, bool) {
	for at := range PerBucket {
		place := Place{bucket, at}
		if place.Tag() != tag {
			continue
		}
		flow := place.Flow()
		if flow.Address == key.Address && flow.Port == key.Port && flow.Service == key.Service && place.Tag() == tag {
			return place, true
		}
	}
	return Place{}, false
}

func tagsIn(bucket *objects.XDPFlowBucket) (n int) {
	for at := range PerBucket {
		if (Place{bucket, at}).Tag() != 0 {
			n++
		}
	}
	return n
}

// homeThreshold is the number of tags in a home bucket from which on the second bucket is considered.
const homeThreshold = 6

// Insert inserts a flow into the table; false: there is no room.
func (t *Table) Insert(flow objects.XDPFlow, state objects.XDPFlowState, seen uint32) bool {
	hash := t.HashKey(&flow)
	first, other, tag := t.bucketsOf(hash)
	home, second := &t.Buckets[first], &t.Buckets[other]
	if n := tagsIn(home); n >= homeThreshold && second != home && tagsIn(second) < n {
		incOverflow(home, tag)
		if insertInto(second, flow, hash, tag, state, seen) {
			return true
		}
		decOverflow(home)
		return false
	}
	return insertInto(home, flow, hash, tag, state, seen)
}

// preferredSlot is preferred_slot_of of bpf/balancer/flow/flowtable.h.
func preferredSlot(hash uint64) int { return int(hash>>24) % PerBucket }

// elsewhereBit is overflow_bit of bpf/balancer/flow/flowtable.h.
func elsewhereBit(tag uint64) uint64 { return 1 << (32 + tag&31) }

// incOverflow counts, in a home bucket, a flow in its second bucket.
func incOverflow(home *objects.XDPFlowBucket, tag uint64) {
	for {
		old := atomic.LoadUint64(&home.Elsewhere)
		if atomic.CompareAndSwapUint64(&home.Elsewhere, old, (old+1)|elsewhereBit(tag)) {
			return
		}
	}
}

// decOverflow reverts incOverflow. With the last flow, all bits are cleared.
func decOverflow(home *objects.XDPFlowBucket) {
	for {
		old := atomic.LoadUint64(&home.Elsewhere)
		updated := old - 1
		if uint32(updated) == 0 {
			updated = 0
		}
		if atomic.CompareAndSwapUint64(&home.Elsewhere, old, updated) {
			return
		}
	}
}

// insertInto writes a flow into a bucket, and publishes it when it is complete.
func insertInto(bucket *objects.XDPFlowBucket, flow objects.XDPFlow, hash, tag uint64, state objects.XDPFlowState,
	seen uint32) bool {
	place := Place{bucket, preferredSlot(hash)}
	for at := 0; !place.claim(0); at++ {
		if at == PerBucket {
			return false
		}
		place.At = at
	}
	storeFlow(&bucket.Flows[place.At], flow)
	atomic.StoreUint32(&bucket.Seen[place.At], seen)
	place.exchangeState(state)
	place.publish(tag)
	return true
}

// Source is a table whose flows are copied into another table.
type Source interface {
	// Each calls visit with every complete flow, its state and when it was last seen.
	Each(visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32))
}

// Each calls visit with every complete flow, its state and when it was last seen.
func (t *Table) Each(visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32)) {
	for i := range t.Buckets {
		if atomic.LoadUint64(&t.Buckets[i].Tags[0])|atomic.LoadUint64(&t.Buckets[i].Tags[1]) == 0 {
			continue
		}
		for at := range PerBucket {
			place := Place{&t.Buckets[i], at}
			tag := place.Tag()
			if tag <= BusyTag {
				continue
			}
			flow, state, seen := place.Flow(), place.State(), place.Seen()
			if place.Tag() == tag && state != objects.XDPFlowStateFLOW_FREE {
				visit(&flow, state, seen)
			}
		}
	}
}

// CopyFrom copies flows from another table, of another size or layout, that this one lacks, and updates those that have
// changed there since. It calls copied for each flow that it copies, unless copied is nil, and returns how many had no
// room. Called once before packets use the new table, and once after they have stopped using the old one, it loses no
// flow that begins in between. Places change: return entries (struct return_bucket) are not updated.
func (t *Table) CopyFrom(old Source, copied func(flow *objects.XDPFlow)) (lost int) {
	old.Each(func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
		switch place, found := t.Find(flow); {
		case found:
			place.update(flow, state, seen)
		case !t.Insert(*flow, state, seen) && !(t.makeRoom(flow) && t.Insert(*flow, state, seen)):
			lost++
		case copied != nil:
			copied(flow)
		}
	})
	return lost
}

// makeRoom makes room for a flow whose two buckets are full: it moves one of the flows there to its own second bucket,
// and reports whether it could. Without it, about seventeen flows in a million have no room in a table at its planned
// load.
func (t *Table) makeRoom(flow *objects.XDPFlow) bool {
	home, second, _ := t.bucketsOf(t.HashKey(flow))
	for _, number := range [...]uint32{home, second} {
		for at := range PerBucket {
			if t.displace(number, at) {
				return true
			}
		}
	}
	return false
}

// displace moves a flow from its home bucket to its second one. A packet looks into the home bucket first, so it finds
// the flow in one of them at any time, though perhaps without the time of the last packet. A move from the second
// bucket to the home bucket would hide the flow from packets for a moment.
func (t *Table) displace(number uint32, at int) bool {
	place := Place{&t.Buckets[number], at}
	tag := place.Tag()
	if tag <= BusyTag || place.State() == objects.XDPFlowStateFLOW_FREE {
		return false
	}
	flow, state, seen := place.Flow(), place.State(), place.Seen()
	hash := t.HashKey(&flow)
	home, second, _ := t.bucketsOf(hash)
	if home != number || second == home || tagsIn(&t.Buckets[second]) == PerBucket {
		return false
	}
	incOverflow(place.Bucket, tag)
	if !insertInto(&t.Buckets[second], flow, hash, tag, state, seen) {
		decOverflow(place.Bucket)
		return false
	}
	t.Release(place, tag, func(*objects.XDPFlow, objects.XDPFlowState, uint32) bool { return true })
	return true
}

// update updates the copy of a flow in a place: with another connection that has begun under its key since, and with
// its end.
func (p Place) update(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
	current := p.Flow()
	another := current.Backend != flow.Backend || current.Generation != flow.Generation || current.Source != flow.Source
	newer := int32(seen-p.Seen()) > 0 || another && IsLive(state) && !IsLive(p.State())
	if newer && another && p.Replace(flow, state, seen) {
		return
	}
	if newer {
		atomic.StoreUint32(&p.Bucket.Seen[p.At], seen)
	}
	if old := p.State(); IsLive(old) && !IsLive(state) {
		p.SetState(old, state)
	}
}

// Replace writes another flow of the same key into a place.
func (p Place) Replace(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) bool {
	tag := p.Tag()
	if tag <= BusyTag || !p.claim(tag) {
		return false
	}
	current := p.Flow()
	same := current.Address == flow.Address && current.Port == flow.Port && current.Service == flow.Service
	if same {
		storeFlow(&p.Bucket.Flows[p.At], *flow)
		atomic.StoreUint32(&p.Bucket.Seen[p.At], seen)
		p.exchangeState(state)
	}
	p.publish(tag)
	return same
}

// SetState is set_state of bpf/balancer/flow/flowtable.h: it moves a flow from one state to another, once.
func (p Place) SetState(from, to objects.XDPFlowState) bool {
	for {
		old := atomic.LoadUint64(&p.Bucket.States)
		if objects.XDPFlowState(old>>(8*p.At)&0xff) != from {
			return false
		}
		if atomic.CompareAndSwapUint64(&p.Bucket.States, old, old^uint64(from^to)<<(8*p.At)) {
			return true
		}
	}
}

// EachIn calls visit with every complete flow of a bucket.
func (t *Table) EachIn(number int, visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32)) {
	(&Table{Buckets: t.Buckets[number:][:1]}).Each(visit)
}

// SynOf returns the sequence number of the last SYN, which modes but full NAT store in the field of full NAT's source.
func SynOf(flow *objects.XDPFlow) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint16(b[:], flow.Source.Port)
	binary.NativeEndian.PutUint16(b[2:], flow.Source.Address)
	return binary.BigEndian.Uint32(b[:])
}

// PutSYN stores the sequence number of the last SYN.
func PutSYN(flow *objects.XDPFlow, syn uint32) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], syn)
	flow.Source.Port, flow.Source.Address = binary.NativeEndian.Uint16(b[:]), binary.NativeEndian.Uint16(b[2:])
}

// IsLive reports whether neither side has ended a flow in that state.
func IsLive(state objects.XDPFlowState) bool {
	return state-objects.XDPFlowStateFLOW_OPENING <= objects.XDPFlowStateFLOW_UDP-objects.XDPFlowStateFLOW_OPENING
}
