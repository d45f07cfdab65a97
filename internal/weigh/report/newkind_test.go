// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestNewKind: the registration of a kind of load is all that a report needs.
func TestNewKind(t *testing.T) {
	t.Parallel()
	memcached := model.Registration{
		Titles: map[string]string{"mc": "Memcached (mc)"},
		Of: func(s *model.Section) *model.Kind {
			if s.Load != "mc" {
				return nil
			}
			return &model.Kind{Question: "how many values a second does each get", Yardstick: model.ByRate,
				Sheets:  func(*model.Section) []model.Sheet { return []model.Sheet{{Title: "Values"}} },
				Verdict: func(*model.Section) []string { return nil }}
		},
	}
	trials := slices.Concat(repeated("haproxy-http", 50, 51, 50), repeated("jeoul-nat-tc", 80, 82, 81))
	for i := range trials {
		trials[i].Load = "mc"
	}
	other := trial("direct", rps(1))
	sections := model.Aggregate(append([]model.Registration{memcached}, kinds...), append(trials, other), "")
	if s := sections[0]; s.Title() != "Memcached (mc)" || s.Kind.Question != "how many values a second does each get" ||
		s.Sheets()[0].Title != "Values" ||
		!strings.HasPrefix(sayAnswer(s, 0)[0], "jeoul-nat-tc serves 1.61 × haproxy-http's requests/s (") {
		t.Errorf("%q is reported as %+v: %q", s.Title(), s.Kind, sayAnswer(s, 0))
	}
	if s := sections[1]; s.Kind.Question == sections[0].Kind.Question || !s.Has(results.RequestsPerSecond) {
		t.Errorf("%q is taken for it", s.Load)
	}
}
