// SPDX-License-Identifier: Apache-2.0

package distribution

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestFit compares with printed tables of the distribution, and tests edge cases.
func TestFit(t *testing.T) {
	tests := []struct {
		name   string
		counts []uint64
		shares []float64
		want   fit
	}{
		{"exact", []uint64{10, 20, 40}, []float64{1, 2, 4}, fit{0, 2, 1, 0, 0}},
		// 5.991 is the 95th percentile with 2 degrees of freedom, 3.841 that with 1.
		{"a die", []uint64{30, 50, 40}, []float64{1, 1, 1}, fit{5, 2, math.Exp(-2.5), 25, 0}},
		{"a coin", []uint64{60, 40}, []float64{1, 1}, fit{4, 1, 0.0455, 20, 0}},
		{"the first only", []uint64{7, 0}, []float64{1, 0}, fit{0, 0, 1, 0, 0}},
		{"elsewhere", []uint64{7, 3}, []float64{1, 0}, fit{0.9, 0, 1, 30, 3}},
		{"nothing", []uint64{0, 0}, []float64{1, 1}, fit{0, 1, 1, 0, 0}},
	}
	for _, test := range tests {
		got := fitOf(test.counts, test.shares)
		if got.freedom != test.want.freedom || got.elsewhere != test.want.elsewhere ||
			math.Abs(got.chiSquared-test.want.chiSquared) > 1e-9 || math.Abs(got.p-test.want.p) > 1e-4 ||
			math.Abs(got.deviation-test.want.deviation) > 1e-9 {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

// TestMeasure opens few flows with every scheduler, with backends of different weights. In its target's run it also
// opens flows with equal weights. The guarantees of a scheduler must hold, and random selections must look random.
func TestMeasure(t *testing.T) {
	testenv.Also(t, "test-bench")
	weights := defaultWeightings[1:]
	if testenv.InTarget("test-bench") {
		weights = defaultWeightings
	}
	testenv.Root(t)
	const flows = 1 << 13
	trials, err := Measure(t.Context(), Options{Rounds: 1, Flows: flows, backends: []int{25}, weightings: weights})
	if err != nil {
		t.Fatal(err)
	}
	run := &results.Run{Schema: results.Schema, Suite: "distribution", Started: time.Now(), Trials: trials}
	if err := run.Validate(); err != nil {
		t.Error(err)
	}
	seen := map[lb.Scheduler]bool{}
	for _, trial := range trials {
		scheduler := lb.Scheduler(trial.Params["scheduler"].(string))
		seen[scheduler] = true
		m := trial.Metrics
		if !trial.Valid {
			t.Errorf("%v: %v", trial.Params, trial.Notes)
		}
		if m[results.FlowsElsewhere] != 0 {
			t.Errorf("%v: %v flows of backends that should have none", trial.Params, m[results.FlowsElsewhere])
		}
		switch scheduler {
		case lb.Maglev, lb.SourceHash:
			// Chance alone fails one of a million runs.
			if m[results.TablePValue] < 1e-6 {
				t.Errorf("%v: the flows are not spread as the table is: %v", trial.Params, m)
			}
			if m[results.TableDeviationPercentMax] > 5 {
				t.Errorf("%v: the table is not what the weights are: %v", trial.Params, m)
			}
		case lb.RoundRobin, lb.WeightedRoundRobin, lb.Failover:
			// The last round may not be complete.
			if m[results.DeviationPercentMax] > 100*25*4/float64(flows) {
				t.Errorf("%v: uneven: %v", trial.Params, m)
			}
		}
	}
	if len(seen) != len(lb.Schedulers) {
		t.Errorf("only %v were measured", seen)
	}
}

func TestRefused(t *testing.T) {
	for _, flows := range []uint32{0, 512, 3000, 1 << 23} {
		if _, err := Measure(t.Context(), Options{Rounds: 1, Flows: flows}); !errors.Is(err, ErrFlows) {
			t.Errorf("%d flows: %v", flows, err)
		}
	}
	testenv.Root(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, Options{Rounds: 1, Flows: 1 << 10}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
