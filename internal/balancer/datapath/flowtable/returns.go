// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// ReturnTable finds full-NAT flows by the 5-tuple of their replies: the control plane's part of
// bpf/balancer/flow/returntable.h. Packets do not remove the entries of ended flows, which then lead nowhere. Such
// entries only occupy room, so that they may be removed slowly: checking an entry also reads the place that it refers
// to, which is seldom in a cache.
type ReturnTable struct {
	Buckets []objects.XDPReturnBucket
	memory  mapmem.Storage
}

const (
	ReturnsPerBucket = int(objects.XDPReturnTableRETURN_BUCKET)
	ReturnProven     = uint32(objects.XDPReturnTableRETURN_PROVEN)
)

// MapReturns maps the table into this process's memory; Close unmaps it.
func MapReturns(m *ebpf.Map) (*ReturnTable, error) {
	memory, err := mapmem.Map(m)
	if err != nil {
		return nil, err
	}
	return &ReturnTable{Buckets: mapmem.ElementsOf[objects.XDPReturnBucket](memory)[:m.MaxEntries()], memory: memory},
		nil
}

// Close unmaps the table.
func (t *ReturnTable) Close() {
	if t != nil {
		t.memory.Unmap()
		t.memory, t.Buckets = nil, nil
	}
}

// ReturnBucketsFor returns the number of buckets for that many flows: 4 for every 15.
func ReturnBucketsFor(flows uint64) uint32 { return uint32((flows*4 + 14) / 15) }

// At returns the place of a table with that number, from 1.
func (t *Table) At(number uint32) (Place, bool) {
	bucket, at := (number-1)/uint32(PerBucket), (number-1)%uint32(PerBucket)
	if number == 0 || int(bucket) >= len(t.Buckets) {
		return Place{}, false
	}
	return Place{&t.Buckets[bucket], int(at)}, true
}

// Number returns the number of a place of the table, from 1.
func (t *Table) Number(p Place) uint32 {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(t.Buckets)))
	bucket := (uintptr(unsafe.Pointer(p.Bucket)) - first) / uintptr(BucketSize)
	return uint32(bucket)*uint32(PerBucket) + uint32(p.At) + 1
}

// ReplyKeys computes the 5-tuples of replies to flows of full NAT, as of a configuration.
type ReplyKeys struct {
	Secret uint64
	// Pool are the pool's addresses of each family, by their numbers.
	Pool [2][]mapmem.Address
	// Protocols has the protocols of the full-NAT services, by id, and Ends the sources of their backends' replies, by
	// index.
	Protocols map[uint32]uint8
	Ends      map[uint32]BackendEnd
}

// BackendEnd is the source of a backend's replies.
type BackendEnd struct {
	Generation uint16
	Address    mapmem.Address
	Port       uint16
	Family     int
	// Local is the balancer's own address towards the backend, zeros while that is not known.
	Local mapmem.Address
}

// AddReturns inserts a return entry for each full-NAT flow of two tables that has none. It does nothing where there is
// no table of returns.
func (r *ReplyKeys) AddReturns(to *ReturnTable, proven, unproven *Table) {
	if to == nil || len(r.Protocols) == 0 {
		return
	}
	for _, source := range []struct {
		table *Table
		mark  uint32
	}{{proven, ReturnProven}, {unproven, 0}} {
		for i := range source.table.Buckets {
			bucket := &source.table.Buckets[i]
			if atomic.LoadUint64(&bucket.Tags[0])|atomic.LoadUint64(&bucket.Tags[1]) == 0 {
				continue
			}
			for at := range PerBucket {
				place := Place{bucket, at}
				if place.Tag() <= BusyTag || place.State() == objects.XDPFlowStateFLOW_FREE {
					continue
				}
				flow := place.Flow()
				if hash, ok := r.Hash(&flow); ok {
					to.Put(hash, source.table.Number(place)|source.mark, uint32(source.table.HashKey(&flow)))
				}
			}
		}
	}
}

