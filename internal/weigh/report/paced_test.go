// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// pacedTrial is a valid trial of an open loop; rate is 0 for one that searched.
func pacedTrial(subject string, rate int, served, p99 float64) results.Trial {
	t := results.Trial{
		Subject: subject, Load: "arrivals", Repeat: 1, Valid: true, Saturated: results.SaturatedNone,
		Params: map[string]any{"concurrency": 300, "kept": "no", "arrivals": rate},
		Metrics: map[string]float64{results.RequestsPerSecond: served, results.OfferedPerSecond: float64(rate),
			results.LatencyMsP50: 1,
			results.LatencyMsP99: p99, results.BalancerCPUUsPerRequest: 5},
	}
	if rate == 0 {
		t.Load, t.Metrics[results.OfferedPerSecond] = "highest-rate", served
		delete(t.Params, "arrivals")
		t.Params["p99_bound_ms"] = 50
	}
	return t
}

// TestPaced checks the report of open loops.
func TestPaced(t *testing.T) {
	run := &results.Run{Schema: results.Schema, Suite: "s", Trials: []results.Trial{
		pacedTrial("direct", 2000, 1999, 1.25), pacedTrial("jeoul-l2dsr-xdp", 2000, 1998, 1.5),
		pacedTrial("haproxy-http", 2000, 1997, 9.75),
		pacedTrial("direct", 4000, 3999, 2.25), pacedTrial("jeoul-l2dsr-xdp", 4000, 3998, 2.5),
		// A trial that could not be measured lacks the rate.
		{Subject: "ipvs-dr", Load: "arrivals", Repeat: 1, Notes: []string{"IPVS is not installed"},
			Params: map[string]any{"concurrency": 300, "kept": "no"}, Metrics: map[string]float64{}},
		pacedTrial("direct", 0, 9000, 45), pacedTrial("jeoul-l2dsr-xdp", 0, 8100, 44),
		pacedTrial("haproxy-http", 0, 4050, 49),
	}}
	text := strings.Join(strings.Fields(render(t, Markdown, run)), " ")
	for _, want := range []string{
		"With 2,000 requests due a second, 99 % were answered within: direct 1.25 ms; haproxy-http 9.75 ms; jeoul-l2dsr-xdp 1.50 ms.",
		"With 4,000 requests due a second, 99 % were answered within: direct 2.25 ms; jeoul-l2dsr-xdp 2.50 ms.",
		"## The highest rate that holds, new connections (open loop)",
		"jeoul-l2dsr-xdp looks like 2.00 × haproxy-http's requests/s",
		"p99 of at most 50 ms",
		"**Open loop.**",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	if strings.Contains(text, "Closed loop") {
		t.Error("the report speaks of a closed loop")
	}
	if t.Failed() {
		t.Log(text)
	}
}
