// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"testing"
	"time"

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
		"narrow": {slices.Concat(repeated("direct", 100, 101, 100), repeated("jeoul-nat-tc", 90, 91, 90)),
			now.Add(time.Hour), "after 3 repeats: each ratio is known to ± 0.2 %"},
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
