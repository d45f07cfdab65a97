// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// flooded makes a run of one load with a trial of each subject.
func flooded(metrics map[string]map[string]float64) *results.Run {
	run := &results.Run{Schema: results.Schema, Suite: "synflood", Title: "Under a SYN flood", Started: time.Unix(1, 0)}
	for _, subject := range []string{"direct", "iptables-nth", "jeoul-l2dsr-xdp", "jeoul-nat-xdp"} {
		m := map[string]float64{
			results.Established: 300, results.EstablishedLost: 0, results.QuietLatencyMsP99: 0.5,
			results.FloodLatencyMsP99: 0.75,
			results.FloodRatioP99:     1.5, results.FloodNewOpened: 50, results.FloodNewFailed: 0,
			results.FloodOfferedPerSecond: 1e6, results.FloodHandledPerSecond: 1e6,
			results.QuietBalancerCPUCores: 0.1, results.FloodBalancerCPUCores: 0.3,
			results.RememberedDuring: 1000, results.RememberedLimit: 2000,
		}
		maps.Copy(m, metrics[subject])
		run.Trials = append(run.Trials, results.Trial{
			Subject: subject, Load: "syn", Repeat: 1, Valid: true, Saturated: results.SaturatedUnknown, Metrics: m,
			Params: map[string]any{"flood": "syn", "beyond": "drop", "every_ms": 100.0, "new_per_second": 50,
				"concurrency": 300},
		})
	}
	return run
}

func TestFloodVerdict(t *testing.T) {
	const ours = "jeoul-l2dsr-xdp"
	for name, c := range map[string]struct {
		changed map[string]float64
		holds   bool
		says    string
	}{
		"all is well": {nil, true,
			"jeoul-l2dsr-xdp (0 lost, p99 1.50 × (0.50 ms quiet, 0.75 ms in the flood), 1,000 of 2,000 kept)"},
		"one lost":      {map[string]float64{results.EstablishedLost: 1}, false, "(1 lost,"},
		"twice as long": {map[string]float64{results.FloodRatioP99: 2}, true, "p99 2.00 ×"},
		"longer":        {map[string]float64{results.FloodRatioP99: 2.01}, false, "p99 2.01 ×"},
		"unbounded":     {map[string]float64{results.RememberedDuring: 2001}, false, "2,001 of 2,000 kept"},
		"new ones fail": {map[string]float64{results.FloodNewFailed: 7}, true, "7 new connections failed"},
	} {
		t.Run(name, func(t *testing.T) {
			run := flooded(map[string]map[string]float64{ours: c.changed})
			var text []string
			for _, s := range aggregate(run.Trials, "") {
				text = append(text, model.Verdict(s)...)
			}
			held, missed, others := text[0], "", text[len(text)-1]
			if len(text) == 3 {
				missed = text[1]
			}
			where := missed
			if c.holds {
				where = held
			}
			if !strings.Contains(where, c.says) {
				t.Errorf("%q is not in %q\n%s", c.says, where, strings.Join(text, "\n"))
			}
			if !strings.Contains(held, "jeoul-nat-xdp (0 lost") ||
				!strings.Contains(others, "The others: iptables-nth (0 lost") ||
				strings.Contains(strings.Join(text, ""), "direct (") {
				t.Errorf("the verdict is\n%s", strings.Join(text, "\n"))
			}
		})
	}
}

// TestFloodCollapse: a subject that breaks down in the flood, in one repeat or in all, is not one that loses nothing.
func TestFloodCollapse(t *testing.T) {
	const ours = "jeoul-nat-xdp"
	for name, c := range map[string]struct {
		repeats []bool // which are valid
		says    string
	}{
		"in the only trial": {[]bool{false}, ours + " 1 of 1"},
		"in a repeat":       {[]bool{true, false, true}, ours + " 1 of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			run := flooded(nil)
			trial := run.Trials[3]
			run.Trials = run.Trials[:3]
			for i, valid := range c.repeats {
				trial.Repeat, trial.Valid = i+1, valid
				run.Trials = append(run.Trials, trial)
			}
			s := aggregate(run.Trials, "")[0]
			answer := strings.Join(s.Kind.Answer(s), "\n")
			for _, part := range []string{"through any of the 2.", "Trials that are not valid: " + c.says + "."} {
				if !strings.Contains(answer, part) {
					t.Errorf("the answer does not say %q:\n%s", part, answer)
				}
			}
			wantKorean(t, append(s.Kind.Answer(s), model.Verdict(s)...)...)
			for _, sentence := range model.Verdict(s) {
				missed := strings.Contains(sentence, "That is missed by")
				if missed != strings.Contains(sentence, ours) || missed && !strings.Contains(sentence, "trials not valid") {
					t.Errorf("the verdict has %q", sentence)
				}
			}
		})
	}
}

// TestFloodReport makes every form of the report, and checks that it has the required texts.
func TestFloodReport(t *testing.T) {
	run := flooded(nil)
	for name, form := range map[string]func(*bytes.Buffer) error{
		"terminal": func(b *bytes.Buffer) error { return Terminal(b, run) },
		"markdown": func(b *bytes.Buffer) error { return Markdown(b, run) },
		"HTML":     func(b *bytes.Buffer) error { return HTML(b, run) },
		"picture":  func(b *bytes.Buffer) error { return Chart(b, run) },
	} {
		var text bytes.Buffer
		if err := form(&text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "picture" {
			continue
		}
		// 0.2 cores for a million packets a second are 200 ns each.
		words := strings.Join(strings.Fields(text.String()), " ")
		for _, want := range []string{"Those who are connected", "a flood of SYN", "dropped behind the balancer",
			"1,000,000", "200", "Who of those that are connected"} {
			if !strings.Contains(words, want) {
				t.Errorf("%s does not say %q", name, want)
			}
		}
		if strings.Contains(words, "what was saturated") || strings.Contains(words, "Requests/s") {
			t.Errorf("%s speaks of requests a second", name)
		}
	}
}
