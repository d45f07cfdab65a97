// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// transactTrial is a valid trial of transactions.
func transactTrial(subject, load string, concurrency int, rate float64) results.Trial {
	metric := results.ConnectionsPerSecond
	if load == "rr" {
		metric = results.TransactionsPerSecond
	}
	return results.Trial{
		Subject: subject, Load: load, Repeat: 1, Valid: true, Saturated: results.SaturatedUnknown,
		Params: map[string]any{"concurrency": concurrency, "pinned": "no", "backends": 3},
		Metrics: map[string]float64{metric: rate, results.LatencyMsMin: 0.05, results.LatencyMsMean: 0.2,
			results.LatencyMsP50: 0.1,
			results.LatencyMsP99: 0.7, results.Failed: 0, results.BalancerCPUUsPerRequest: 5},
	}
}

// TestTransactions checks the tables, the charts and the targets of transactions.
func TestTransactions(t *testing.T) {
	run := &results.Run{Schema: results.Schema, Suite: "s", Baseline: "routed", Trials: []results.Trial{
		transactTrial("direct", "crr", 1, 20_000), transactTrial("routed", "crr", 1, 17_000),
		transactTrial("haproxy-tcp", "crr", 1, 10_000), transactTrial("jeoul-nat-tc", "crr", 1, 17_500),
		transactTrial("jeoul-l2dsr-tc", "crr", 1, 17_000),
		transactTrial("direct", "crr", 100, 40_000), transactTrial("routed", "crr", 100, 30_000),
		transactTrial("haproxy-tcp", "crr", 100, 20_000), transactTrial("jeoul-nat-tc", "crr", 100, 31_000),
		transactTrial("jeoul-l2dsr-tc", "crr", 100, 37_000),
		transactTrial("routed", "rr", 1, 60_000), transactTrial("jeoul-nat-tc", "rr", 1, 61_234),
		transactTrial("haproxy-tcp", "rr", 1, 30_000),
	}}
	text := strings.Join(strings.Fields(render(t, Markdown, run)), " ")
	for _, want := range []string{
		"How many transactions a second does each carry",
		"## A connection for each transaction (TCP_CRR)",
		"## Transactions over kept connections (TCP_RR)",
		"| Min latency, ms | Mean, ms |",
		"Targets that hold: jeoul-nat-tc ≥ 1.00 × routed (1.03).",
		"Targets that are missed: jeoul-nat-tc ≥ 1.70 × haproxy-tcp (1.55–1.75); jeoul-l2dsr-tc ≥ 0.90 × direct (0.85–0.93).",
		"Targets that hold: jeoul-nat-tc ≥ 1.00 × routed (1.02); jeoul-nat-tc ≥ 1.70 × haproxy-tcp (2.04).",
		"| 61,234 | 1.02 | 2.04 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	sections := aggregate(run.Trials, run.Baseline)
	var titles []string
	for _, f := range model.Figures(sections[0], model.NewPalette(sections)) {
		titles = append(titles, f.Title)
	}
	if got, want := strings.Join(titles, "; "),
		"Connections/s; Least and mean latency; The balancer's own CPU time"; got != want {
		t.Errorf("charts: %s; want %s", got, want)
	}
	if t.Failed() {
		t.Log(text)
	}
}