// Hash is hash_return of bpf/balancer/flow/returntable.h, of the replies to a flow; false where the flow is no full-NAT
// flow.
func (r *ReplyKeys) Hash(flow *objects.XDPFlow) (uint64, bool) {
	protocol, ok := r.Protocols[flow.Service]
	end, known := r.Ends[flow.Backend]
	if !ok || !known || end.Generation != flow.Generation || flow.Source.Port == 0 {
		return 0, false
	}
	pool, has := r.source(flow, &end)
	if !has {
		return 0, false
	}
	word := func(address mapmem.Address, at int) uint64 { return uint64(address[at+1])<<32 | uint64(address[at]) }
	h := r.Secret + (uint64(end.Port)<<48|uint64(flow.Source.Port)<<32|uint64(protocol))*mapmem.HashMultiplier3
	h += word(end.Address, 0)*mapmem.HashMultiplier + word(pool, 0)*mapmem.HashMultiplier4
	if end.Family == 1 {
		h += word(end.Address, 2)*mapmem.HashMultiplier2 + word(pool, 2)*mapmem.HashMultiplier5
	}
	return mapmem.HashMix(h), true
}

// source returns the source address of a flow's packets to its backend; false where there is none.
func (r *ReplyKeys) source(flow *objects.XDPFlow, end *BackendEnd) (mapmem.Address, bool) {
	if flow.Source.Address == uint16(objects.XDPAgreementPOOL_LOCAL) {
		return end.Local, end.Local != mapmem.Address{}
	}
	if int(flow.Source.Address) >= len(r.Pool[end.Family]) {
		return mapmem.Address{}, false
	}
	address := r.Pool[end.Family][flow.Source.Address]
	return address, address != mapmem.Address{}
}

// Put inserts an entry for a place, unless there is one: insert_return of bpf/balancer/flow/returntable.h, but into
// free places only. It returns false where none is free.
func (t *ReturnTable) Put(hash uint64, place, owner uint32) bool {
	home, second, tag := bucketsAmong(hash, len(t.Buckets))
	first, other := &t.Buckets[home], &t.Buckets[second]
	if pointsTo(first, tag, place, owner) || pointsTo(other, tag, place, owner) {
		return true
	}
	if returnsIn(other) < returnsIn(first) {
		first, other = other, first
	}
	return putReturn(first, tag, place, owner) || putReturn(other, tag, place, owner)
}

// PlacesOf calls visit with the place that each entry of a hash refers to, until visit returns false, and reports
// whether it visited all.
func (t *ReturnTable) PlacesOf(hash uint64, visit func(number uint32) bool) bool {
	home, second, tag := bucketsAmong(hash, len(t.Buckets))
	for _, number := range [...]uint32{home, second} {
		bucket := &t.Buckets[number]
		for at := range ReturnsPerBucket {
			if atomic.LoadUint64(&bucket.Tags[at/4])>>(at%4*16)&0xffff == tag &&
				!visit(atomic.LoadUint32(&bucket.Places[at])) {
				return false
			}
		}
	}
	return true
}

func pointsTo(bucket *objects.XDPReturnBucket, tag uint64, place, owner uint32) bool {
	for at := range ReturnsPerBucket {
		if atomic.LoadUint64(&bucket.Tags[at/4])>>(at%4*16)&0xffff == tag &&
			atomic.LoadUint32(&bucket.Places[at]) == place && atomic.LoadUint32(&bucket.Owners[at]) == owner {
			return true
		}
	}
	return false
}

func returnsIn(bucket *objects.XDPReturnBucket) (n int) {
	for at := range ReturnsPerBucket {
		if atomic.LoadUint64(&bucket.Tags[at/4])>>(at%4*16)&0xffff != 0 {
			n++
		}
	}
	return n
}

func putReturn(bucket *objects.XDPReturnBucket, tag uint64, place, owner uint32) bool {
	for at := range ReturnsPerBucket {
		word, shift := &bucket.Tags[at/4], at%4*16
		for old := atomic.LoadUint64(word); old>>shift&0xffff == 0; old = atomic.LoadUint64(word) {
			if !atomic.CompareAndSwapUint64(word, old, old|BusyTag<<shift) {
				continue
			}
			atomic.StoreUint32(&bucket.Places[at], place)
			atomic.StoreUint32(&bucket.Owners[at], owner)
			atomic.AddUint64(word, (tag-BusyTag)<<shift)
			return true
		}
	}
	return false
}
