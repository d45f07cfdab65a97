// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// changed is a result of a change experiment.
func changed(subject, event string, metrics map[string]float64) results.Trial {
	all := map[string]float64{results.Applied: 1, results.AppliedMsMean: 2, results.AppliedMsMax: 3, results.Broken: 0,
		results.Ended:     0,
		results.NewFailed: 0, results.NewToLeft: 0}
	maps.Copy(all, metrics)
	params := map[string]any{"event": event, "concurrency": 2000}
	if strings.HasPrefix(subject, model.OwnPrefix) {
		params["scheduler"] = "maglev"
	}
	return results.Trial{Subject: subject, Load: "change", Params: params, Repeat: 1, Valid: true,
		Saturated: results.SaturatedNone, Metrics: all}
}

func TestChangeReport(t *testing.T) {
	cannot := changed("iptables-nth", "reweigh", nil)
	cannot.Valid, cannot.Metrics, cannot.Notes = false, map[string]float64{}, []string{results.NotPossible + ": it has no weights"}
	run := runOf(
		changed("jeoul-nat-xdp", "remove", map[string]float64{results.Ended: 80, results.UDPUnanswered: 2,
			results.UDPMoved:     0,
			results.NumberedSent: 1_000_000, results.NumberedMissing: 3, results.NumberedBefore: 2,
			results.NumberedBalancer: 0, results.NumberedBehind: 1, results.NumberedTwice: 0,
			results.NumberedPerSecond: 200_000}),
		changed("jeoul-nat-xdp", "reweigh", nil),
		changed("jeoul-nat-xdp", "flap", map[string]float64{results.Applied: 20, results.Broken: 7,
			results.BrokenReset: 5, results.BrokenSilent: 2}),
		changed("jeoul-nat-xdp", "share", map[string]float64{results.FlowsTried: 5000, results.FlowsMovedPercent: 4.5,
			results.FlowsOfLeftPercent: 4, results.FlowsMovedBeyondPercent: 0.5}),
		changed("iptables-nth", "remove", nil), cannot,
		changed("iptables-nth", "flap", map[string]float64{results.Applied: 20}),
	)
	run.Baseline = "iptables-nth"
	text := strings.Join(strings.Fields(render(t, Terminal, run)), " ")
	for _, part := range []string{
		"Who of those that are connected through each is cut off while its backends change?",
		"Not one connection to a backend that stayed broke in any event through iptables-nth.",
		"jeoul-nat-xdp · maglev broke connections to backends that stayed: 7 (flapped 7).",
		"jeoul-nat-xdp · maglev left UDP queries without an answer: 2 (removed 2).",
		"jeoul-nat-xdp · maglev lost numbered packets: 3 (removed 3).",
		"Not one numbered packet was lost between the switch's port to the balancer and back through jeoul-nat-xdp · maglev.",
		"jeoul-nat-xdp · maglev 3, 1,000,000, 200,000", "jeoul-nat-xdp · maglev 2, 0, 1",
		"No UDP flow moved whose backend stayed through jeoul-nat-xdp · maglev.",
		"Targets that hold: jeoul-nat-xdp · maglev, flows that moved beyond those of the backend that left ≤ 2 % (0.50 %).",
		"iptables-nth 0 not possible 0", "jeoul-nat-xdp · maglev 0 0 7", // the table of broken connections
		"jeoul-nat-xdp · maglev flapped 5 0 2 0 0",
		"jeoul-nat-xdp · maglev 80 0 0",
		"Weighed Flapped Subject Removed anew 10×",
		"it has no weights",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the report does not say %q:\n%s", part, text)
		}
	}
	if strings.Contains(text, "not measured") {
		t.Errorf("the report has a row for what was not measured:\n%s", text)
	}
}

