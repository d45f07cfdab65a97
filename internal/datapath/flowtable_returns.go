// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"sync/atomic"

	"github.com/cilium/ebpf"
)

// returnTable finds full-NAT flows by what their replies bear: the control plane's part
// of bpf/balancer/flow/returntable.h. Packets leave entries of flows that have ended where they are:
// such an entry leads nowhere. They are only in the way of new ones, so that there is no
// hurry to take them out; each is looked at together with the place that it leads to,
// which is where no cache helps.
type returnTable struct {
	buckets []xdpReturnBucket
	memory  storage
}

const (
	returnsPerBucket = int(xdpReturnTableRETURN_BUCKET)
	returnProven     = uint32(xdpReturnTableRETURN_PROVEN)
)

// mapReturnTable maps the table into our memory; close takes it out.
func mapReturnTable(m *ebpf.Map) (*returnTable, error) {
	memory, err := mapped(m)
	if err != nil {
		return nil, err
	}
	return &returnTable{buckets: elements[xdpReturnBucket](memory)[:m.MaxEntries()], memory: memory}, nil
}

func (t *returnTable) close() {
	if t != nil {
		t.memory.unmap()
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
	if !ok || to.tag() == 0 || to.state() == xdpFlowStateFLOW_FREE {
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

func (s *flowScene) takeOut(bucket *xdpReturnBucket, at int, word *uint64, shift int) bool {
	was := atomic.LoadUint64(word)
	place, owner := atomic.LoadUint32(&bucket.Places[at]), atomic.LoadUint32(&bucket.Owners[at])
	if was>>shift&0xffff <= busyTag || s.leads(place, owner) {
		return false
	}
	// A flow that is proven leaves its old place after its entry leads to the new one.
	return atomic.LoadUint32(&bucket.Places[at]) == place && atomic.LoadUint32(&bucket.Owners[at]) == owner &&
		atomic.CompareAndSwapUint64(word, was, was&^(0xffff<<shift))
}
