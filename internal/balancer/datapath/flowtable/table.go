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

// Table is a table of flows in memory that packets read and write at the same time:
// the control plane's part of bpf/balancer/flow/flowtable.h. Nothing here waits for packets, and
// packets never wait for it.
type Table struct {
	Buckets []objects.XDPFlowBucket
	secret  uint64
	// memory is the mapping to be unmapped; nil of a table that is no map.
	memory mapmem.Storage
}

const (
	PerBucket = int(objects.XDPFlowTableFLOW_BUCKET)
	// PlannedPerBucket is how many flows a bucket is planned for: where so many are in
	// each, nearly every new one finds room in one of its two.
	PlannedPerBucket = 5
	BucketSize       = int(unsafe.Sizeof(objects.XDPFlowBucket{}))
	BusyTag          = uint64(objects.XDPFlowTableFLOW_BUSY)
	AffinityKey      = uint32(objects.XDPFlowTableFLOW_KEY_AFFINITY)
)

// BucketsFor returns how many buckets a table for that many flows has.
func BucketsFor(flows uint32) uint32 {
	return max(uint32((uint64(flows)+PlannedPerBucket-1)/PlannedPerBucket), 1)
}

// NewTable makes a table for that many flows in memory of this program's own, which no packet reads.
func NewTable(flows uint32, secret uint64) *Table {
	return &Table{Buckets: make([]objects.XDPFlowBucket, BucketsFor(flows)), secret: secret}
}

// MapTable maps a table of flows into our memory; close takes it out. The map may be
// closed before.
func MapTable(m *ebpf.Map, secret uint64) (*Table, error) {
	memory, err := mapmem.Map(m)
	if err != nil {
		return nil, err
	}
	return &Table{Buckets: mapmem.ElementsOf[objects.XDPFlowBucket](memory)[:m.MaxEntries()], secret: secret,
		memory: memory}, nil
}

// Close takes the table out of our memory.
func (t *Table) Close() {
	if t != nil {
		t.memory.Unmap()
		t.memory, t.Buckets = nil, nil
	}
}

// Words is a flow as it is read and written: no two halves of a word are of
// different times.
type Words [4]uint64

// In the third word: the service in the low half, the backend in the high one. In the
// fourth: the port, and then the backend's generation.
const (
	OwnerWord       = 2
	PortWord        = 3
	backendShift    = 32
	generationShift = 16
	sourceShift     = 48
)

// WordsOf returns the words of a flow, which are the flow's own memory.
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
	of := WordsOf(flow)
	key := uint64(flow.Port)<<32 | uint64(flow.Service)
	return mapmem.HashMix(t.secret + of[0]*mapmem.HashMultiplier + of[1]*mapmem.HashMultiplier2 +
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
	// At is its number there, 0 to 7.
	At int
}

func (p Place) tags() (word *uint64, shift int) { return &p.Bucket.Tags[p.At/4], p.At % 4 * 16 }

// Tag returns the tag of the place: 0 where it is free, and BusyTag while somebody writes it.
func (p Place) Tag() uint64 {
	word, shift := p.tags()
	return atomic.LoadUint64(word) >> shift & 0xffff
}

// Flow returns the flow of the place; it is whole only if Tag is the same before and after.
func (p Place) Flow() objects.XDPFlow { return loadFlow(&p.Bucket.Flows[p.At]) }

// Seen returns when a packet of the flow was seen last, in milliseconds of the data plane's clock.
func (p Place) Seen() uint32 { return atomic.LoadUint32(&p.Bucket.Seen[p.At]) }

// State returns the state of the flow.
func (p Place) State() objects.XDPFlowState {
	return objects.XDPFlowState(atomic.LoadUint64(&p.Bucket.States) >> (8 * p.At) & 0xff)
}

// exchangeState puts a state in the place of another, and returns that.
func (p Place) exchangeState(state objects.XDPFlowState) objects.XDPFlowState {
	shift := 8 * p.At
	for {
		was := atomic.LoadUint64(&p.Bucket.States)
		if atomic.CompareAndSwapUint64(&p.Bucket.States, was, was&^(0xff<<shift)|uint64(state)<<shift) {
			return objects.XDPFlowState(was >> shift & 0xff)
		}
	}
}

// claim takes the place if it has that tag; 0 claims a free one.
func (p Place) claim(tag uint64) bool {
	word, shift := p.tags()
	for {
		was := atomic.LoadUint64(word)
		if was>>shift&0xffff != tag {
			return false
		}
		if atomic.CompareAndSwapUint64(word, was, was^(tag^BusyTag)<<shift) {
			return true
		}
	}
}

// publish gives a claimed place a tag; 0 makes it free.
func (p Place) publish(tag uint64) {
	word, shift := p.tags()
	atomic.AddUint64(word, (tag-BusyTag)<<shift)
}

// Release forgets the flow of a place if it still has that tag, and if `over` is true for its flow when no other writer
// can take the place. It returns the flow and the state that it had: once for a flow, to the caller that ends it.
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
	// A packet that has found the flow before may yet want to change its state, and
	// count it: it must not find the one that we count.
	state = p.exchangeState(objects.XDPFlowStateFLOW_FREE)
	p.publish(0)
	home, _, _ := t.bucketsOf(t.HashKey(&flow))
	if p.Bucket != &t.Buckets[home] {
		decOverflow(&t.Buckets[home])
	}
	return flow, state, true
}

