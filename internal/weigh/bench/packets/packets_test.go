// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testbpf"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/bench/packets/object"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// benchTarget is the target that measures every case; `make test` measures some of each kind.
const benchTarget = "test-bench"

// someCases matches cases that need few balancers, each of which the kernel takes half a second to verify: cases of
// L2DSR, which stores no flows, of NAT, which stores flows, of a tunnel, of full NAT, and of a change of the backends.
var someCases = regexp.MustCompile(`adjust|line|macswap|` +
	`jeoul-l2dsr-\w+ (configured|family)=.* flows=1 .*scheduler=maglev$|jeoul-gue-.*scheduler=maglev$|` +
	`jeoul-fullnat-|jeoul-nat-.*scheduler=rr$|change=`)

// TestMeasure runs some cases in XDP. In its target's run it runs every case in XDP and every mode in TC, with few
// packets. Measure itself checks that each packet ends as its case requires, and otherwise marks the trial as invalid.
func TestMeasure(t *testing.T) {
	testenv.Also(t, benchTarget)
	chosen := map[lb.Hook]*regexp.Regexp{lb.HookXDP: someCases}
	modes := []lb.Mode{lb.L2DSR, lb.GUE, lb.NAT, lb.FullNAT}
	if testenv.InTarget(benchTarget) {
		chosen = map[lb.Hook]*regexp.Regexp{lb.HookXDP: nil,
			lb.HookTC: regexp.MustCompile(`adjust|line|macswap|scheduler=(maglev|rr)`)}
		modes = lb.PacketModes
	}
	testenv.Root(t)
	for hook, only := range chosen {
		trials, err := Measure(t.Context(), Options{Repeats: 1, Rounds: 1, Packets: 2000, Hooks: []lb.Hook{hook},
			Only:       only,
			flowCounts: []uint32{1, 1 << 8}})
		if err != nil {
			t.Fatal(err)
		}
		if want := len(cases(hook, []uint32{1, 1 << 8})); only == nil && len(trials) != want {
			t.Errorf("%d trials, want %d", len(trials), want)
		}
		checkTrials(t, hook, modes, trials)
	}
}

// checkTrials requires trials of every baseline and of these modes, all of them valid.
func checkTrials(t *testing.T, hook lb.Hook, modes []lb.Mode, trials []results.Trial) {
	t.Helper()
	run := &results.Run{Schema: results.Schema, Suite: "packets", Started: time.Now(), Trials: trials}
	if err := run.Validate(); err != nil {
		t.Error(err)
	}
	subjects := map[string]bool{}
	for _, trial := range trials {
		subjects[trial.Subject] = true
		if !trial.Valid {
			t.Errorf("%s %v: %v", trial.Subject, trial.Params, trial.Notes)
		} else if trial.Metrics[results.NsPerPacket] <= 0 {
			t.Errorf("%s %v took no time", trial.Subject, trial.Params)
		}
		if trial.Subject == harness.Empty && trial.Metrics[results.NsNetOfEmpty] != 0 {
			t.Errorf("the baseline is not its own: %v", trial.Metrics)
		}
	}
	want := []string{harness.Empty, harness.MACSwap, harness.Adjust, harness.Line}
	for _, mode := range modes {
		want = append(want, fmt.Sprintf("jeoul-%s-%s", mode, hook))
	}
	for _, want := range want {
		if !subjects[want] {
			t.Errorf("no trial of %s", want)
		}
	}
}

// TestCasesDiffer: two cases with the same subject and parameters would count as repeats of each other.
func TestCasesDiffer(t *testing.T) {
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		seen := map[string]bool{}
		for _, m := range cases(hook, defaultFlowCounts) {
			if seen[m.String()] {
				t.Errorf("%v stands twice", m)
			}
			seen[m.String()] = true
		}
	}
}

