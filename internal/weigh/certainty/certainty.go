// SPDX-License-Identifier: Apache-2.0

// Package certainty computes confidence intervals of ratios that were measured by interleaved repeats.
//
// A repeat measures both sides one after the other, so the machine's speed at that hour is in both, and the repeat's
// ratio is free of it. The logarithms of these paired ratios give the Hodges–Lehmann estimate and the interval that
// inverts Wilcoxon's signed-rank test (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed.,
// sections 3.2 and 3.3). The test only requires that noise is as likely to favour one side as the other. It holds its
// level with six repeats and with noise of two modes, where the intervals of a percentile bootstrap miss the true ratio
// three to five times as often as they promise. Fewer than six pairs have too few signs for that test. They get
// Student's interval, whose quantiles are so wide with so few pairs that noise of two modes does not deceive it either.
package certainty

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

const (
	// tail is how often the true ratio is beyond one end of an interval: the smallest value that the six signs of six
	// pairs allow. That is less than the usual 2.5 %, because a page compares several subjects.
	tail = 1. / 64
	// Level is how often an interval contains the true ratio: 97 %.
	Level = 1 - 2*tail
	// Fewest is the number of pairs below which there is no interval.
	Fewest = 3
	// SignsFrom is the number of pairs from which the signed-rank test has the level.
	SignsFrom = 6
	// StoppedLevel is how often an interval contains the true ratio where repeats go on until it is narrow, SignsFrom
	// pairs at least: 95 %, by simulation. That is less than Level, for such an end comes sooner where the scatter is
	// small by chance. With fewer pairs, whose interval is as narrow as their scatter, it would be less again.
	StoppedLevel = 0.95
	// exactUpTo is the number of pairs up to which the test's distribution is counted; beyond it is normal.
	exactUpTo = 60
	// efficiency is the asymptotic efficiency of the signed-rank interval under normal noise, relative to Student's:
	// 3/π.
	efficiency = 3 / math.Pi
)

// Pair holds the measurements of both sides in one repeat of one point.
type Pair struct{ Of, To float64 }

// Estimate is a ratio with its interval.
type Estimate struct {
	// Ratio is the estimate: Hodges and Lehmann's, or the geometric mean of fewer than six. It is NaN without a pair.
	Ratio float64
	// Low and High are the interval's ends: 0 and +Inf with fewer than Fewest pairs.
	Low, High float64
	// Pairs is the number of pairs that have a ratio.
	Pairs int
	// scatter is the standard deviation of the logarithms; NaN with fewer than two pairs.
	scatter float64
}

// Ratio estimates the ratio of Of to To. Pairs with a side that is not a positive number are left out.
func Ratio(pairs []Pair) Estimate {
	var logs []float64
	for _, p := range pairs {
		if l := math.Log(p.Of) - math.Log(p.To); p.Of > 0 && p.To > 0 && !math.IsNaN(l) && !math.IsInf(l, 0) {
			logs = append(logs, l)
		}
	}
	e := Estimate{Ratio: math.NaN(), High: math.Inf(1), Pairs: len(logs), scatter: math.NaN()}
	if e.Pairs == 0 {
		return e
	}
	slices.Sort(logs)
	if e.Pairs > 1 {
		e.scatter = deviation(logs)
	}
	if e.Pairs < SignsFrom {
		return e.few(logs)
	}
	n := e.Pairs * (e.Pairs + 1) / 2
	e.Ratio = math.Exp((walsh(logs, (n+1)/2) + walsh(logs, n/2+1)) / 2)
	k := critical(e.Pairs)
	e.Low, e.High = math.Exp(walsh(logs, k)), math.Exp(walsh(logs, n+1-k))
	return e
}

// few fills the estimate from the logarithms of fewer than SignsFrom ratios.
func (e Estimate) few(logs []float64) Estimate {
	mean, n := mean(logs), float64(e.Pairs)
	e.Ratio = math.Exp(mean)
	if e.Pairs >= Fewest {
		half := student(e.Pairs) * e.scatter / math.Sqrt(n)
		e.Low, e.High = math.Exp(mean-half), math.Exp(mean+half)
	}
	return e
}

