// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/bench/load"
	"github.com/jeoul/jeoul/internal/bench/subject"
	"github.com/jeoul/jeoul/internal/results"
)

func TestProgress(t *testing.T) {
	direct, _ := subject.Find("direct")
	ab, _ := load.Find("ab")
	trial := Trial{Point: Point{Subject: direct, Load: "ab", Kind: ab, Concurrency: 500}, Repeat: 2}
	good := results.Trial{Valid: true, Metrics: map[string]float64{
		results.RequestsPerSecond: 12345.6, results.LatencyMsP99: 7.89, results.BalancerCPUUsPerRequest: 1.25}}
	bad := results.Trial{Notes: []string{"it broke", "more"}}
	for _, tc := range []struct {
		live bool
		want string
	}{
		{false, " 9/10 direct, ab, concurrency 500, repeat 2: 12346 requests/s, 0 failed, p99 7.9 ms, balancer 1.2 µs/request, 10s left\n" +
			"10/10 direct, ab, concurrency 500, repeat 2: not valid: it broke\n"},
		{true, "\r\x1b[K 9/10 direct, ab, concurrency 500, repeat 2 …" +
			"\r\x1b[K 9/10 direct, ab, concurrency 500, repeat 2: 12346 requests/s, 0 failed, p99 7.9 ms, balancer 1.2 µs/request, 10s left\n" +
			"\r\x1b[K10/10 direct, ab, concurrency 500, repeat 2 …" +
			"\r\x1b[K10/10 direct, ab, concurrency 500, repeat 2: not valid: it broke\n"},
	} {
		var got strings.Builder
		p := &progress{to: &got, live: tc.live, total: 10, done: 8, began: time.Now().Add(-90 * time.Second)}
		p.starting(trial)
		p.ended(trial, good)
		p.starting(trial)
		p.ended(trial, bad)
		if diff := cmp.Diff(tc.want, got.String()); diff != "" {
			t.Errorf("live %v (-want +got):\n%s", tc.live, diff)
		}
	}
}
