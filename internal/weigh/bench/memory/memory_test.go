// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestMeasure opens few flows: all of them have room with schedulers that store every flow, and others store none.
func TestMeasure(t *testing.T) {
	testenv.Root(t)
	const flows = 20_000
	trials, err := Measure(t.Context(), Options{Flows: []uint32{flows},
		settled: func(context.Context) (uint64, error) { return harness.Available() }})
	if err != nil {
		t.Fatal(err)
	}
	run := &results.Run{Schema: results.Schema, Suite: "memory", Started: time.Now(), Trials: trials}
	if err := run.Validate(); err != nil {
		t.Error(err)
	}
	if len(trials) != len(cases([]uint32{flows})) {
		t.Errorf("%d trials", len(trials))
	}
	for _, trial := range trials {
		m := trial.Metrics
		if trial.Params["scheduler"] == "maglev" {
			if m[results.FlowsRemembered] != 0 || m[results.GrownBytes] != 0 {
				t.Errorf("%v: something is remembered: %v", trial.Params, m)
			}
			continue
		}
		// For a few flows, both buckets may be full.
		if n := m[results.FlowsRemembered]; n < flows*0.999 || n > flows || m[results.FlowsWithoutRoom] != flows-n {
			t.Errorf("%v: not all are remembered: %v", trial.Params, m)
		}
		if b := m[results.BytesPerFlow]; b < 32 || b > 128 {
			t.Errorf("%v: %v bytes a flow", trial.Params, b)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, flows := range []uint32{0, maxFlows + 1} {
		if _, err := Measure(t.Context(), Options{Flows: []uint32{flows}}); !errors.Is(err, ErrFlows) {
			t.Errorf("%d flows: %v", flows, err)
		}
	}
	testenv.Root(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, Options{Flows: []uint32{1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