// Gonum's packages of distributions would bring its linear algebra into the program, 2 MB.

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// deviation is the standard deviation of a sample.
func deviation(values []float64) float64 {
	m, squares := mean(values), 0.0
	for _, v := range values {
		squares += (v - m) * (v - m)
	}
	return math.Sqrt(squares / float64(len(values)-1))
}

// student is the quantile of the mean of n values, in its standard errors: Student's distribution with n-1 degrees of
// freedom by the inverse of the regularized incomplete beta function.
func student(n int) float64 {
	freedom := float64(n - 1)
	x := mathext.InvRegIncBeta(freedom/2, 0.5, 2*tail)
	return math.Sqrt(freedom * (1 - x) / x)
}

// Bounded reports whether there were enough pairs for an interval.
func (e Estimate) Bounded() bool { return e.Low > 0 }

// Differs reports whether the two sides can be told apart: whether the interval is entirely on one side of 1.
func (e Estimate) Differs() bool { return e.Bounded() && (e.Low > 1 || e.High < 1) }

// Margin returns the distance from the ratio to the farther end of the interval, relative to the ratio: 0.05 is 5 %. It
// is +Inf without an interval.
func (e Estimate) Margin() float64 {
	if !e.Bounded() {
		return math.Inf(1)
	}
	return max(e.High/e.Ratio, e.Ratio/e.Low) - 1
}

// PairsFor estimates how many pairs would reduce the margin to a given one, from the scatter of the present pairs. No
// number reduces it to 0: that is the greatest number that PairsFor returns.
func (e Estimate) PairsFor(margin float64) int {
	const most = 1_000_000
	switch {
	case e.Pairs < 2:
		return SignsFrom
	case !(margin > 0):
		return most
	}
	for n := Fewest; n < SignsFrom; n++ {
		if e.scatter*student(n)/math.Sqrt(float64(n)) <= math.Log1p(margin) {
			return n
		}
	}
	n := math.Pow(mathext.NormalQuantile(1-tail)*e.scatter/math.Log1p(margin), 2) / efficiency
	return max(SignsFrom, int(math.Ceil(min(n, most))))
}

// PairsNeeded estimates the number of pairs for a significant difference if the ratio is as estimated.
func (e Estimate) PairsNeeded() int { return e.PairsFor(math.Exp(math.Abs(math.Log(e.Ratio))) - 1) }

// critical returns the rank, from the lowest, of the Walsh average that is the interval's lower end.
func critical(n int) int {
	if n > exactUpTo {
		f := float64(n)
		sigma := math.Sqrt(f * (f + 1) * (2*f + 1) / 24)
		return int(math.Floor(f*(f+1)/4 + mathext.NormalQuantile(tail)*sigma))
	}
	// choices[t] is how many of the 2^n choices of signs have the sum of positive ranks t.
	choices := make([]float64, n*(n+1)/2+1)
	choices[0] = 1
	for rank := 1; rank <= n; rank++ {
		for t := len(choices) - 1; t >= rank; t-- {
			choices[t] += choices[t-rank]
		}
	}
	below, all := 0.0, math.Exp2(float64(n))
	for k, w := range choices {
		if below += w; below/all > tail {
			return k
		}
	}
	return 0
}

// walsh returns the kth lowest, from 1, of the means of two of the sorted values, each with itself and those after it.
// It bisects the range of the possible values: the means of 10,000 values are 50 million.
func walsh(sorted []float64, k int) float64 {
	low, high := sorted[0], sorted[len(sorted)-1]
	if walshUpTo(sorted, low) >= k {
		return low
	}
	for {
		middle := low + (high-low)/2
		if middle <= low || middle >= high {
			return high
		}
		if walshUpTo(sorted, middle) >= k {
			high = middle
		} else {
			low = middle
		}
	}
}

// walshUpTo counts the means of two values that are at most v.
func walshUpTo(sorted []float64, v float64) int {
	count, j := 0, len(sorted)-1
	for i := range sorted {
		for j >= i && sorted[i]+(sorted[j]-sorted[i])/2 > v {
			j--
		}
		if j < i {
			break
		}
		count += j - i + 1
	}
	return count
}
