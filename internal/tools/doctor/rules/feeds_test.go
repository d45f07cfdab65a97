// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestJudgeFeeds: a source whose program is silent, or in trouble, is found by the kind of that; one that is well is
// not.
func TestJudgeFeeds(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	trouble := func(kind ops.TroubleKind, problem string) ops.FeedTrouble {
		return ops.FeedTrouble{Kind: kind, Problem: problem, Since: now.Add(-10 * time.Minute)}
	}
	well := ops.Feed{Source: "kubernetes", Services: 3, Heard: now}
	silent, troubled := well, well
	silent.Silent, silent.Heard = true, now.Add(-time.Hour)
	troubled.AsOf = now.Add(-10 * time.Minute)
	troubled.Troubles = []ops.FeedTrouble{trouble(ops.TroubleUnreached, "the API server is not reached"),
		trouble(ops.TroubleRight, "may not patch services/status"),
		trouble(ops.TroubleRight, "may not create events"), trouble("newer", "something new"),
		trouble(ops.TroubleUnclaimed, "no controller serves its class"), trouble(ops.TroubleKept, "it vanished")}
	for name, test := range map[string]struct {
		feed  ops.Feed
		kinds []string
		text  string
	}{
		"well":   {well, nil, ""},
		"silent": {silent, []string{sourceOld}, "says nothing any more: 3 services"},
		"troubled": {troubled, []string{sourceOld, sourceRight, sourceTrouble, sourceUnclaimed, sourceKept},
			"the API server is not reached"},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []string
			text := ""
			for _, f := range judgeFeeds(&ops.Status{Feeds: []ops.Feed{test.feed}}, now) {
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