func TestMeasureStopsWithItsContext(t *testing.T) {
	testenv.Root(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Measure(ctx, Options{Repeats: 1, Rounds: 1, Packets: 100, Hooks: []lb.Hook{lb.HookXDP},
		flowCounts: []uint32{1}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// TestWrongOutcomeIsAnError aims a case at an address without a service, and claims that packets that open flows belong
// to known ones. The rig must not report figures for other packets than the case has.
func TestWrongOutcomeIsAnError(t *testing.T) {
	testenv.Root(t)
	m := benchCase{subject: "jeoul-l2dsr-xdp", hook: lb.HookXDP, mode: lb.L2DSR, setup: singleMode(lb.L2DSR),
		scheduler: lb.Maglev, kind: known, protocol: lb.TCP, flows: 1, frame: ack4(foreign4)}
	r, err := newRig(lb.HookXDP, []benchCase{m}, 1, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if _, err := r.measure(0, m, 100); !errors.Is(err, errOutcome) {
		t.Errorf("packets that were passed were measured as forwarded: %v", err)
	}
	m.frame = syn4(web4)
	if _, err := r.measure(0, m, 100); !errors.Is(err, errOutcome) {
		t.Errorf("packets that open flows were measured as those of known flows: %v", err)
	}
}

// TestOnly: the selected case is measured, together with the empty program.
func TestOnly(t *testing.T) {
	testenv.Root(t)
	rounds := 0
	options := Options{Repeats: 1, Rounds: 2, Packets: 100, Hooks: []lb.Hook{lb.HookXDP}, flowCounts: []uint32{1},
		Only: regexp.MustCompile("macswap"), Progress: func(round, of int) { rounds++ }}
	trials, err := Measure(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if rounds != 2 {
		t.Errorf("progress was called for %d rounds, want 2", rounds)
	}
	if len(trials) != 2 || trials[0].Subject != harness.Empty || trials[1].Subject != harness.MACSwap ||
		len(trials[1].Samples[results.NsPerPacket]) != 2 {
		t.Errorf("measured %v", trials)
	}
	options.Only = regexp.MustCompile("nothing of that name")
	if _, err := Measure(t.Context(), options); !errors.Is(err, ErrNothing) {
		t.Errorf("nothing was chosen: %v", err)
	}
}

// TestFastest: for each case the fastest round counts, even if the empty program was fastest in another one. If one
// round is invalid, there is no figure.
func TestFastest(t *testing.T) {
	round := func(whole, empty float64, valid bool) []results.Trial {
		return []results.Trial{{Subject: "a", Valid: valid, Metrics: metricsOf(whole, empty)},
			{Subject: "b", Valid: true, Metrics: metricsOf(7, 2)}}
	}
	trials := fastest([][]results.Trial{round(90, 30, true), round(50, 40, true), round(60, 20, true)})
	want := results.Trial{Subject: "a", Valid: true, Metrics: metricsOf(50, 20),
		Samples: map[string][]float64{results.NsPerPacket: {90, 50, 60}, results.NsEmpty: {30, 40, 20}}}
	if diff := cmp.Diff(want, trials[0]); diff != "" {
		t.Errorf("the fastest (-want +got):\n%s", diff)
	}
	if len(trials) != 2 || trials[1].Metrics[results.NsNetOfEmpty] != 5 {
		t.Errorf("another case became %v", trials[1:])
	}
	if trials = fastest([][]results.Trial{round(90, 30, true), round(50, 40, false)}); trials[0].Valid {
		t.Errorf("a round that is not valid left %v", trials[0])
	}
}

// TestObject measures a program other than jeoul's beside one of jeoul's. Cases that do not behave as the setup says
// are invalid.
func TestObject(t *testing.T) {
	testenv.Root(t)
	file := testbpf.Compile(t, "object/testdata/rewriter.bpf.c")
	data, err := os.ReadFile("object/testdata/rewriter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for change, valid := range map[string]bool{"": true, "returns: 2": false, "each: 2": false} {
		text := string(data)
		if name, _, changed := strings.Cut(change, ":"); changed {
			text = regexp.MustCompile(name+`: \d`).ReplaceAllString(text, change)
		}
		setup, err := object.Parse("rewriter.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		trials, err := Measure(t.Context(), Options{Repeats: 1, Rounds: 1, Packets: 1000,
			Hooks: []lb.Hook{lb.HookXDP, lb.HookTC}, Only: regexp.MustCompile("macswap"), flowCounts: []uint32{1},
			Object: &Object{File: file, Setup: setup}})
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]int{}
		for _, trial := range trials {
			of[trial.Subject]++
			if trial.Subject == "rewriter" && trial.Valid != valid {
				t.Errorf("%q: valid %v: %q", change, trial.Valid, trial.Notes)
			}
		}
		if diff := cmp.Diff(map[string]int{harness.Empty: 1, harness.MACSwap: 1, "rewriter": 2}, of); diff != "" {
			t.Errorf("%q: trials by subject (-want +got):\n%s", change, diff)
		}
	}
}
