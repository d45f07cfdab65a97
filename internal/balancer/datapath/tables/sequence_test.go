// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSequence looks at rounds that a person can check.
func TestSequence(t *testing.T) {
	tests := map[string]struct {
		weights []uint32
		want    []uint16
	}{
		"equal":           {[]uint32{1, 1, 1}, []uint16{0, 1, 2}},
		"one":             {[]uint32{7}, []uint16{0}},
		"common divisor":  {[]uint32{200, 100}, []uint16{0, 1, 0}},
		"1:2:4":           {[]uint32{1, 2, 4}, []uint16{2, 1, 2, 0, 2, 1, 2}},
		"spread, not run": {[]uint32{4, 1}, []uint16{0, 0, 1, 0, 0}},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, sequenceOf(test.weights)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestSequenceShares compares how often each member has its turn with its share, for
// weights that must be rounded too, and sees that no member waits much longer than
// its share lets it.
func TestSequenceShares(t *testing.T) {
	many := make([]uint32, MaxMembers)
	for i := range many {
		many[i] = uint32(1 + i%7*9000)
	}
	for name, weights := range map[string][]uint32{
		"primes":    {2, 3, 5, 7, 11, 13},
		"unequal":   {65535, 1, 300, 65534},
		"all large": {65535, 65521, 65519},
		"many":      many,
	} {
		sequence := sequenceOf(weights)
		if len(sequence) > maxSequence {
			t.Errorf("%s: %d turns", name, len(sequence))
		}
		sum := 0.0
		for _, weight := range weights {
			sum += float64(weight)
		}
		counts, last, gap := make([]int, len(weights)), make([]int, len(weights)), make([]int, len(weights))
		for turn, member := range slices.Concat(sequence, sequence) {
			if counts[member] > 0 {
				gap[member] = max(gap[member], turn-last[member])
			}
			counts[member]++
			last[member] = turn
		}
		for member, weight := range weights {
			got, want := float64(counts[member]/2), float64(weight)/sum*float64(len(sequence))
			// Each has one turn at least, which the others pay for.
			if math.Abs(got-want) > 1+want*float64(len(weights))/float64(len(sequence)) {
				t.Errorf("%s: member %d of weight %d has %v turns of %d, its share is %v", name, member, weight, got,
					len(sequence), want)
			}
			if most := float64(len(sequence))/got + float64(len(weights)) + 1; float64(gap[member]) > most {
				t.Errorf("%s: member %d waits %d turns, at most %v would be even", name, member, gap[member], most)
			}
		}
	}
}
