// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// returnTable finds full-NAT flows by what their replies bear: the control plane's part
// of bpf/balancer/flow/returntable.h. Packets leave entries of flows that have ended where they are:
// such an entry leads nowhere. They only take up room that new ones need, so that there is no
// hurry to take them out; each is looked at together with the place that it leads to,
// which is where no cache helps.
type returnTable struct {
	buckets []objects.XDPReturnBucket
	memory  mapmem.Storage
}

const (
	returnsPerBucket = int(objects.XDPReturnTableRETURN_BUCKET)
	returnProven     = uint32(objects.XDPReturnTableRETURN_PROVEN)
)

// mapReturnTable maps the table into our memory; close takes it out.
func mapReturnTable(m *ebpf.Map) (*returnTable, error) {
	memory, err := mapmem.Map(m)
	if err != nil {
		return nil, err
	}
	return &returnTable{buckets: mapmem.ElementsOf[objects.XDPReturnBucket](memory)[:m.MaxEntries()], memory: memory}, nil
}

func (t *returnTable) close() {
	if t != nil {
		t.memory.Unmap()
		t.memory, t.buckets = nil, nil
	}
}

// returnBucketsFor returns how many buckets there are for so many flows: 15 flows in 4.
func returnBucketsFor(flows uint64) uint32 { return uint32((flows*4 + 14) / 15) }

// at returns the place of a table with that number, from 1.
func (t *flowTable) at(number uint32) (flowPlace, bool) {
	bucket, at := (number-1)/uint32(flowsPerBucket), (number-1)%uint32(flowsPerBucket)
	if number == 0 || int(bucket) >= len(t.buckets) {
		return flowPlace{}, false
	}
	return flowPlace{&t.buckets[bucket], int(at)}, true
}

// leads says whether an entry leads to its owner's flow.
func (s *flowScene) leads(place, owner uint32) bool {
	table := s.newcomers
	if place&returnProven != 0 {
		table = s.flows
	}
	to, ok := table.at(place &^ returnProven)
	if !ok || to.tag() == 0 || to.state() == objects.XDPFlowStateFLOW_FREE {
		return false
	}
	flow := to.flow()
	return uint32(table.hashKey(&flow)) == owner
}

// walkReturns goes over the buckets from..to-1 of the table, and takes out the entries
// that lead nowhere. It returns how many.
func (s *flowScene) walkReturns(from, to int) (freed int) {
	for i := from; i < to; i++ {
		bucket := &s.returns.buckets[i]
		for at := range returnsPerBucket {
			word, shift := &bucket.Tags[at/4], at%4*16
			if atomic.LoadUint64(word)>>shift&0xffff > busyTag && s.takeOut(bucket, at, word, shift) {
				freed++
			}
		}
	}
	return freed
}

func (s *flowScene) takeOut(bucket *objects.XDPReturnBucket, at int, word *uint64, shift int) bool {
	was := atomic.LoadUint64(word)
	place, owner := atomic.LoadUint32(&bucket.Places[at]), atomic.LoadUint32(&bucket.Owners[at])
	if was>>shift&0xffff <= busyTag || s.leads(place, owner) {
		return false
	}
	// A flow that is proven leaves its old place after its entry leads to the new one.
	return atomic.LoadUint32(&bucket.Places[at]) == place && atomic.LoadUint32(&bucket.Owners[at]) == owner &&
		atomic.CompareAndSwapUint64(word, was, was&^(0xffff<<shift))
}

// number returns that of a place of the table, from 1.
func (t *flowTable) number(p flowPlace) uint32 {
	bucket := (uintptr(unsafe.Pointer(p.bucket)) - uintptr(unsafe.Pointer(unsafe.SliceData(t.buckets)))) / uintptr(bucketSize)
	return uint32(bucket)*uint32(flowsPerBucket) + uint32(p.at) + 1
}

// returnsOf knows what replies bear to flows of full NAT, once a change is made.
type returnsOf struct {
	secret uint64
	// pool are its addresses of each family, by their numbers.
	pool [2][]mapmem.Address
	// protocols are those of services of full NAT, by id, and ends those of their backends, by index.
	protocols map[uint32]uint8
	ends      map[uint32]backendEnd
}

// backendEnd is where the replies of a backend come from.
type backendEnd struct {
	generation uint16
	address    mapmem.Address
	port       uint16
	family     int
	// local is the address that it knows us by, zeros while that is not known.
	local mapmem.Address
}

