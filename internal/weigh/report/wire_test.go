// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// wireSubject is a subject of a made-up run.
type wireSubject struct {
	name      string
	scheduler string
	// peak is the greatest rate of connections a second that it sets up.
	peak float64
	// uneven is by how much the first server exceeds its share, in per cent.
	uneven float64
	// held is the number of connections that it can hold, remembered the number that it stores.
	held, remembered float64
}

func wireSubjects() []wireSubject {
	return []wireSubject{
		{name: "direct", peak: 1_000_000, held: 5e6},
		{name: "bare", peak: 800_000, held: 5e6},
		{name: "haproxy-tcp", peak: 12_000, held: 9750, remembered: 19500},
		{name: "iptables-nth", peak: 130_000, held: 262_144, remembered: 262_144},
		{name: "jeoul-l2dsr-xdp", scheduler: "maglev", peak: 720_000, uneven: 2.5, held: 5e6},
		{name: "jeoul-l2dsr-xdp", scheduler: "rr", peak: 460_000, uneven: 0.1, held: 2e6, remembered: 2e6},
	}
}

// steps are the steps of a made-up ladder.
const steps = "7000 to 21000 by 7000"

// wireRun makes a run of a ladder, a search, connections held, and a flood.
func wireRun(subjects []wireSubject) *results.Run {
	run := &results.Run{
		Schema: results.Schema, Suite: "etri-connections", Title: "Connections", Started: time.Unix(1, 0),
		Environment: results.Environment{Kernel: "6.18", Cores: 2},
		Published: &results.Published{Source: "a document", Machine: "a switch of 2001",
			Columns: []string{"offered", "established"},
			Rows:    [][]string{{"12600", "12384"}}},
	}
	for _, s := range subjects {
		for _, offered := range []float64{7000, 14000, 21000} {
			run.Trials = append(run.Trials,
				s.trial("setup", offered, offered, map[string]any{"wire": "setup", "steps": steps, "offered": offered,
					"connections": 112000}))
		}
		run.Trials = append(run.Trials,
			s.trial("setup-peak", s.peak, s.peak, map[string]any{"wire": "setup", "offered": "search"}))
		held := s.trial("capacity", 300_000, 300_000, map[string]any{"wire": "capacity", "offered": 300000,
			"connections": 2_000_000})
		alive := min(s.held, 2e6)
		maps.Copy(held.Metrics, map[string]float64{results.WireBegun: 2e6, results.WireEstablished: alive,
			results.WireCompleted: alive,
			results.RememberedMax: s.remembered, results.MachineBytes: 1 << 30})
		run.Trials = append(run.Trials, held)
		beside := s.trial("flooded", 5000, 5000, map[string]any{"wire": "session", "offered": 5000,
			"connections": 10_000, "beside": "a SYN flood"})
		beside.Metrics[results.FloodSentPerSecond] = 1e6
		run.Trials = append(run.Trials, beside)
	}
	return run
}

// trial returns a trial of the subject.
func (s wireSubject) trial(load string, offered, begun float64, params map[string]any) results.Trial {
	done := min(offered, s.peak)
	metric := results.ConnectionsPerSecond
	if params["wire"] == "session" {
		metric = results.SessionsPerSecond
	}
	t := results.Trial{
		Subject: s.name, Load: load, Repeat: 1, Valid: true, Saturated: results.SaturatedNone, Params: params,
		Metrics: map[string]float64{
			metric: done, results.OfferedPerSecond: offered, results.BegunPerSecond: begun, results.WireBegun: begun,
			results.WireEstablished: done, results.WireAccepted: done, results.Failed: offered - done,
			results.FailedNoAnswer: offered - done,
			results.FailedPercent:  (offered - done) / offered * 100, results.SetupLatencyMsP50: 0.02,
			results.SetupLatencyMsP99: 0.25,
			results.UnevennessPercent: s.uneven, results.TesterKeptUp: 1,
		},
	}
	if done < offered {
		t.Saturated = results.SaturatedBalancer
	}
	if s.scheduler != "" {
		t.Params["scheduler"] = s.scheduler
	}
	if s.name != "direct" && s.name != "bare" {
		t.Metrics[results.BalancerCPUUsPerConnection] = 1e6 / s.peak
	}
	for i := range 7 {
		n := done / 7
		if i == 0 {
			n *= 1 + s.uneven/100
		}
		t.Backends = append(t.Backends, results.Backend{Name: fmt.Sprintf("web%02d", i+1), Connections: uint64(n)})
	}
	return t
}

