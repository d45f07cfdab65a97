// SPDX-License-Identifier: Apache-2.0

package certainty

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

const runs = 1000

// noise is the disturbance of the two sides of a pair by a machine.
type noise func(*rand.Rand) (of, to float64)

func gaussian(r *rand.Rand) (of, to float64) {
	drift := 0.2 * r.NormFloat64() // the machine's speed at that hour: in both
	return drift + 0.03*r.NormFloat64(), drift + 0.03*r.NormFloat64()
}

// bimodal is the noise of a shared machine: its speed doubles within seconds, also between the sides of a pair.
func bimodal(r *rand.Rand) (of, to float64) {
	mode := func() float64 { return math.Ln2*float64(r.IntN(2)) + 0.02*r.NormFloat64() }
	return mode(), mode()
}

// rarelySlow is the noise of a machine that is half as fast for one trial of eight.
func rarelySlow(r *rand.Rand) (of, to float64) {
	mode := func() float64 { return -math.Ln2*float64(r.IntN(8)/7) + 0.02*r.NormFloat64() }
	return mode(), mode()
}

func simulate(r *rand.Rand, truth float64, pairs int, of noise) Estimate {
	all := make([]Pair, pairs)
	for i := range all {
		a, b := of(r)
		all[i] = Pair{truth * 1000 * math.Exp(a), 1000 * math.Exp(b)}
	}
	return Ratio(all)
}

// TestKnownTruth: of 1,000 runs, at most one in twenty names a winner where there is none or misses the true ratio, and
// a difference is found wherever the noise permits it.
func TestKnownTruth(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		truth float64
		pairs int
		noise noise
		found int // at least so many of the runs
		seed  uint64
	}{
		{"equal, three repeats", 1, 3, gaussian, 0, 21},
		{"equal, two modes, three repeats", 1, 3, bimodal, 0, 22},
		{"equal, two modes, four repeats", 1, 4, bimodal, 0, 23},
		{"equal, two modes, five repeats", 1, 5, bimodal, 0, 24},
		{"equal, rarely slow, three repeats", 1, 3, rarelySlow, 0, 25},
		{"equal, rarely slow, five repeats", 1, 5, rarelySlow, 0, 26},
		{"twice, three repeats", 2, 3, gaussian, 950, 27},
		{"equal", 1, 6, gaussian, 0, 1},
		{"equal, many repeats", 1, 20, gaussian, 0, 2},
		{"equal, two modes", 1, 6, bimodal, 0, 3},
		{"equal, two modes, many repeats", 1, 20, bimodal, 0, 4},
		{"equal, rarely slow", 1, 9, rarelySlow, 0, 5},
		{"5 % apart", 1.05, 15, gaussian, 950, 6},
		{"5 % apart, rarely slow", 1.05, 20, rarelySlow, 600, 7},
		{"5 % apart, two modes", 1.05, 20, bimodal, 0, 8},
		{"twice, two modes", 2, 12, bimodal, 950, 9},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(test.seed, 47))
			missed, found := 0, 0
			for range runs {
				e := simulate(r, test.truth, test.pairs, test.noise)
				if test.truth < e.Low || test.truth > e.High {
					missed++
				}
				if e.Differs() {
					found++
				}
			}
			t.Logf("missed %d, told apart %d of %d", missed, found, runs)
			if missed > runs/20 {
				t.Errorf("the interval misses the true ratio in %d of %d runs", missed, runs)
			}
			if test.truth == 1 && found > runs/20 {
				t.Errorf("%d of %d runs of equals call a winner", found, runs)
			}
			if found < test.found {
				t.Errorf("the difference is found in %d of %d runs, want %d", found, runs, test.found)
			}
		})
	}
}

// TestTooFew: fewer than three repeats distinguish nothing, and the report says how many would suffice.
func TestTooFew(t *testing.T) {
	t.Parallel()
	for n := range Fewest {
		pairs := slices.Repeat([]Pair{{106, 100}}, n)
		if e := Ratio(pairs); e.Bounded() || e.Differs() || e.PairsNeeded() < Fewest || !math.IsInf(e.Margin(), 1) {
			t.Errorf("%d pairs: %+v", n, e)
		}
	}
	if e := Ratio(slices.Repeat([]Pair{{106, 100}}, Fewest)); !e.Differs() || math.Abs(e.Ratio-1.06) > 1e-9 {
		t.Errorf("six equal pairs: %+v", e)
	}
}

