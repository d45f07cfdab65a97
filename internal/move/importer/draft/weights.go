// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"math"
	"slices"
)

// finest is the greatest sum of weights that is tried.
const finest = 10000

// Weights returns the smallest integer weights whose shares differ from the given shares by at most half a per cent of
// each. If no weights up to finest do, it returns the nearest. A share has at least weight 1.
func Weights(shares []float64) []uint16 {
	parts, sum := slices.Clone(shares), 0.0
	for _, share := range shares {
		sum += share
	}
	for i := range parts {
		parts[i] /= max(sum, math.SmallestNonzeroFloat64)
	}
	total := len(parts)
	for total < finest && !wholeOf(parts, total) {
		total++
	}
	weights := make([]uint16, len(parts))
	for i, part := range parts {
		weights[i] = uint16(min(max(math.Round(part*float64(total)), 1), math.MaxUint16))
	}
	return weights
}

// wholeOf reports whether the parts of a total are close enough to integers.
func wholeOf(parts []float64, total int) bool {
	for _, part := range parts {
		want := part * float64(total)
		if math.Abs(max(math.Round(want), 1)-want) > want/200 {
			return false
		}
	}
	return true
}
