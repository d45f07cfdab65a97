// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestTimesAcrossClockGaps: times while the clock stood still are after earlier times and before later ones, and in
// their own order.
func TestTimesAcrossClockGaps(t *testing.T) {
	gap := func(at uint32, duration time.Duration) ClockGap { return ClockGap{at: at, duration: duration} }
	p := ClockGaps{}.with(gap(10_000, 20*time.Second)).with(gap(15_000, time.Minute))
	const clock = 15_400
	last := uint32(clock)
	for _, test := range []struct {
		silent   time.Duration
		at, most uint32
	}{
		{0, 15_400, 15_400}, {300 * time.Millisecond, 15_200, 15_200},
		{time.Second, 15_001, 15_199}, {59 * time.Second, 15_001, 15_199},
		{61 * time.Second, 14_400, 14_400}, {66 * time.Second, 10_001, 10_199}, {85 * time.Second, 10_001, 10_199},
		{86 * time.Second, 9400, 9400},
	} {
		got := p.Ago(clock, test.silent)
		if got < test.at || got > test.most || got > last {
			t.Errorf("%v ago: %d, want %d to %d, and no more than %d", test.silent, got, test.at, test.most, last)
		}
		last = got
	}
	for seen, want := range map[uint32]time.Duration{15_001: 0, 15_000: time.Minute, 10_001: time.Minute,
		10_000: 80 * time.Second, 1: 80 * time.Second} {
		if got := p.Since(seen); got != want {
			t.Errorf("since %d it stood still for %v, want %v", seen, got, want)
		}
	}
	for range 2 * MaxClockGaps {
		p = p.with(gap(16_000, time.Second))
	}
	if len(p) != MaxClockGaps {
		t.Errorf("%d are kept, want %d", len(p), MaxClockGaps)
	}
}

// TestClockGapsAge: a gap counts for flows that were last seen before it, as long as there can be such flows. After
// half a turn of the clock it would seem to be later than any flow.
func TestClockGapsAge(t *testing.T) {
	const day = 24 * time.Hour
	j := NewJanitor(lb.Timeouts{})
	j.Resume(1000, time.Minute)
	began := j.time
	for _, test := range []struct {
		age         time.Duration
		before, now time.Duration
	}{{0, time.Minute, time.Minute}, {time.Second, time.Minute, 0}, {19 * day, time.Minute, 0}, {25 * day, 0, 0},
		{49 * day, 0, 0}, {50 * day, 0, 0}} {
		j.time = began + test.age
		gaps := j.ClockGaps()
		if got := gaps.Since(1000); got != test.before {
			t.Errorf("after %v, a flow from before the gap: %v, want %v", test.age, got, test.before)
		}
		if got := gaps.Since(j.clock()); got != test.now {
			t.Errorf("after %v, a flow seen now: %v, want %v", test.age, got, test.now)
		}
	}
}
