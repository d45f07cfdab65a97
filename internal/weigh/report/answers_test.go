// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// repeated makes a trial for each rate.
func repeated(subject string, rates ...float64) []results.Trial {
	var all []results.Trial
	for i, rate := range rates {
		t := trial(subject, rps(rate))
		t.Repeat = i + 1
		all = append(all, t)
	}
	return all
}

// TestRecommended checks the sentence on which balancer is best: the baseline is
// none, and one within the spread is named as such.
func TestRecommended(t *testing.T) {
	tests := map[string]struct {
		others [][]results.Trial
		want   []string
	}{
		"apart": {[][]results.Trial{repeated("haproxy-tcp", 50, 51), repeated("jeoul-nat-tc", 80, 82)},
			[]string{"http: jeoul-nat-tc serves the most requests/s, 0.81 × of direct; no other balancer comes within the spread."}},
		"tied": {[][]results.Trial{repeated("haproxy-tcp", 50, 81), repeated("jeoul-nat-tc", 80, 82)},
			[]string{"http: jeoul-nat-tc serves the most requests/s, 0.81 × of direct, but another balancer is within the spread: choose by cost and by what it can do."}},
		"one alone": {[][]results.Trial{repeated("jeoul-nat-tc", 80, 82)}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run := runOf(repeated("direct", 100, 100)...)
			for _, other := range test.others {
				run.Trials = append(run.Trials, other...)
			}
			d := newDocument(run)
			if diff := cmp.Diff(test.want, d.Recommended); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (d.Answers == nil) != (test.want == nil) {
				t.Errorf("the table of answers is %v", d.Answers)
			}
		})
	}
}
