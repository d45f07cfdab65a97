// SPDX-License-Identifier: Apache-2.0

// Package sizing computes how many balancers a load needs, and which flows move and break if a router spreads them over
// the balancers and one leaves or joins. It does no I/O.
package sizing

import "fmt"

// Hashing is the method by which a router maps flows to the next hops of a route.
type Hashing string

// The methods of routers.
const (
	// Plain divides the range of the hash into equal regions, one for each next hop in turn, as Linux does (RFC 2992,
	// hash-threshold).
	Plain Hashing = "plain"
	// Modulo takes the remainder of the hash by the number of next hops.
	Modulo Hashing = "modulo"
	// Resilient has buckets. Only the buckets of a next hop that leaves are given to others, and a next hop that joins
	// gets its share of the buckets of each (Linux: ip nexthop … type resilient).
	Resilient Hashing = "resilient"
)

// Hashings are all kinds of hashing.
var Hashings = []Hashing{Plain, Modulo, Resilient}

// Moved is the share of all flows that a router moves, from 0 to 1.
type Moved struct {
	// OfOne are the flows of the balancer that leaves, which must move, or the flows that a joining balancer takes
	// over; Others are those between balancers that stay.
	OfOne  float64 `json:"of_one"`
	Others float64 `json:"others"`
}

// Total is the sum of both.
func (m Moved) Total() float64 { return m.OfOne + m.Others }

// Leave returns the share of flows that move when one of n balancers leaves: the mean over the balancers. It is the
// same when one joins n - 1, because every flow that then moves goes back.
func (h Hashing) Leave(n int) (Moved, error) {
	if n < 2 {
		return Moved{}, fmt.Errorf("%d balancers: one of at least 2 can leave", n)
	}
	one := 1 / float64(n)
	switch h {
	case Resilient:
		return Moved{OfOne: one}, nil
	case Modulo:
		return moduloLeave(n), nil
	case Plain:
		var sum Moved
		for k := range n {
			sum.Others += plainLeave(n, k).Others
		}
		return Moved{OfOne: one, Others: sum.Others / float64(n)}, nil
	}
	return Moved{}, fmt.Errorf("%q is no way of hashing: use one of %v", h, Hashings)
}

// plainLeave returns the share of flows that move when next hop k (from 0) of n leaves: region i of [i/n, (i+1)/n) then
// belongs to the next hop whose new region contains it.
func plainLeave(n, k int) Moved {
	kept := 0.0
	for i := range n {
		if i == k {
			continue
		}
		j := i // its place among the remaining next hops
		if i > k {
			j--
		}
		low := max(float64(i)/float64(n), float64(j)/float64(n-1))
		high := min(float64(i+1)/float64(n), float64(j+1)/float64(n-1))
		kept += max(high-low, 0)
	}
	one := 1 / float64(n)
	return Moved{OfOne: one, Others: 1 - one - kept}
}

// moduloLeave: hash mod n and hash mod n - 1 are independent over n(n-1) values. A remaining next hop keeps the flows
// for which both select it.
func moduloLeave(n int) Moved {
	kept := 0.0
	for k := range n { // the next hop that leaves
		same := 0
		for hash := range n * (n - 1) {
			before, after := hash%n, hash%(n-1)
			if after >= k {
				after++
			}
			if before == after {
				same++
			}
		}
		kept += float64(same) / float64(n*(n-1)) / float64(n)
	}
	one := 1 / float64(n)
	return Moved{OfOne: one, Others: 1 - one - kept}
}
