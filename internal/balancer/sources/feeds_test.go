// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestHear: a program's report on its source is in the list with its age, bounded; a person's source has none.
func TestHear(t *testing.T) {
	s := &Sources{}
	now := time.Now()
	cfg, err := config.Merge(config.Source{Name: "f", Data: []byte("interface: eth0\nservices: []\n")})
	if err != nil {
		t.Fatal(err)
	}
	s.now.Store(&revision{cfg: cfg, fragments: []Fragment{{Name: "old"}}})
	said := ops.FeedReport{Follows: "a cluster", AsOf: now.Add(-time.Minute),
		Problems: []ops.FeedProblem{{Kind: ops.ProblemUnreached, Problem: "it does not answer", Since: now.Add(-time.Minute)}}}
	if err := s.SetFeedReport("kubernetes", said); err != nil {
		t.Fatal(err)
	}
	got := s.Feeds(now)
	if len(got) != 1 || got[0].Source != "kubernetes" || got[0].Silent || got[0].SourceAge(now) != time.Minute {
		t.Errorf("got %+v", got)
	}
	later := got[0].Heard.Add(2 * feedTimeout)
	got = s.Feeds(later)
	lines := strings.Join(got[0].Lines(later), "\n")
	if !got[0].Silent || !strings.Contains(lines, "has said nothing for 1m") ||
		!strings.Contains(lines, "it does not answer (for 2m0s)") {
		t.Errorf("later: %+v, %s", got, lines)
	}
	for name, bad := range map[string]struct {
		source string
		report ops.FeedReport
		want   error
	}{
		"the file":      {"file", said, ErrOwned},
		"the API":       {API, said, ErrOwned},
		"a bad name":    {"a b", said, ErrMalformed},
		"a long text":   {"kubernetes", ops.FeedReport{Follows: strings.Repeat("a", maxText+1)}, ErrMalformed},
		"many troubles": {"kubernetes", ops.FeedReport{Problems: make([]ops.FeedProblem, maxProblems+1)}, ErrMalformed},
	} {
		if err := s.SetFeedReport(bad.source, bad.report); !errors.Is(err, bad.want) {
			t.Errorf("%s: %v, want %v", name, err, bad.want)
		}
	}
}
