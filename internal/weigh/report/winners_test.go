// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// synthetic is the number of runs of a case. By chance, an interval of six pairs misses in 31 of 1,000, give or take 6:
// 50 misses are no accident of a seed.
const synthetic = 1000

// winners returns the number of runs that name a winner on their first line, of balancers with these true rates. With
// two modes, the machine's speed doubles at times, like that of a shared machine.
func winners(seed uint64, repeats int, twoModes bool, truth map[string]float64) (named int) {
	r := rand.New(rand.NewPCG(seed, 47))
	speed := func() float64 {
		if !twoModes {
			return 0.03 * r.NormFloat64()
		}
		return math.Ln2*float64(r.IntN(2)) + 0.02*r.NormFloat64()
	}
	for range synthetic {
		run := runOf()
		for repeat := 1; repeat <= repeats; repeat++ {
			for _, subject := range []string{"direct", "haproxy-tcp", "jeoul-nat-tc"} {
				made := trial(subject, rps(1000*truth[subject]*math.Exp(speed())))
				made.Repeat = repeat
				run.Trials = append(run.Trials, made)
			}
		}
		if strings.Contains(sayAnswer(aggregate(run.Trials, run.Baseline)[0], 0)[0], " serves ") {
			named++
		}
	}
	return named
}

// TestWinners: of 1,000 runs of equal balancers, at most one in twenty names a winner, and a balancer with a difference
// of 5 % is named as often as the interval promises. (Over 2,000 runs it is 2.6 to 4.5 % of two balancers, by the
// number of repeats and the noise, and 3.6 to 5.2 % of five.)
func TestWinners(t *testing.T) {
	t.Parallel()
	equal := map[string]float64{"direct": 1.2, "haproxy-tcp": 1, "jeoul-nat-tc": 1}
	apart := map[string]float64{"direct": 1.2, "haproxy-tcp": 1, "jeoul-nat-tc": 1.05}
	for name, c := range map[string]struct {
		truth       map[string]float64
		repeats     int
		twoModes    bool
		least, most int
	}{
		"equal":                 {equal, 6, false, 0, synthetic / 20},
		"equal, three repeats":  {equal, 3, false, 0, synthetic / 20},
		"equal, two modes":      {equal, 6, true, 0, synthetic / 20},
		"equal, one repeat":     {equal, 1, false, 0, 0},
		"5 % apart":             {apart, 15, false, synthetic * 19 / 20, synthetic},
		"5 % apart, one repeat": {apart, 1, false, 0, 0},
	} {
		if named := winners(1, c.repeats, c.twoModes, c.truth); named < c.least || named > c.most {
			t.Errorf("%s: %d of 1,000 runs name a winner, want %d to %d", name, named, c.least, c.most)
		}
	}
}
