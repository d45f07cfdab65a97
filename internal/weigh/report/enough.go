// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/certainty"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Enough returns the reason why an unfinished run may end after a whole repeat: every ratio to the baseline of its load
// has an interval narrower than margin (0.05 is ± 5 %) from at least certainty.SignsFrom pairs, or the run is past the
// deadline, or no ratio can be computed at all. It returns "" if the run should continue.
func Enough(run *results.Run, margin float64, deadline, now time.Time) string {
	widest, ratios, repeats, fewest := model.Comparison{}, 0, 0, math.MaxInt
	for _, t := range run.Trials {
		repeats = max(repeats, t.Repeat)
	}
	for _, s := range aggregate(run.Trials, run.Baseline) {
		y, ok := s.Yardstick()
		if !ok {
			continue
		}
		against := s.Baseline
		if !s.Measured(against) {
			i := slices.IndexFunc(s.Subjects, s.Measured)
			if i < 0 {
				continue
			}
			against = s.Subjects[i]
		}
		for _, name := range s.Subjects {
			if d := s.Compare(y, name, against, y.Metric); name != against && d.Points > 0 {
				fewest = min(fewest, d.Pairs)
				if ratios++; ratios == 1 || d.Margin() > widest.Margin() {
					widest = d
				}
			}
		}
	}
	after := fmt.Sprintf("after %s", wording.Counted("repeat")(fmt.Sprint(repeats)))
	switch {
	case ratios == 0:
		return after +
			": no two subjects of a load have a valid trial at the same point, so no ratio can get narrower"
	case widest.Sure() && widest.Margin() <= margin && fewest >= certainty.SignsFrom:
		return after + narrowEnough + percentText(widest.Margin())
	case now.Before(deadline):
		return ""
	case !widest.Sure():
		return fmt.Sprintf("%s, because the time is up: %s to %s has no interval yet",
			after, wording.Clean(widest.Of), wording.Clean(widest.To))
	}
	return fmt.Sprintf("%s, because the time is up: %s to %s is known to ± %s",
		after, wording.Clean(widest.Of), wording.Clean(widest.To), percentText(widest.Margin()))
}

// narrowEnough is in the reason of a run that ends because its ratios are narrow. The bench writes the reason into the
// run's notes.
const narrowEnough = ": each ratio is known to ± "

// levelOf returns how often an interval of a run contains the true ratio.
func levelOf(run *results.Run) float64 {
	for _, note := range run.Environment.Notes {
		if strings.HasPrefix(note, "the run ended after ") && strings.Contains(note, narrowEnough) {
			return certainty.StoppedLevel
		}
	}
	return certainty.Level
}

func percentText(v float64) string { return wording.Decimal(v*100, 1) + " %" }
