// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestCheckFeeds: a source whose program is silent, or reports a problem, is found with the kind of the problem. A
// healthy one is not.
func TestCheckFeeds(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	problem := func(kind ops.ProblemKind, problem string) ops.FeedProblem {
		return ops.FeedProblem{Kind: kind, Problem: problem, Since: now.Add(-10 * time.Minute)}
	}
	well := ops.Feed{Source: "kubernetes", Services: 3, Heard: now}
	silent, failing := well, well
	silent.Silent, silent.Heard = true, now.Add(-time.Hour)
	failing.AsOf = now.Add(-10 * time.Minute)
	failing.Problems = []ops.FeedProblem{problem(ops.ProblemUnreached, "the API server is not reached"),
		problem(ops.ProblemRight, "may not patch services/status"),
		problem(ops.ProblemRight, "may not create events"), problem("newer", "something new"),
		problem(ops.ProblemUnclaimed, "no controller serves its class"), problem(ops.ProblemKept, "it vanished")}
	for name, test := range map[string]struct {
		feed  ops.Feed
		kinds []string
		text  string
	}{
		"well":   {well, nil, ""},
		"silent": {silent, []string{sourceOld}, "says nothing any more: 3 services"},
		"troubled": {failing, []string{sourceOld, sourceRight, sourceProblem, sourceUnclaimed, sourceKept},
			"the API server is not reached"},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []string
			text := ""
			for _, f := range checkFeeds(&ops.Status{Feeds: []ops.Feed{test.feed}}, now) {
				kinds = append(kinds, f.Kind)
				text += f.Title + "\n"
				for _, figure := range f.Seen {
					if want := float64(600); name == "troubled" && figure.Value != want {
						t.Errorf("%s lasts %g seconds, want %g", figure.Note, figure.Value, want)
					}
				}
			}
			if !slices.Equal(kinds, test.kinds) || !strings.Contains(text, test.text) {
				t.Errorf("found %v: %s; want %v", kinds, text, test.kinds)
			}
		})
	}
}