// TestChangeThatFailed: a subject that fails in an event, in one repeat or in all, does not count as one that lost
// nothing, and its losses are not compared with those of subjects that came through every event.
func TestChangeThatFailed(t *testing.T) {
	failed := func(repeat int) results.Trial {
		t := changed("jeoul-nat-xdp", "flap", nil)
		t.Repeat, t.Valid, t.Metrics = repeat, false, map[string]float64{}
		t.Notes = []string{"opening 2000 connections: client05: i/o timeout"}
		return t
	}
	lossy := changed("haproxy-tcp", "flap", map[string]float64{results.Broken: 7})
	for name, run := range map[string]*results.Run{
		"at once": runOf(failed(1), changed("haproxy-tcp", "remove", nil), lossy),
		"after a clean event": runOf(changed("jeoul-nat-xdp", "remove", nil), failed(1),
			changed("haproxy-tcp", "remove", nil), lossy),
		"after a small loss": runOf(changed("jeoul-nat-xdp", "remove", map[string]float64{results.NewFailed: 1}), failed(1),
			changed("haproxy-tcp", "remove", nil), lossy),
		"in a repeat": runOf(changed("jeoul-nat-xdp", "remove", nil), changed("jeoul-nat-xdp", "flap", nil), failed(2),
			changed("haproxy-tcp", "remove", nil), lossy),
		"alone": runOf(changed("jeoul-nat-xdp", "remove", nil), failed(1)),
	} {
		t.Run(name, func(t *testing.T) {
			run.Baseline = "haproxy-tcp"
			s := aggregate(run.Trials, run.Baseline)[0]
			text := strings.Join(append(s.Kind.Answer(s), model.Verdict(s)...), "\n")
			const failure = "jeoul-nat-xdp · maglev did not come through every event (flapped)."
			if strings.Count(text, failure) != 2 {
				t.Errorf("the answer and the verdict do not say %q:\n%s", failure, text)
			}
			for _, wrong := range []string{"Nothing breaks", "Least is lost through jeoul", "Most is lost through jeoul",
				"in any event through jeoul"} {
				if strings.Contains(text, wrong) {
					t.Errorf("the report says %q of a subject that failed:\n%s", wrong, text)
				}
			}
			wantKorean(t, append(s.Kind.Answer(s), model.Verdict(s)...)...)
			lines := slices.Concat(s.Kind.Overview(s).Groups...)
			i := slices.IndexFunc(lines, func(l model.Line) bool { return strings.HasPrefix(l.Cells[0], "jeoul") })
			if i < 0 || lines[i].Quiet {
				t.Errorf("the overview has no row of it, or a grey one: %v", lines)
			}
		})
	}
}

func TestChangeReportIsDrawn(t *testing.T) {
	run := runOf(changed("haproxy-tcp", "reload", map[string]float64{results.Applied: 10}),
		changed("jeoul-nat-xdp", "reload", nil))
	for name, form := range map[string]string{"page": render(t, HTML, run), "picture": render(t, Chart, run)} {
		for _, part := range []string{"reload", "haproxy-tcp"} {
			if !strings.Contains(form, part) {
				t.Errorf("the %s lacks %q", name, part)
			}
		}
	}
}

func TestSilenceReport(t *testing.T) {
	silent := func(subject string, noticed bool, metrics map[string]float64) results.Trial {
		all := map[string]float64{results.SilentSeconds: 6, results.LostSYNs: 5, results.NewFailed: 4,
			results.LostSYNsBefore: 5,
			results.LostSYNsAfter:  0, results.ReusedFailedBefore: 1, results.ReusedFailedAfter: 0}
		if noticed {
			all[results.NoticedSeconds], all[results.BackSeconds] = 3.5, 0.5
		}
		maps.Copy(all, metrics)
		return changed(subject, "silent", all)
	}
	again := func(subject string, n float64) results.Trial {
		return changed(subject, "reset", map[string]float64{results.ResetByDrained: 9, results.CameAgain: 9,
			results.AgainToDrained: n, results.LostSYNs: 0})
	}
	run := runOf(
		silent("haproxy-tcp", false, nil), silent("jeoul-nat-xdp", true, nil),
		silent("jeoul-l2dsr-xdp", true, map[string]float64{results.LostSYNsAfter: 7, results.UDPUnansweredAfter: 2}),
		again("haproxy-tcp", 0), again("jeoul-nat-xdp", 0), again("jeoul-l2dsr-xdp", 3),
	)
	text := strings.Join(strings.Fields(render(t, Terminal, run)), " ")
	for _, part := range []string{
		"haproxy-tcp never noticed that a host was silent for 6.0 s: SYNs lost 5, connections failed 1, UDP queries unanswered 0.",
		"Once it was noticed that a host was silent, nothing was lost through jeoul-nat-xdp · maglev.",
		"jeoul-l2dsr-xdp · maglev noticed after 3.5 s that a host was silent, and went on to send to it: SYNs lost 7, connections failed 0, UDP queries unanswered 2.",
		"No connection that came again went to the drained backend through haproxy-tcp and jeoul-nat-xdp · maglev.",
		"jeoul-l2dsr-xdp · maglev sent connections that came again to the drained backend: 3 (drained and reset 3).",
		// Losses before the silence is noticed are in the tables, and not in the verdict.
		"Every new connection was answered through", "No SYN was lost of clients that use their ports again through",
		"haproxy-tcp never 6.0 5 0 1 0", "jeoul-nat-xdp · maglev 3.5 6.0 5 0 1 0", "jeoul-l2dsr-xdp · maglev 9 9 3",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the report does not say %q:\n%s", part, text)
		}
	}
	if strings.Contains(text, "failed new connections") {
		t.Errorf("the verdict holds against all what none can help:\n%s", text)
	}
}
