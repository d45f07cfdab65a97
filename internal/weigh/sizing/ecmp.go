// SPDX-License-Identifier: Apache-2.0

// Package sizing computes how many balancers a load needs, and which flows move and break where a router spreads them
// over the balancers and one leaves or comes. It does no I/O.
package sizing

import "fmt"

// Hashing is how a router keeps the next hops of a route.
type Hashing string

// The ways that routers have.
const (
	// Plain divides the range of the hash into equal regions, one for each next hop in turn, as Linux does
	// (RFC 2992, hash-threshold).
	Plain Hashing = "plain"
	// Modulo takes the remainder of the hash by the number of next hops.
	Modulo Hashing = "modulo"
	// Resilient has buckets of which only those of a next hop that is gone are given to others, and a next hop that
	// comes gets as many as it shall have of each (Linux: ip nexthop … type resilient).
	Resilient Hashing = "resilient"
)

// Hashings are all kinds of hashing.
var Hashings = []Hashing{Plain, Modulo, Resilient}

// Moved is which share of all flows a router moves, of 1.
type Moved struct {
	// OfOne are those of the balancer that leaves, which must move, or, where one comes, those that it takes over;
	// Others are those between balancers that stay.
	OfOne  float64 `json:"of_one"`
	Others float64 `json:"others"`
}

// Total is the sum.
func (m Moved) Total() float64 { return m.OfOne + m.Others }

// Leave returns the share of flows that move when one of n balancers leaves: the mean over which one it is. It is the
// same when one comes to n - 1, for every flow that then moves goes back.
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

// plainLeave is the share of flows that move when next hop k (from 0) of n leaves: region i of [i/n, (i+1)/n) is then
// of the next hop whose new region has it.
func plainLeave(n, k int) Moved {
	kept := 0.0
	for i := range n {
		if i == k {
			continue
		}
		j := i // its place among those that stay
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

// moduloLeave: hash mod n and hash mod n - 1 are independent over n(n-1) values. Those that stay keep their flows
// where both name the same one of them.
func moduloLeave(n int) Moved {
	kept := 0.0
	for k := range n { // the one that leaves
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
