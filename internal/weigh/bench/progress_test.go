// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

func TestProgress(t *testing.T) {
	direct, _ := subject.Find("direct")
	ab, _ := load.Find("ab")
	trial := Trial{Point: Point{Subject: direct, Load: "ab", Kind: ab, Concurrency: 500}, Repeat: 2}
	good := results.Trial{Valid: true, Metrics: map[string]float64{
		results.RequestsPerSecond: 12345.6, results.LatencyMsP99: 7.89, results.BalancerCPUUsPerRequest: 1.25}}
	bad := results.Trial{Notes: []string{"it broke", "more"}}
	var got strings.Builder
	p := newProgress(&got, false, nil)
	p.begin(10, 0)
	p.done, p.began = 8, time.Now().Add(-90*time.Second)
	p.starting(trial)
	p.ended(trial, good)
	p.starting(trial)
	p.ended(trial, bad)
	want := " 9/10 direct, ab, concurrency 500, repeat 2: 12346 requests/s, 0 failed, p99 7.9 ms, balancer 1.2 µs/request, 10s left\n" +
		"10/10 direct, ab, concurrency 500, repeat 2: not valid: it broke\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProgressOnATerminal(t *testing.T) {
	direct, _ := subject.Find("direct")
	ab, _ := load.Find("ab")
	trial := Trial{Point: Point{Subject: direct, Load: "ab", Kind: ab, Concurrency: 500}, Repeat: 2}
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
