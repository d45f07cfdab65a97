// SPDX-License-Identifier: Apache-2.0

package change

import (
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestAgesOfBroken: a broken connection counts by its age at the last move of packets before it was found broken.
func TestAgesOfBroken(t *testing.T) {
	cut := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	restored := cut.Add(10 * time.Second)
	c := &changeTrial{moved: []time.Time{cut, restored}}
	c.runner = &bench.Runner{Lab: &lab.Lab{}}
	broke := func(opened, found time.Time) live.Break {
		return live.Break{Server: "web03", Cause: live.Reset, At: found, Age: found.Sub(opened)}
	}
	counts := live.Counts{}
	for i, tc := range []struct {
		opened, found time.Duration
		young         bool
		says          string
	}{
		{-5 * time.Second, time.Second, false, "1s after move 1 of 2 between balancers, when it was 5s old"},
		{-400 * time.Millisecond, time.Second, true, "when it was 400ms old"},
		{time.Second, 3 * time.Second, true, "opened 1s after move 1 of 2"},
		{time.Second, 11 * time.Second, false, "1s after move 2 of 2 between balancers, when it was 9s old"},
		{9500 * time.Millisecond, 12 * time.Second, true,
			"2s after move 2 of 2 between balancers, when it was 500ms old"},
		{-3 * time.Second, -time.Second, false, "before packets moved"},
	} {
		b := broke(cut.Add(tc.opened), cut.Add(tc.found))
		if says := c.describeBreak(b); !strings.Contains(says, tc.says) {
			t.Errorf("%d: got %q, want it to say %q", i, says, tc.says)
		}
		m := map[string]float64{}
		c.writeAges(changeEvent{}, live.Counts{Breaks: []live.Break{b}}, m)
		if is := m[results.BrokenYoung] == 1; is != tc.young || m[results.BrokenYoung]+m[results.BrokenOlder] != 1 {
			t.Errorf("%d: got %v, want young to be %v", i, m, tc.young)
		}
		counts.Breaks = append(counts.Breaks, b)
	}
	m := map[string]float64{}
	if c.writeAges(changeEvent{}, counts, m); m[results.BrokenYoung] != 3 || m[results.BrokenOlder] != 3 {
		t.Errorf("of all: got %v, want 3 and 3", m)
	}
}
