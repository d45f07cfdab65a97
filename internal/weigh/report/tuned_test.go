// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// tunedTrials are repeats of a point with these requests per second.
func tunedTrials(by string, changed, drops float64, rates ...float64) []results.Trial {
	var all []results.Trial
	for i, rate := range rates {
		all = append(all, results.Trial{
			Subject: "direct", Load: "ab", Repeat: i + 1, Valid: true, Saturated: results.SaturatedUnknown,
			Params: map[string]any{"concurrency": 10, "tuned": by},
			Metrics: map[string]float64{results.RequestsPerSecond: rate, results.LatencyMsP99: 5 + rate/1e4,
				results.Failed:      0,
				results.ListenDrops: drops, results.DeviceDrops: 0, results.SettingsChanged: changed},
		})
	}
	return all
}

func TestTuned(t *testing.T) {
	run := &results.Run{Schema: results.Schema, Suite: "s"}
	for _, trials := range [][]results.Trial{
		tunedTrials("none", 0, 90, 100, 110, 105, 102),
		tunedTrials("somaxconn", 4, 0, 120, 130, 125, 128),
		tunedTrials("fin-timeout", 4, 90, 101, 104, 111, 99),
		tunedTrials("timestamps", 0, 90, 200, 201, 202, 203),
		tunedTrials("tw-reuse", 4, 90, 300, 301),
	} {
		run.Trials = append(run.Trials, trials...)
	}
	text := strings.Join(strings.Fields(render(t, Markdown, run)), " ")
	for _, want := range []string{
		"What is each setting of the hosts worth?",
		"Tuned by somaxconn: direct +22 %, -90 drops.",
		"Without an effect that shows: fin-timeout.",
		"Measured too few times (4 are needed) to say anything of: tw-reuse.",
		"Nothing to change, for the hosts have it by themselves, or cannot have it: timestamps.",
		"direct · tuned by timestamps",
		"| nothing to change |",
		"| too few repeats |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}
