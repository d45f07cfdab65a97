// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

func init() { bench.Register(Kind) }

const wireSuite = `name: packets
lab: {clients: 2, servers: 3}
repeats: 1
subjects:
  - name: direct
  - name: bare
  - name: routed
  - name: haproxy-tcp
    params: {threads: [1], splice: ["off"]}
loads:
  - name: ladder
    kind: wire
    wire: {load: setup, warm_up: 100ms, ladder: {from: 1000, to: 3000, step: 500, connections: 700}}
  - name: search
    kind: wire
    duration: 1s
    wire: {load: session, request: 60, response: 9000, search: {from: 10, to: 500, loss: 0.001}}
  - name: held
    kind: wire
    wire: {load: capacity, connections: 5000000, rate: 1000, hold: 1s}
  - name: names
    kind: wire
    duration: 500ms
    wire: {load: dns, question: example.com}
  - name: flooded
    kind: wire
    wire: {load: session, connections: 9, rate: 3, syn_flood: {rate: 0}}
`

// TestWireLoads checks the loads that the tester gets.
func TestWireLoads(t *testing.T) {
	suite, err := bench.ParseSuite("w", []byte(wireSuite))
	if err != nil {
		t.Fatal(err)
	}
	loads := suite.Long.Loads
	for i, want := range []wire.Load{
		{Kind: wire.Setup, Ladder: &wire.Ladder{From: 1000, To: 3000, By: 500, Connections: 700}},
		{Kind: wire.Session, Duration: time.Second, Request: 60, Response: 9000,
			Search: &wire.Search{From: 10, To: 500, Loss: 0.001}},
		{Kind: wire.Capacity, Connections: 5_000_000, Rate: 1000, Hold: time.Second},
		{Kind: wire.DNS, Duration: 500 * time.Millisecond, Question: "example.com"},
		{Kind: wire.Session, Connections: 9, Rate: 3, Flood: &wire.Flood{Sources: wireFloodSources}},
	} {
		got := settingsOf(loads[i]).load(loads[i].Duration)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b fmt.Stringer) bool {
			return a.String() == b.String()
		})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", loads[i].Name, diff)
		}
	}
	// The tester must distinguish all connections that may begin.
	for i, want := range []int{700, 501, 5_000_000, 2_500_001, 9} {
		if got := settingsOf(loads[i]).flowsOfStep(loads[i].Duration); got != want {
			t.Errorf("%s has room for %d connections, want %d", loads[i].Name, got, want)
		}
	}
}

// TestFastestBurst: the fastest burst counts and the others are its samples. A burst that filled the balancer is not
// replaced by a slower one.
func TestFastestBurst(t *testing.T) {
	burst := func(rate float64, valid bool, notes ...string) results.Trial {
		trial := results.Trial{Params: map[string]any{paramWire: "setup"},
			Metrics: map[string]float64{wire.Setup.Metric(): rate}}
		trial.Valid, trial.Notes = valid, notes
		return trial
	}
	of := func(chosen results.Trial, rates ...float64) results.Trial {
		chosen.Samples = map[string][]float64{wire.Setup.Metric(): rates}
		return chosen
	}
	for name, c := range map[string]struct {
		bursts []results.Trial
		want   results.Trial
	}{
		"fastest": {
			[]results.Trial{burst(10, true, "a"), burst(30.4, true, "b"), burst(20, true)},
			of(burst(30.4, true, "b"), 10, 30.4, 20),
		},
		"nothing": {
			[]results.Trial{burst(10, true), burst(0, false, "nothing"), burst(20, true)},
			of(burst(20, true), 10, 0, 20),
		},
		"full": {
			[]results.Trial{burst(10, true), burst(5, false, fullSetup+"x"), burst(20, true)},
			of(burst(5, false, fullSetup+"x"), 10, 5, 20),
		},
	} {
		if diff := cmp.Diff(c.want, fastest(c.bursts)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCeilingOfResumedRun: a run that is resumed knows the tester's ceiling from its trials before.
func TestCeilingOfResumedRun(t *testing.T) {
	suite, err := bench.ParseSuite("w", []byte(wireSuite))
	if err != nil {
		t.Fatal(err)
	}
	trials := bench.Plan(suite.Long, probe.Limits{Cores: 2}, bench.Absent{})
	at := slices.IndexFunc(trials, func(t bench.Trial) bool { return t.Subject.Name() == "bare" && t.Load == "search" })
	kind := settingsOf(trials[at].By).Load
	before := func(subject, load string, valid bool, rate float64) results.Trial {
		return results.Trial{Subject: subject, Load: load, Valid: valid,
			Params: map[string]any{paramWire: string(kind)}, Metrics: map[string]float64{kind.Metric(): rate}}
	}
	runner := &bench.Runner{Results: &results.Run{Trials: []results.Trial{
		before("direct", "search", true, 900_000), before("direct", "search", true, 1_000_000),
		before("direct", "search", false, 3_000_000), before("direct", "held", true, 3_000_000),
		before("haproxy-tcp", "search", true, 3_000_000),
	}}}
	for rate, want := range map[float64]results.Part{
		960_000: results.SaturatedClient,
		940_000: results.SaturatedBalancer,
	} {
		got := results.Trial{Metrics: map[string]float64{kind.Metric(): rate}}
		wireResult{wireTrial: &wireTrial{runner: runner, trial: trials[at]},
			step: wire.Step{Kind: kind, KeptUp: true}}.writeParts(&got)
		if ceiling := got.Metrics[results.CeilingPerSecond]; got.Saturated != want || ceiling != 1_000_000 {
			t.Errorf("%.0f a second: the limit is %s, want %s, with the ceiling %.0f", rate, got.Saturated, want,
				ceiling)
		}
	}
}

// TestBestTry: a rate at which the tester fell behind has not passed. If it lost nothing, the caller gets it as the
// next rate above the best.
func TestBestTry(t *testing.T) {
	try := func(offered, lost float64, kept bool) wireTry {
		return wireTry{wire.Step{Offered: offered, KeptUp: kept}, lost}
	}
	for name, c := range map[string]struct {
		tries       []wireTry
		best, above int
	}{
		"the highest at once": {[]wireTry{try(900, 0, true)}, 0, -1},
		"between": {[]wireTry{try(900, 0.5, true), try(500, 0, true), try(700, 0.2, true),
			try(600, 0.01, true)}, 3, 2},
		"the tester was behind": {[]wireTry{try(900, 0, false), try(500, 0, true), try(700, 0, false)}, 1, 2},
		"none":                  {[]wireTry{try(900, 0, false), try(500, 0.02, true)}, -1, -1},
	} {
		if best, above := bestTry(c.tries, 0.01); best != c.best || above != c.above {
			t.Errorf("%s: best %d, above %d; want %d, %d", name, best, above, c.best, c.above)
		}
	}
}
