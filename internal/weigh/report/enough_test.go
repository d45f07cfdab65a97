// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/certainty"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestEnough: a run ends when its ratios are narrow, or the time is up, and the reason is given.
func TestEnough(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, test := range map[string]struct {
		trials   []results.Trial
		deadline time.Time
		want     string
	}{
		"one repeat": {slices.Concat(repeated("direct", 100), repeated("jeoul-nat-tc", 90)), now.Add(time.Hour), ""},
		"wide": {slices.Concat(repeated("direct", 100, 120, 90), repeated("jeoul-nat-tc", 90, 91, 90)),
			now.Add(time.Hour), ""},
		// With so few pairs, an interval is as narrow as their scatter is by chance.
		"narrow, few": {slices.Concat(repeated("direct", 100, 101, 100, 99, 100),
			repeated("jeoul-nat-tc", 90, 91, 90, 89, 90)), now.Add(time.Hour), ""},
		"narrow": {slices.Concat(repeated("direct", 100, 101, 100, 99, 100, 100),
			repeated("jeoul-nat-tc", 90, 91, 90, 89, 90, 90)),
			now.Add(time.Hour), "after 6 repeats: each ratio is known to ± 0.1 %"},
		"narrow, another with few pairs": {slices.Concat(repeated("direct", 100, 101, 100, 99, 100, 100),
			repeated("jeoul-nat-tc", 90, 91, 90, 89, 90, 90), repeated("jeoul-l2dsr-tc", 90, 91, 90)),
			now.Add(time.Hour), ""},
		"late": {slices.Concat(repeated("direct", 100, 120, 90), repeated("jeoul-nat-tc", 90, 91, 90)), now,
			"because the time is up: jeoul-nat-tc to direct is known to ± "},
		"late, alone": {slices.Concat(repeated("direct", 100), repeated("jeoul-nat-tc", 90)), now,
			"has no interval yet"},
		"no ratio": {repeated("direct", 100, 101), now.Add(time.Hour), "no ratio can get narrower"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Enough(runOf(test.trials...), 0.05, test.deadline, now)
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestEnoughKeepsTheLevel: of runs that end once their ratio is narrow, as many have the true ratio in their interval
// as the report states.
func TestEnoughKeepsTheLevel(t *testing.T) {
	t.Parallel()
	const runs, most = 1000, 30
	r := rand.New(rand.NewPCG(1, 47))
	now := time.Now()
	ended, missed := 0, 0
	for range runs {
		run := runOf()
		for repeat := 1; repeat <= most; repeat++ {
			for _, subject := range []string{"direct", "jeoul-nat-tc"} {
				t := trial(subject, rps(1000*math.Exp(0.06/math.Sqrt2*r.NormFloat64())))
				t.Repeat = repeat
				run.Trials = append(run.Trials, t)
			}
			if Enough(run, 0.05, now.Add(time.Hour), now) == "" {
				continue
			}
			s := aggregate(run.Trials, "")[0]
			y, _ := s.Yardstick()
			if d := s.Compare(y, "jeoul-nat-tc", "direct", y.Metric); d.Differs() {
				missed++
			}
			ended++
			break
		}
	}
	if share := float64(missed) / float64(ended); ended < runs*9/10 || share > 1-certainty.StoppedLevel {
		t.Errorf("%d of %d runs ended, and %.1f %% of them miss the true ratio", ended, runs, share*100)
	}
}

// TestEndedRunStatesItsLevel: the report of a run that ended once its ratios were narrow states the level of such runs.
func TestEndedRunStatesItsLevel(t *testing.T) {
	t.Parallel()
	run := runOf(slices.Concat(repeated("direct", 100, 101, 100, 99, 100, 100),
		repeated("jeoul-nat-tc", 90, 91, 90, 89, 90, 90))...)
	now := time.Now()
	narrow := "the run ended " + Enough(run, 0.05, now.Add(time.Hour), now)
	late := "the run ended " + Enough(run, 0.0001, now, now)
	for note, want := range map[string]string{"": "in 97 of 100 runs; from 6", late: "in 97 of 100 runs; from 6",
		narrow: "in 95 of 100 runs that end, as this one did, once it is narrow; from 6"} {
		run.Environment.Notes = []string{note}
		sure := newDocument(run).Overview.Sure
		if !strings.Contains(sure, want) {
			t.Errorf("with the note %q, the page says %q, want %q", note, sure, want)
		}
		wantKorean(t, sure)
		if note != "" {
			wantKorean(t, note)
		}
	}
}
