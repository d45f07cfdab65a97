// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// rated is a kind whose trials have a rate.
type rated struct{ Experiment }

func (rated) Line(got []results.Trial) string {
	return LineOf(got, func(m map[string]float64) string { return fmt.Sprintf("%.0f/s", m[results.RequestsPerSecond]) })
}

func TestProgress(t *testing.T) {
	direct, _ := subjects.Find("direct")
	trial := Trial{Point: Point{Subject: direct, Load: "ab", Experiment: rated{}, Concurrency: 500}, Repeat: 2}
	good := results.Trial{Valid: true, Metrics: map[string]float64{
		results.RequestsPerSecond: 12345.6}}
	bad := results.Trial{Notes: []string{"it broke", "more"}}
	var got strings.Builder
	p := newProgress(&got, false, nil)
	p.begin(10, 0)
	p.done, p.began = 8, time.Now().Add(-90*time.Second)
	p.starting(trial)
	p.ended(trial, good)
	p.starting(trial)
	p.ended(trial, bad)
	want := " 9/10 direct, ab, concurrency 500, repeat 2: 12346/s, 10s left\n" +
		"10/10 direct, ab, concurrency 500, repeat 2: not valid: it broke\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProgressOnATerminal(t *testing.T) {
	direct, _ := subjects.Find("direct")
	trial := Trial{Point: Point{Subject: direct, Load: "ab", Experiment: rated{}, Concurrency: 500}, Repeat: 2}
	var got strings.Builder
	p := newProgress(&got, true, func() int { return 200 })
	p.begin(10, 4)
	p.done, p.began, p.last = 5, time.Now().Add(-10*time.Second), time.Now()
	p.starting(trial)
	before := sample{at: time.Now().Add(-time.Second)}
	p.traffic = func() (clients, balancer lab.Traffic, err error) {
		return lab.Traffic{ReceivedFrames: 41_000, ReceivedBytes: 30_000_000, SentFrames: 12_000},
			lab.Traffic{ReceivedFrames: 20_000}, nil
	}
	p.measure(before)
	p.paint()
	for _, want := range []string{"[████████████░░░░░░░░░░░░]  5/10 trials, 50s left",
		"now: direct, ab, concurrency 500, repeat 2, for 0s",
		"kframes/s", "Mbit/s"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("the status lacks %q: %q", want, got.String())
		}
	}
}