func TestWireReport(t *testing.T) {
	run := wireRun(wireSubjects())
	// A subject that this machine cannot run has no step at all.
	run.Trials = append(run.Trials, results.Trial{Subject: "ipvs-dr", Load: "setup", Repeat: 1,
		Saturated: results.SaturatedUnknown,
		Params:    map[string]any{"wire": "setup", "steps": steps, "connections": 112000},
		Notes:     []string{"this kernel has no IPVS"}})
	for ending, write := range map[string]func(io.Writer, *results.Run) error{"md": Markdown, "svg": Chart} {
		compareGolden(t, filepath.Join("testdata", "wire."+ending), render(t, write, run))
	}
	page := render(t, HTML, run)
	for _, want := range []string{
		"Connections offered, and established", "Connections by server: iptables-nth",
		"Connections by server: jeoul-l2dsr-xdp · rr",
		"this kernel has no IPVS", "a switch of 2001",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestWireTargets changes one figure at a time, and checks the sentence that it changes.
func TestWireTargets(t *testing.T) {
	const maglev, rr = 4, 5
	for name, c := range map[string]struct {
		change func([]wireSubject)
		missed string
	}{
		"all is well":   {func([]wireSubject) {}, ""},
		"far from bare": {func(s []wireSubject) { s[1].peak = 900_000 }, "at least 0.85 × bare (0.80 ×)"},
		"near iptables": {func(s []wireSubject) { s[3].peak = 400_000 }, "at least 2.00 × iptables-nth (1.80 ×)"},
		"near HAProxy":  {func(s []wireSubject) { s[2].peak = 40_000 }, "at least 20.0 × haproxy-tcp (18.0 ×)"},
		"uneven": {func(s []wireSubject) {
			s[rr].uneven = 1.5
		}, "rr evenly, within 1 % at every step (at worst 1.50 %)"},
		"maglev uneven": {func(s []wireSubject) { s[maglev].uneven = 7 }, ""},
		"not all held":  {func(s []wireSubject) { s[rr].held = 1_999_999 }, "rr 1,999,999 of 2,000,000"},
		"maglev remembers": {func(s []wireSubject) { s[maglev].remembered = 1 },
			"maglev 2,000,000 of 2,000,000 (1 remembered)"},
		"flood": {func(s []wireSubject) { s[rr].peak = 4999 }, "rr lost 1 of 5,000 beside 1,000,000 SYNs/s"},
	} {
		t.Run(name, func(t *testing.T) {
			subjects := wireSubjects()
			c.change(subjects)
			var missed []string
			for _, s := range aggregate(wireRun(subjects).Trials, "") {
				for _, sentence := range model.Verdict(s) {
					if strings.Contains(sentence, "targets that are missed") {
						missed = append(missed, sentence)
					}
				}
			}
			text := strings.Join(missed, "\n")
			if (c.missed == "") != (text == "") || !strings.Contains(text, c.missed) {
				t.Errorf("missed is %q, want %q", text, c.missed)
			}
		})
	}
}

// collapsed returns a step, or a repeat of it, in which nothing came through.
func collapsed(step results.Trial, repeat int) results.Trial {
	step.Repeat, step.Valid, step.Metrics, step.Backends = repeat, false, nil, nil
	step.Saturated = results.SaturatedUnknown
	step.Notes = []string{"of 112000 connections that were begun, none came to anything"}
	return step
}

// TestWireCollapse: a step in which nothing came through is one with losses, and not one that was never offered.
func TestWireCollapse(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(run *results.Run, step int)
		offered        float64
		carries, evens string
	}{
		"all is well": {func(*results.Run, int) {}, 21000, "jeoul-l2dsr-xdp · rr all of them (21,000/s)",
			"targets that hold: jeoul-l2dsr-xdp · rr evenly"},
		"at the last step": {func(run *results.Run, i int) { run.Trials[i] = collapsed(run.Trials[i], 1) }, 21000,
			"jeoul-l2dsr-xdp · rr up to 14,000/s (at most 14,000/s)",
			"missed: jeoul-l2dsr-xdp · rr evenly, within 1 % at every step (at worst 0.10 %; steps with none: 1)"},
		"at a step between": {func(run *results.Run, i int) { run.Trials[i] = collapsed(run.Trials[i], 1) }, 14000,
			"jeoul-l2dsr-xdp · rr up to 7,000/s (at most 21,000/s)", "steps with none: 1"},
		"in a repeat": {func(run *results.Run, i int) {
			run.Trials = append(run.Trials, collapsed(run.Trials[i], 2))
		}, 21000, "jeoul-l2dsr-xdp · rr up to 14,000/s (at most 21,000/s)",
			"targets that hold: jeoul-l2dsr-xdp · rr evenly"},
	} {
		t.Run(name, func(t *testing.T) {
			run := wireRun(wireSubjects())
			c.change(run, slices.IndexFunc(run.Trials, func(step results.Trial) bool {
				return step.Load == "setup" && step.Params["scheduler"] == "rr" && step.Params["offered"] == c.offered
			}))
			var all []string
			for _, s := range aggregate(run.Trials, "") {
				if s.Load == "setup" {
					all = append(all, model.Verdict(s)...)
				}
			}
			text := strings.Join(all, "\n")
			if !strings.Contains(text, c.carries) || !strings.Contains(text, c.evens) {
				t.Errorf("the verdict is\n%s\nwant %q and %q", text, c.carries, c.evens)
			}
		})
	}
}

// TestWireCollapseBeside: a subject of ours that breaks down beside a flood, or while it is filled, in one repeat or in
// all, misses the target.
func TestWireCollapseBeside(t *testing.T) {
	for _, load := range []string{"flooded", "capacity"} {
		for name, repeat := range map[string]int{"in the only trial": 1, "in a repeat": 2} {
			t.Run(load+", "+name, func(t *testing.T) {
				run := wireRun(wireSubjects())
				i := slices.IndexFunc(run.Trials, func(t results.Trial) bool {
					return t.Load == load && t.Params["scheduler"] == "rr"
				})
				broken := collapsed(run.Trials[i], repeat)
				if repeat > 1 {
					run.Trials = append(run.Trials, broken)
				} else {
					run.Trials[i] = broken
				}
				says := fmt.Sprintf("jeoul-l2dsr-xdp · rr: 1 of %d trials not valid", repeat)
				if repeat > 1 {
					says = fmt.Sprintf("; 1 of %d trials not valid", repeat)
				}
				var missed string
				for _, s := range aggregate(run.Trials, "") {
					for _, sentence := range model.Verdict(s) {
						if s.Load == load && model.MissedTargets(sentence) {
							missed += sentence
							wantKorean(t, sentence)
						}
					}
				}
				if !strings.Contains(missed, says) {
					t.Errorf("missed is %q, want %q", missed, says)
				}
			})
		}
	}
}
