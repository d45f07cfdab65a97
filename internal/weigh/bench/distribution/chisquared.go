// SPDX-License-Identifier: Apache-2.0

package distribution

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// fit is the goodness of fit of counts to shares.
type fit struct {
	// chiSquared is Pearson's statistic, over the backends that have a share.
	chiSquared float64
	// freedom is the number of degrees of freedom: the number of these backends less one.
	freedom int
	// p is the probability that chance alone gives a statistic at least as large; 1 if freedom is 0.
	p float64
	// deviation is the largest difference of a count from its share, in per cent of that share.
	deviation float64
	// elsewhere is the sum of the counts of backends that have no share.
	elsewhere uint64
}

// fitOf compares counts with as many shares, which can be in any unit. At least one share must be above 0.
func fitOf(counts []uint64, shares []float64) fit {
	var total, whole float64
	for i := range counts {
		total += float64(counts[i])
		whole += shares[i]
	}
	f := fit{freedom: -1, p: 1}
	for i, count := range counts {
		expected := shares[i] / whole * total
		if shares[i] == 0 {
			f.elsewhere += count
			continue
		}
		off := float64(count) - expected
		f.freedom++
		if expected > 0 {
			f.chiSquared += off * off / expected
			f.deviation = max(f.deviation, 100*math.Abs(off)/expected)
		}
	}
	if f.freedom > 0 {
		// The chi-squared distribution's upper tail is a regularized incomplete
		// gamma function.
		f.p = mathext.GammaIncRegComp(float64(f.freedom)/2, f.chiSquared/2)
	}
	return f
}