// lead makes an entry of a table of returns for each flow of full NAT of two tables that none leads to. It does nothing
// where there is no table of returns.
func (r *returnsOf) lead(to *returnTable, proven, unproven *flowTable) {
	if to == nil || len(r.protocols) == 0 {
		return
	}
	for _, table := range []struct {
		of   *flowTable
		mark uint32
	}{{proven, returnProven}, {unproven, 0}} {
		for i := range table.of.buckets {
			bucket := &table.of.buckets[i]
			if atomic.LoadUint64(&bucket.Tags[0])|atomic.LoadUint64(&bucket.Tags[1]) == 0 {
				continue
			}
			for at := range flowsPerBucket {
				place := flowPlace{bucket, at}
				if place.tag() <= busyTag || place.state() == objects.XDPFlowStateFLOW_FREE {
					continue
				}
				flow := place.flow()
				if hash, is := r.hash(&flow); is {
					to.put(hash, table.of.number(place)|table.mark, uint32(table.of.hashKey(&flow)))
				}
			}
		}
	}
}

// hash is hash_return of bpf/balancer/flow/returntable.h, of the replies to a flow; false where it is
// none of full NAT.
func (r *returnsOf) hash(flow *objects.XDPFlow) (uint64, bool) {
	protocol, is := r.protocols[flow.Service]
	end, known := r.ends[flow.Backend]
	if !is || !known || end.generation != flow.Generation || flow.Source.Port == 0 {
		return 0, false
	}
	pool, has := r.source(flow, &end)
	if !has {
		return 0, false
	}
	word := func(of mapmem.Address, at int) uint64 { return uint64(of[at+1])<<32 | uint64(of[at]) }
	h := r.secret + (uint64(end.port)<<48|uint64(flow.Source.Port)<<32|uint64(protocol))*mapmem.HashMultiplier3
	h += word(end.address, 0)*mapmem.HashMultiplier + word(pool, 0)*mapmem.HashMultiplier4
	if end.family == 1 {
		h += word(end.address, 2)*mapmem.HashMultiplier2 + word(pool, 2)*mapmem.HashMultiplier5
	}
	return mapmem.HashMix(h), true
}

// source is the address that a flow to a backend is sent from; false where there is none.
func (r *returnsOf) source(flow *objects.XDPFlow, end *backendEnd) (mapmem.Address, bool) {
	if flow.Source.Address == uint16(objects.XDPAgreementPOOL_LOCAL) {
		return end.local, end.local != mapmem.Address{}
	}
	if int(flow.Source.Address) >= len(r.pool[end.family]) {
		return mapmem.Address{}, false
	}
	address := r.pool[end.family][flow.Source.Address]
	return address, address != mapmem.Address{}
}

// put makes an entry for a place, unless there is one: insert_return of bpf/balancer/flow/returntable.h,
// into places that are free. False where there is none.
func (t *returnTable) put(hash uint64, place, owner uint32) bool {
	home, second, tag := homesAmong(hash, len(t.buckets))
	first, other := &t.buckets[home], &t.buckets[second]
	if leadsTo(first, tag, place, owner) || leadsTo(other, tag, place, owner) {
		return true
	}
	if returnsIn(other) < returnsIn(first) {
		first, other = other, first
	}
	return putReturn(first, tag, place, owner) || putReturn(other, tag, place, owner)
}

// placesOf calls visit with the place to which each entry of a hash leads, until that says no, and returns whether it went over all.
func (t *returnTable) placesOf(hash uint64, visit func(number uint32) bool) bool {
	home, second, tag := homesAmong(hash, len(t.buckets))
	for _, number := range [...]uint32{home, second} {
		bucket := &t.buckets[number]
		for at := range returnsPerBucket {
			if atomic.LoadUint64(&bucket.Tags[at/4])>>(at%4*16)&0xffff == tag && !visit(atomic.LoadUint32(&bucket.Places[at])) {
				return false
			}
		}
	}
	return true
}

func leadsTo(bucket *objects.XDPReturnBucket, tag uint64, place, owner uint32) bool {
	for at := range returnsPerBucket {
		if atomic.LoadUint64(&bucket.Tags[at/4])>>(at%4*16)&0xffff == tag &&
			atomic.LoadUint32(&bucket.Places[at]) == place && atomic.LoadUint32(&bucket.Owners[at]) == owner {
			return true
		}
	}
	return false
}

func returnsIn(bucket *objects.XDPReturnBucket) (n int) {
	for at := range returnsPerBucket {
		if atomic.LoadUint64(&bucket.Tags[at/4])>>(at%4*16)&0xffff != 0 {
			n++
		}
	}
	return n
}

func putReturn(bucket *objects.XDPReturnBucket, tag uint64, place, owner uint32) bool {
	for at := range returnsPerBucket {
		word, shift := &bucket.Tags[at/4], at%4*16
		for was := atomic.LoadUint64(word); was>>shift&0xffff == 0; was = atomic.LoadUint64(word) {
			if !atomic.CompareAndSwapUint64(word, was, was|busyTag<<shift) {
				continue
			}
			atomic.StoreUint32(&bucket.Places[at], place)
			atomic.StoreUint32(&bucket.Owners[at], owner)
			atomic.AddUint64(word, (tag-busyTag)<<shift)
			return true
		}
	}
	return false
}
