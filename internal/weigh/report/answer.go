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

// sayAnswer states the result of a load in one or two sentences.
func sayAnswer(s *model.Section, pace time.Duration) []string {
	if !slices.ContainsFunc(s.Points(), func(p *model.Point) bool { return p.Valid > 0 }) {
		return []string{"No trial is valid, so there is nothing to judge; the reasons are listed below."}
	}
	if s.Kind.Answer != nil {
		return s.Kind.Answer(s)
	}
	if r, ok := s.Ranking(); ok {
		return sentences(r, s, pace)
	}
	return model.Brief(model.Verdict(s), s.Title()+": ")
}

// sentences returns the sentences that name the leader and its margin, or state that there is no winner.
func sentences(r model.Ranking, s *model.Section, pace time.Duration) []string {
	d := r.ToReference
	looks := fmt.Sprintf("%s looks like %s × %s's %s%s",
		wording.Clean(d.Of), wording.RatioText(d.Ratio), wording.Clean(d.To), r.Noun, d.Brackets())
	switch {
	case !d.Sure():
		return []string{
			fmt.Sprintf("This run is too short to name a winner: %s, but chance alone can do that.", looks),
			fmt.Sprintf("An interval needs %d pairs of trials from 2 repeats or more; here are %d from %s. %s.",
				certainty.Fewest, d.Pairs, wording.Counted("repeat")(fmt.Sprint(d.Repeats)), enough(d, pace)),
		}
	case !d.Significant():
		out := []string{fmt.Sprintf("%s and %s cannot be told apart by their %s: the ratio is %s%s.",
			wording.Clean(d.Of), wording.Clean(d.To), r.Noun, wording.RatioText(d.Ratio), d.Brackets())}
		if len(r.Worse) > 0 {
			return append(out, fmt.Sprintf("%s is better than %s, beyond the spread.",
				wording.Clean(d.Of), wording.List(model.AtMost(opponents(r.Worse), model.MaxListed))))
		}
		return append(out, "No balancer of this run is better than another beyond the spread.")
	}
	if len(r.Tied) == 0 && len(r.Worse) == 1 {
		return []string{margin(r, s) + "."} // margin already names the only other balancer
	}
	return []string{margin(r, s) + ".", others(r)}
}

// margin describes the leader's ratio to the reference.
func margin(r model.Ranking, s *model.Section) string {
	d := r.ToReference
	text := fmt.Sprintf("%s serves %s × %s's %s%s", wording.Clean(d.Of), wording.RatioText(d.Ratio), wording.Clean(d.To), r.Noun, d.Brackets())
	if !r.More {
		text = fmt.Sprintf("%s has %s × %s's %s%s", wording.Clean(d.Of), wording.RatioText(d.Ratio), wording.Clean(d.To), r.Noun, d.Brackets())
	}
	if cost := s.Compare(r.Yardstick, d.Of, d.To, r.Cost); cost.Significant() &&
		!slices.Contains(model.NotBalancers, d.To) {
		if part := wording.Fraction(cost.Ratio); strings.HasPrefix(part, "1/") {
			return text + fmt.Sprintf(" at %s of its CPU time", part)
		}
		text += fmt.Sprintf(" at %s its CPU time", wording.Times(cost.Ratio))
	}
	return text
}

// others reports whether the leader is the winner, or which may be as good.
func others(r model.Ranking) string {
	switch {
	case len(r.Tied)+len(r.Worse) == 0:
		return "No other balancer was measured."
	case len(r.Tied) > 0:
		return fmt.Sprintf("Not told apart from it in this run: %s.", wording.List(model.AtMost(opponents(r.Tied), model.MaxListed)))
	case r.More:
		return fmt.Sprintf("That is the most of all %d balancers, beyond the spread.", len(r.Worse)+1)
	}
	return fmt.Sprintf("That is the least of all %d balancers, beyond the spread.", len(r.Worse)+1)
}

func opponents(comparisons []model.Comparison) []string {
	var all []string
	for _, d := range comparisons {
		all = append(all, wording.Clean(d.Of))
	}
	return all
}

// enough returns a sentence on the number of repeats that would tell two subjects apart, and on the time they take. A
// single repeat shows nothing of the noise, so the sentence is then on the number that would have an interval.
func enough(d model.Comparison, pace time.Duration) string {
	n, gain := d.RepeatsNeeded(), "would tell"
	switch {
	case d.Repeats < 2 || d.Pairs < 2:
		n, gain = d.RepeatsOf(certainty.Fewest), "would give one"
	case wording.RatioText(d.Ratio) == wording.RatioText(1):
		return fmt.Sprintf("A ratio of %s is no difference, however often it is measured", wording.RatioText(1))
	}
	text := fmt.Sprintf("%s of each point", wording.Counted("repeat")(wording.Decimal(float64(n), 0)))
	if total := pace * time.Duration(n); pace > 0 && total/time.Duration(n) == pace {
		text += fmt.Sprintf(" (about %s)", roughly(total))
	}
	return text + " " + gain
}

// roughly formats a duration for a sentence: "4 min", "2.5 h".
func roughly(d time.Duration) string {
	switch {
	case d < 90*time.Second:
		return fmt.Sprintf("%.0f s", math.Ceil(d.Seconds()))
	case d < 90*time.Minute:
		return fmt.Sprintf("%.0f min", math.Ceil(d.Minutes()))
	}
	return wording.Decimal(d.Hours(), 1) + " h"
}

// pace returns the time that the run took for each of its repeats; 0 if it is unknown.
func pace(run *results.Run) time.Duration {
	repeats := 0
	for _, t := range run.Trials {
		repeats = max(repeats, t.Repeat)
	}
	if repeats == 0 || !run.Ended.After(run.Started) || len(run.Resumed) > 0 {
		return 0
	}
	return run.Ended.Sub(run.Started) / time.Duration(repeats)
}

// certaintyNote explains the answer's intervals, of which so many contain the true ratio as level states.
func certaintyNote(s *model.Section, level float64) string {
	if s.Kind.Sure != nil {
		return s.Kind.Sure(s)
	}
	r, ok := s.Ranking()
	if !ok || !r.ToReference.Sure() {
		return ""
	}
	text := "In brackets: the interval that has the true ratio in it in %.0f of 100 runs; " +
		"from %d pairs of interleaved trials at %s."
	if level < certainty.Level {
		text = "In brackets: the interval that has the true ratio in it in %.0f of 100 runs that end, as this one did, " +
			"once it is narrow; from %d pairs of interleaved trials at %s."
	}
	return fmt.Sprintf(text, math.Round(level*100), r.ToReference.Pairs,
		wording.Counted("point")(fmt.Sprint(r.ToReference.Points)))
}
