// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestBulkAgainstItsBaseline checks that a bulk load is compared with the baseline that the run names, and does not
// mention requests.
func TestBulkAgainstItsBaseline(t *testing.T) {
	bulk := func(subject string, gigabits float64) results.Trial {
		return results.Trial{
			Subject: subject, Load: "bulk", Params: map[string]any{"streams": 1, "offloads": "yes"}, Repeat: 1,
			Valid:     true,
			Saturated: results.SaturatedUnknown,
			Metrics:   map[string]float64{results.GigabitsPerSecond: gigabits, results.Retransmits: 0},
		}
	}
	absent := results.Trial{
		Subject: "iptables-nth", Load: "bulk", Params: map[string]any{"streams": 1, "offloads": "yes"}, Repeat: 1,
		Saturated: results.SaturatedUnknown, Notes: []string{"iptables-nft is not installed"},
	}
	run := runOf(bulk("jeoul-nat-tc", 19), bulk("direct", 25), bulk("routed", 20), bulk("haproxy-tcp", 8), absent)
	run.Baseline = "routed"
	text := render(t, Terminal, run)
	for _, part := range []string{
		"How many gigabits a second does each let through",
		"jeoul-nat-tc looks like 2.38 × haproxy-tcp's Gbit/s",
		"× routed: against the same load through routed",
		"iptables-nft is not installed",
		"1 stream",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), part) {
			t.Errorf("the report does not say %q:\n%s", part, text)
		}
	}
	if strings.Contains(text, "requests") {
		t.Errorf("the report speaks of requests:\n%s", text)
	}
	sections := aggregate(run.Trials, run.Baseline)
	if got := model.NewPalette(sections).Ink("routed"); got != chart.InkBaseline {
		t.Errorf("the baseline has ink %v", got)
	}
	for _, f := range model.Figures(sections[0], model.NewPalette(sections)) {
		if f.Title != "Gbit/s" {
			t.Errorf("there is a chart %q, though nothing was measured for it", f.Title)
		}
	}
}
