// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Places lists the places of a table that have a flow.
func (t *Table) Places() (list []Place) {
	for i := range t.Buckets {
		for at := range PerBucket {
			if place := (Place{&t.Buckets[i], at}); place.Tag() != 0 {
				list = append(list, place)
			}
		}
	}
	return list
}

// Check returns the inconsistencies of a table that is not being written: a place that is marked as busy, a flow that a
// lookup does not find or that has two entries, and a bucket with a wrong count of flows in their second bucket.
func (t *Table) Check() string {
	var problems strings.Builder
	overflowed := make([]uint32, len(t.Buckets))
	seen := map[objects.XDPFlow]bool{}
	for _, place := range t.Places() {
		flow := place.Flow()
		home, second, tag := t.bucketsOf(t.HashKey(&flow))
		if place.Tag() != tag || place.State() == objects.XDPFlowStateFLOW_FREE {
			fmt.Fprintf(&problems, "%+v: tag %#x in state %d, want %#x\n", flow, place.Tag(), place.State(), tag)
		}
		switch place.Bucket {
		case &t.Buckets[home]:
		case &t.Buckets[second]:
			overflowed[home]++
		default:
			fmt.Fprintf(&problems, "%+v is in neither of its buckets\n", flow)
		}
		key := flow
		key.Backend, key.Generation, key.Source.Port, key.Source.Address = 0, 0, 0, 0
		if seen[key] {
			fmt.Fprintf(&problems, "%+v is there twice\n", flow)
		}
		seen[key] = true
		if found, ok := t.Find(&flow); !ok || found != place {
			fmt.Fprintf(&problems, "%+v is not found where it is\n", flow)
		}
	}
	for i := range t.Buckets {
		if got := t.Buckets[i].Elsewhere; uint32(got) != overflowed[i] || overflowed[i] == 0 && got != 0 {
			fmt.Fprintf(&problems, "bucket %d has %d flows elsewhere and says %#x\n", i, overflowed[i], got)
		}
	}
	return problems.String()
}
