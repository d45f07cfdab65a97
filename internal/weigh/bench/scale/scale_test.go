// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestMeasure runs the complete measurement at small sizes. Measure itself checks that each change is in effect in the
// data plane when Apply returns, and that packets are forwarded.
func TestMeasure(t *testing.T) {
	testenv.Root(t)
	lines := 0
	trials, err := Measure(t.Context(), Options{Hook: lb.HookTC, Rounds: 1, Changes: 4, Packets: 1000,
		Progress: func(string) { lines++ }, shapes: []shape{{20, 3}, {2, 30}}, flows: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	run := &results.Run{Schema: results.Schema, Suite: "scale", Started: time.Now(), Trials: trials}
	if err := run.Validate(); err != nil {
		t.Error(err)
	}
	counts := map[string]int{}
	for _, trial := range trials {
		if !trial.Valid {
			t.Errorf("%v: %v", trial.Params, trial.Notes)
		}
		of := trial.Params["of"].(string)
		counts[of]++
		if n, ok := trial.Metrics[results.Updates]; ok && n != 4 {
			t.Errorf("%v: %v changes, want 4", trial.Params, n)
		}
	}
	want := map[string]int{"load": 3, ofOne: 4, ofAll: 4, ofTen: 2}
	for _, kind := range updates {
		want[kind.name] = 2
	}
	for of, n := range want {
		if counts[of] != n {
			t.Errorf("%d trials of %q, want %d", counts[of], of, n)
		}
	}
	if lines == 0 {
		t.Error("no progress was reported")
	}
}

// TestYAML: a user could write even the largest configurations: they are not too large to be read.
func TestYAML(t *testing.T) {
	for _, s := range append([]shape{base}, defaultShapes...) {
		if data := s.yaml(); len(data) > config.MaxBytes {
			t.Errorf("%v: %d bytes of YAML, and %d may be read", s, len(data), config.MaxBytes)
		}
	}
	cfg, _, err := shape{3, 2}.parse()
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Services) != 3 || len(cfg.Services[2].Backends) != 2 || len(cfg.Warnings) > 0 {
		t.Errorf("read %+v", cfg)
	}
}

func TestPercentile(t *testing.T) {
	of := func(n int) (sorted []time.Duration) {
		for i := range n {
			sorted = append(sorted, time.Duration(i+1))
		}
		return sorted
	}
	for _, test := range []struct{ n, percent, want int }{{1, 50, 1}, {1, 99, 1}, {200, 50, 100}, {200, 99, 198},
		{100, 99, 99}, {10, 99, 10}} {
		if got := percentile(of(test.n), test.percent); got != time.Duration(test.want) {
			t.Errorf("%d%% of 1..%d: %d, want %d", test.percent, test.n, got, test.want)
		}
	}
}

func TestStopsWithItsContext(t *testing.T) {
	testenv.Root(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, Options{Hook: lb.HookTC, Rounds: 1, flows: 64}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