// Find returns where a flow is.
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

// homeThreshold is how many tags a home bucket has from which on the second is looked at.
const homeThreshold = 6

// Insert puts a flow into the table; false says that there is no room.
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

// incOverflow notes in a home bucket that a flow is in its second one.
func incOverflow(home *objects.XDPFlowBucket, tag uint64) {
	for {
		was := atomic.LoadUint64(&home.Elsewhere)
		if atomic.CompareAndSwapUint64(&home.Elsewhere, was, (was+1)|elsewhereBit(tag)) {
			return
		}
	}
}

// decOverflow takes the count back. With the last flow, the bits of all are cleared.
func decOverflow(home *objects.XDPFlowBucket) {
	for {
		was := atomic.LoadUint64(&home.Elsewhere)
		updated := was - 1
		if uint32(updated) == 0 {
			updated = 0
		}
		if atomic.CompareAndSwapUint64(&home.Elsewhere, was, updated) {
			return
		}
	}
}

// insertInto writes a flow into a bucket, for others to see when it is whole.
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

// Source is a table of flows that another table takes over.
type Source interface {
	// Each calls visit with every flow that is whole, its state and when it was last seen.
	Each(visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32))
}

// Each calls visit with every flow that is whole, its state and when it was last seen.
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

// CopyFrom copies the flows of a table into one of another size or layout that does not have them yet, and updates
// those there that have changed here since. It calls arrived for each that it copies, unless that is nil, and returns
// for how many there is no room. Once before packets use the new table and once after they have left the old one, it
// loses no flow that begins in between. Places change: what leads to them (struct return_bucket) does not follow.
func (t *Table) CopyFrom(old Source, arrived func(flow *objects.XDPFlow)) (lost int) {
	old.Each(func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
		switch place, there := t.Find(flow); {
		case there:
			place.update(flow, state, seen)
		case !t.Insert(*flow, state, seen) && !(t.makeRoom(flow) && t.Insert(*flow, state, seen)):
			lost++
		case arrived != nil:
			arrived(flow)
		}
	})
	return lost
}

// makeRoom makes room for a flow whose two buckets are full: it moves one of the flows there to that one's second
// bucket, and reports whether one could move. Without it, some seventeen in a million flows find no room in a table
// that is as full as it is planned for.
func (t *Table) makeRoom(of *objects.XDPFlow) bool {
	home, second, _ := t.bucketsOf(t.HashKey(of))
	for _, number := range [...]uint32{home, second} {
		for at := range PerBucket {
			if t.displace(number, at) {
				return true
			}
		}
	}
	return false
}

// displace moves a flow from its home bucket to its second one. A packet looks at the home first, so it finds the flow
// in one of them at any time, though perhaps without the time of the last packet. A move from the second bucket to the
// home would hide the flow from a packet for a moment.
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

// update brings the copy in a place up to date with the original: with another connection that has begun under its key
// since, and with its end.
func (p Place) update(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
	have := p.Flow()
	another := have.Backend != flow.Backend || have.Generation != flow.Generation || have.Source != flow.Source
	newer := int32(seen-p.Seen()) > 0 || another && IsLive(state) && !IsLive(p.State())
	if newer && another && p.Replace(flow, state, seen) {
		return
	}
	if newer {
		atomic.StoreUint32(&p.Bucket.Seen[p.At], seen)
	}
	if was := p.State(); IsLive(was) && !IsLive(state) {
		p.SetState(was, state)
	}
}

// Replace writes another flow of the same key into a place.
func (p Place) Replace(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) bool {
	tag := p.Tag()
	if tag <= BusyTag || !p.claim(tag) {
		return false
	}
	there := p.Flow()
	same := there.Address == flow.Address && there.Port == flow.Port && there.Service == flow.Service
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
		was := atomic.LoadUint64(&p.Bucket.States)
		if objects.XDPFlowState(was>>(8*p.At)&0xff) != from {
			return false
		}
		if atomic.CompareAndSwapUint64(&p.Bucket.States, was, was^uint64(from^to)<<(8*p.At)) {
			return true
		}
	}
}

// EachIn calls visit with every flow of a bucket that is whole.
func (t *Table) EachIn(number int, visit func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32)) {
	(&Table{Buckets: t.Buckets[number:][:1]}).Each(visit)
}

// SynOf returns the sequence number of the last SYN, where full NAT has its port and address.
func SynOf(flow *objects.XDPFlow) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint16(b[:], flow.Source.Port)
	binary.NativeEndian.PutUint16(b[2:], flow.Source.Address)
	return binary.BigEndian.Uint32(b[:])
}

// PutSYN writes that number.
func PutSYN(flow *objects.XDPFlow, syn uint32) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], syn)
	flow.Source.Port, flow.Source.Address = binary.NativeEndian.Uint16(b[:]), binary.NativeEndian.Uint16(b[2:])
}

// IsLive reports whether a flow in that state counts among those that neither side has ended.
func IsLive(state objects.XDPFlowState) bool {
	return state-objects.XDPFlowStateFLOW_OPENING <= objects.XDPFlowStateFLOW_UDP-objects.XDPFlowStateFLOW_OPENING
}
