// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// planeTrial returns a trial of a load without a network.
func planeTrial(load string, params map[string]any, metrics map[string]float64) results.Trial {
	t := trial("jeoul-l2dsr-tc", metrics)
	t.Load, t.Params = load, params
	return t
}

// verdictOf joins the verdict on trials of one load.
func verdictOf(trials ...results.Trial) string {
	return strings.Join(model.Verdict(aggregate(trials, "")[0]), "\n")
}

func TestMemoryVerdict(t *testing.T) {
	stored := func(scheduler string, remembered, bytes float64) results.Trial {
		m := map[string]float64{results.FlowsSent: 1000, results.FlowsRemembered: remembered,
			results.BytesPerFlow: bytes}
		if scheduler == "rr" {
			m[results.FlowsWithoutRoom] = 1000 - remembered
		}
		return planeTrial("memory", map[string]any{"scheduler": scheduler, "family": "ipv4", "stage": "proven",
			"flows": 1000}, m)
	}
	for _, test := range []struct {
		name   string
		trials []results.Trial
		want   []string
	}{
		{"as planned", []results.Trial{stored("rr", 998, 64), stored("maglev", 0, 0)}, []string{
			"Targets that hold: maglev, 1,000 flows ≤ 0 bytes a flow (0.0); 1,000 flows ≤ 128 bytes a flow (64.0).",
			"Of 1,000 flows in tables planned for as many, 2 found no room."}},
		{"too much", []results.Trial{stored("rr", 1000, 128.1)},
			[]string{"missed: 1,000 flows ≤ 128 bytes a flow (128.1)", "0 found no room"}},
		{"remembered all the same", []results.Trial{stored("maglev", 1, 0)}, []string{"missed: maglev, 1,000 flows"}},
	} {
		got := verdictOf(test.trials...)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not in\n%s", test.name, want, got)
			}
		}
	}
}

func TestScaleVerdict(t *testing.T) {
	of := func(services, backends int, what string, metrics map[string]float64, more map[string]any) results.Trial {
		params := map[string]any{"services": services, "backends": backends, "of": what}
		maps.Copy(params, more)
		return planeTrial("scale", params, metrics)
	}
	net := func(v float64) map[string]float64 { return map[string]float64{results.NsNetOfEmpty: v} }
	got := verdictOf(
		of(10_000, 10, "load", map[string]float64{results.ParseSeconds: 2, results.LoadSeconds: 3.5}, nil),
		of(10_000, 10, "weight 0 and 1", map[string]float64{results.UpdateMsP50: 5, results.UpdateMsP99: 50}, nil),
		of(10_000, 10, "packets of one service", net(26), nil),
		of(1, 10, "packets of one service", net(20), with("beside", "10000 × 10")),
		of(10, 10_000, "packets of one service", net(30), nil),
		of(1, 10, "packets of one service", net(20), with("beside", "10 × 10000")),
	)
	for _, want := range []string{
		"hold: 10,000 × 10 packets of one service ≤ 1.3 × one service (1.30); 10,000 × 10 weight 0 and 1, p99 ≤ 50 ms (50.00).",
		"missed: 10 × 10,000 packets of one service ≤ 1.3 × one service (1.50); 10,000 × 10 read and loaded ≤ 5 s (5.50).",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestDistributionVerdict(t *testing.T) {
	of := func(scheduler string, off float64, p ...float64) results.Trial {
		m := map[string]float64{results.DeviationPercentMax: off, results.PValue: 1}
		for _, p := range p {
			m[results.TablePValue] = p
		}
		return planeTrial("distribution", map[string]any{"scheduler": scheduler, "backends": 25, "weights": "equal",
			"flows": 1024, "ended": "none"}, m)
	}
	got := verdictOf(of("rr", 0), of("maglev", 1.5, 0.4), of("sh", 2, 0.012))
	for _, want := range []string{
		"With 25 backends, the one farthest from its share is off by, in per cent: maglev 1.50; rr 0.00; sh 2.00.",
		"flows spread as by chance in all 2 cases (p from 0.012 on)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if got := verdictOf(of("maglev", 9, 0.001), of("sh", 1, 0.5)); !strings.Contains(got,
		"otherwise than chance explains (p below 0.01) in 1 of 2 cases: maglev with 25 backends, weights equal") {
		t.Errorf("a table that is not followed is not said:\n%s", got)
	}
}

// TestKindsInEveryForm renders each of these loads in every form.
func TestKindsInEveryForm(t *testing.T) {
	run := runOf(
		planeTrial("distribution", map[string]any{"scheduler": "rr", "backends": 7, "weights": "equal", "flows": 1024,
			"ended": "none"},
			map[string]float64{results.DeviationPercentMax: 0.25, results.ChiSquared: 3, results.DegreesOfFreedom: 6,
				results.PValue: 0.0001}),
		planeTrial("memory", map[string]any{"scheduler": "rr", "family": "ipv6", "stage": "unproven", "flows": 77},
			map[string]float64{results.FlowsSent: 77, results.FlowsRemembered: 77, results.BytesPerFlow: 64,
				results.TableBytes: 6.4e7}),
		planeTrial("scale", map[string]any{"services": 10, "backends": 10_000, "of": "load"},
			map[string]float64{results.ParseSeconds: 1, results.LoadSeconds: 2, results.MemlockBytes: 1e8}),
	)
	for name, write := range forms {
		text := render(t, write, run)
		for _, want := range []string{"Flows against shares", "Kernel memory", "Loading", "10 × 10,000"} {
			if name != "svg" && !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
		if strings.Contains(text, "requests a second") {
			t.Errorf("%s speaks of requests", name)
		}
	}
}
