// SPDX-License-Identifier: Apache-2.0

package flowtable

import (
	"testing"
	"time"
)

// TestTimesAcrossClockGaps: times while the clock stood still are after earlier times and before later ones, and in
// their own order.
func TestTimesAcrossClockGaps(t *testing.T) {
	p := ClockGaps{}.with(10_000, 20*time.Second).with(15_000, time.Minute)
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
		p = p.with(16_000, time.Second)
	}
	if len(p) != MaxClockGaps {
		t.Errorf("%d are kept, want %d", len(p), MaxClockGaps)
	}
}
