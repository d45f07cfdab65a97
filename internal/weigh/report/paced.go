// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Parameters of an open loop.
const (
	// paramArrivals is how many requests are due each second.
	paramArrivals = "arrivals"
	// paramP99Bound is what 99 % of the requests may take where the highest rate is
	// searched for.
	paramP99Bound = "p99_bound_ms"
)

// laddered says whether the load's requests came at given rates, whatever became of
// the last ones.
func (s *section) laddered() bool { return s.hasParam(paramArrivals) }

// open says whether the load is an open loop.
func (s *section) open() bool { return s.laddered() || s.hasParam(paramP99Bound) }

// arrivalVerdict says at each rate how long 99 % of the requests took: that all are
// served is no difference as long as they are.
func arrivalVerdict(s *section) []string {
	var sentences []string
	for _, g := range s.Groups {
		var words []string
		for _, p := range g.Points {
			if p.has(results.LatencyMsP99) {
				words = append(words,
					fmt.Sprintf("%s %s ms", wording.Clean(p.Label), wording.Significant(p.Stats[results.LatencyMsP99].Median)))
			}
		}
		if len(words) > 0 {
			sentences = append(sentences, fmt.Sprintf("%s: with %s, 99 %% were answered within: %s.",
				s.title(), describe(paramArrivals, g.Params[paramArrivals]), strings.Join(words, "; ")))
		}
	}
	return sentences
}

// prefixedSaturation is saturationVerdict with the load's title.
func prefixedSaturation(s *section) []string {
	if v := saturationVerdict(s); v != "" {
		return []string{s.title() + ": " + v}
	}
	return nil
}

var openReading = []paragraph{
	{"Open loop",
		"Requests are due at a fixed rate, whether the last ones have been answered or not, and latency counts from when a request was due: one that had to wait because the server, the balancer or the generator stood still shows all of it. A closed loop would not have sent it (“coordinated omission”)."},
	{"The highest rate",
		"Where it was searched for, the requests/s are the highest rate at which 99 % of the requests kept the bound and none failed; a rate has to fail twice in a row to count as failed."},
}
