// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// IsValidReturn reports whether a return entry still refers to its flow.
func (s *JanitorInput) IsValidReturn(place, owner uint32) bool {
	table := s.Newcomers
	if place&ReturnProven != 0 {
		table = s.Flows
	}
	to, ok := table.At(place &^ ReturnProven)
	if !ok || to.Tag() == 0 || to.State() == objects.XDPFlowStateFLOW_FREE {
		return false
	}
	flow := to.Flow()
	return uint32(table.HashKey(&flow)) == owner
}

// walkReturns iterates over the buckets from..to-1 of the table of returns, removes the entries without a flow, and
// returns their number.
func (s *JanitorInput) walkReturns(from, to int) (freed int) {
	for i := from; i < to; i++ {
		bucket := &s.Returns.Buckets[i]
		for at := range ReturnsPerBucket {
			word, shift := &bucket.Tags[at/4], at%4*16
			if atomic.LoadUint64(word)>>shift&0xffff > BusyTag && s.removeReturn(bucket, at, word, shift) {
				freed++
			}
		}
	}
	return freed
}

func (s *JanitorInput) removeReturn(bucket *objects.XDPReturnBucket, at int, word *uint64, shift int) bool {
	old := atomic.LoadUint64(word)
	place, owner := atomic.LoadUint32(&bucket.Places[at]), atomic.LoadUint32(&bucket.Owners[at])
	if old>>shift&0xffff <= BusyTag || s.IsValidReturn(place, owner) {
		return false
	}
	// A flow that becomes proven updates its return entry before it leaves its old place.
	return atomic.LoadUint32(&bucket.Places[at]) == place && atomic.LoadUint32(&bucket.Owners[at]) == owner &&
		atomic.CompareAndSwapUint64(word, old, old&^(0xffff<<shift))
}