// TestPairsForNothing: no number of pairs tells equals apart.
func TestPairsForNothing(t *testing.T) {
	t.Parallel()
	if n := Ratio(slices.Repeat([]Pair{{100, 100}}, 2)).PairsNeeded(); n < 1000 {
		t.Errorf("%d pairs tell two equals apart", n)
	}
}

// TestPairsFor: about as many pairs as estimated reach the requested margin.
func TestPairsFor(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(10, 47))
	n := simulate(r, 1.5, 30, gaussian).PairsFor(0.01)
	if m := simulate(r, 1.5, n, gaussian).Margin(); n < 30 || m > 0.015 || m < 0.007 {
		t.Errorf("with %d pairs the margin is %.4f", n, m)
	}
}

// TestWalsh compares the bisection with the sorted means, and the critical ranks with the tables of Hollander, Wolfe
// and Chicken.
func TestWalsh(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 47))
	for n := 1; n < 12; n++ {
		var values, means []float64
		for range n {
			values = append(values, math.Round(r.NormFloat64()*4)/4)
		}
		slices.Sort(values)
		for i := range values {
			for j := i; j < n; j++ {
				means = append(means, values[i]+(values[j]-values[i])/2)
			}
		}
		slices.Sort(means)
		for k, want := range means {
			if got := walsh(values, k+1); math.Abs(got-want) > 1e-12 {
				t.Fatalf("walsh(%v, %d) = %v, want %v", values, k+1, got, want)
			}
		}
	}
	for n, want := range map[int]int{5: 0, 6: 1, 7: 2, 8: 3, 9: 5, 10: 7, 20: 48} {
		if got := critical(n); got != want {
			t.Errorf("critical(%d) = %d, want %d", n, got, want)
		}
	}
}

// TestUnusable: a pair without a ratio is left out, and 10,000 pairs are fast enough.
func TestUnusable(t *testing.T) {
	t.Parallel()
	bad := []Pair{{0, 1}, {1, 0}, {-1, -1}, {math.NaN(), 1}, {1, math.Inf(1)}}
	if e := Ratio(bad); e.Pairs != 0 || !math.IsNaN(e.Ratio) || e.Differs() {
		t.Errorf("%+v", e)
	}
	r := rand.New(rand.NewPCG(12, 47))
	if e := simulate(r, 1.05, 10_000, bimodal); !e.Differs() || e.Pairs != 10_000 {
		t.Errorf("%+v", e)
	}
}

func FuzzRatio(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
	f.Add(0.0, math.Inf(1), math.NaN(), -1.0, 5e-324, math.MaxFloat64, 1.0)
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g, h float64) {
		values := []float64{a, b, c, d, e, g, h}
		var pairs []Pair
		for i, v := range values {
			pairs = append(pairs, Pair{v, values[(i+3)%len(values)]})
		}
		if got := Ratio(pairs); got.Pairs > 0 && !(got.Low <= got.Ratio*(1+1e-9) && got.Ratio <= got.High*(1+1e-9)) {
			t.Errorf("%+v", got)
		}
	})
}

// TestStoppedLevel: StoppedLevel holds where repeats go on until the interval is narrow, whatever the noise.
func TestStoppedLevel(t *testing.T) {
	t.Parallel()
	const margin, most = 0.05, 60
	normal := func(sigma float64) noise {
		return func(r *rand.Rand) (of, to float64) { return sigma * r.NormFloat64(), 0 }
	}
	for name, of := range map[string]noise{"2 %": normal(0.02), "4 %": normal(0.04), "6 %": normal(0.06),
		"9 %": normal(0.09), "12 %": normal(0.12), "drift": gaussian, "rarely slow": rarelySlow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(31, 47))
			ended, missed := 0, 0
			for range runs {
				var pairs []Pair
				for len(pairs) < most {
					a, b := of(r)
					pairs = append(pairs, Pair{math.Exp(a), math.Exp(b)})
					e := Ratio(pairs)
					if e.Pairs < SignsFrom || e.Margin() > margin {
						continue
					}
					ended++
					if e.Differs() {
						missed++
					}
					break
				}
			}
			t.Logf("of %d runs that ended, %d miss the true ratio", ended, missed)
			if ended < runs/2 || float64(missed) > (1-StoppedLevel)*float64(ended) {
				t.Errorf("of %d runs that ended, %d miss the true ratio", ended, missed)
			}
		})
	}
}
