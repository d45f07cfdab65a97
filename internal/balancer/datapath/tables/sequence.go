// SPDX-License-Identifier: Apache-2.0

package tables

import "github.com/jeoul/jeoul/internal/balancer/datapath/objects"

// maxSequence bounds the turns of a weighted round. If the sum of the weights, divided by their common divisor, is
// higher, they are scaled to it.
const maxSequence = 1<<objects.XDPAgreementSEQUENCE_BITS - 1

// sequenceOf returns the order of turns of members with these weights, none of them 0: each has turns in proportion to
// its weight, spread evenly over the round. Turn k of n is in the middle of the k-th of n equal parts of the round (as
// in M. Katevenis et al., "Weighted Round-Robin Cell Multiplexing in a General-Purpose ATM Switch Chip", IEEE JSAC
// 9(8), 1991).
func sequenceOf(weights []uint32) []uint16 {
	turns, length := turnsOf(weights)
	// A counting sort by the positions of the turns, rounded down.
	begins := make([]uint32, length+1)
	each := func(do func(member int, at uint64)) {
		for member, n := range turns {
			for k := range n {
				do(member, (2*k+1)*length/(2*n))
			}
		}
	}
	each(func(_ int, at uint64) { begins[at+1]++ })
	for at := range length {
		begins[at+1] += begins[at]
	}
	sequence := make([]uint16, length)
	each(func(member int, at uint64) {
		sequence[begins[at]] = uint16(member)
		begins[at]++
	})
	return sequence
}

// turnsOf returns the number of turns of each member in a round, at least one, and their sum.
func turnsOf(weights []uint32) (turns []uint64, length uint64) {
	var sum, divisor uint64
	for _, weight := range weights {
		sum += uint64(weight)
		divisor = greatestCommonDivisor(divisor, uint64(weight))
	}
	turns = make([]uint64, len(weights))
	for i, weight := range weights {
		turns[i] = uint64(weight) / divisor
		if sum/divisor > maxSequence {
			// Every member has one turn; the others are divided by weight.
			rest := uint64(maxSequence - len(weights))
			turns[i] = 1 + uint64(weight)*rest/sum
		}
		length += turns[i]
	}
	return turns, length
}

func greatestCommonDivisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
