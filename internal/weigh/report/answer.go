// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/certainty"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// answer says in one or two sentences what a load showed. pace is how long a repeat of the run took; 0 is unknown.
func (s *section) answer(pace time.Duration) []string {
	if !slices.ContainsFunc(s.points(), func(p *point) bool { return p.Valid > 0 }) {
		return []string{"No trial is valid, so there is nothing to judge; the reasons are listed below."}
	}
	if kind := s.kind(); kind != nil && kind.answer != nil {
		return kind.answer(s)
	}
	if s.isPackets() {
		return packetAnswer(s)
	}
	if r, ok := s.ranking(); ok {
		return r.sentences(s, pace)
	}
	return brief(verdict(s), s.title()+": ")
}

// sentences says who leads and by how much, or that nobody does.
func (r ranking) sentences(s *section, pace time.Duration) []string {
	d := r.toReference
	looks := fmt.Sprintf("%s looks like %s × %s's %s%s",
		wording.Clean(d.of), wording.RatioText(d.Ratio), wording.Clean(d.to), r.noun, d.brackets())
	switch {
	case !d.sure():
		return []string{
			fmt.Sprintf("This run is too short to name a winner: %s, but chance alone can do that.", looks),
			fmt.Sprintf("An interval needs %d pairs of trials from 2 repeats or more; here are %d from %s. %s.",
				certainty.Fewest, d.Pairs, wording.Counted("repeat")(fmt.Sprint(d.repeats)), enough(d, pace)),
		}
	case !d.told():
		out := []string{fmt.Sprintf("%s and %s cannot be told apart by their %s: the ratio is %s%s.",
			wording.Clean(d.of), wording.Clean(d.to), r.noun, wording.RatioText(d.Ratio), d.brackets())}
		if len(r.beaten) > 0 {
			return append(out, fmt.Sprintf("%s is better than %s, beyond the spread.",
				wording.Clean(d.of), wording.List(atMost(opponents(r.beaten), maxRivals))))
		}
		return append(out, "No balancer of this run is better than another beyond the spread.")
	}
	if len(r.rivals) == 0 && len(r.beaten) == 1 {
		return []string{r.margin(s) + "."} // which names the only other balancer already
	}
	return []string{r.margin(s) + ".", r.others()}
}

// margin says how the leader stands to the reference.
func (r ranking) margin(s *section) string {
	d := r.toReference
	text := fmt.Sprintf("%s serves %s × %s's %s%s", wording.Clean(d.of), wording.RatioText(d.Ratio), wording.Clean(d.to), r.noun, d.brackets())
	if !r.more {
		text = fmt.Sprintf("%s has %s × %s's %s%s", wording.Clean(d.of), wording.RatioText(d.Ratio), wording.Clean(d.to), r.noun, d.brackets())
	}
	if cost := s.duel(r.yardstick, d.of, d.to, r.cost); cost.told() && !slices.Contains(notBalancers, d.to) {
		if part := wording.Fraction(cost.Ratio); strings.HasPrefix(part, "1/") {
			return text + fmt.Sprintf(" at %s of its CPU time", part)
		}
		text += fmt.Sprintf(" at %s its CPU time", wording.Times(cost.Ratio))
	}
	return text
}

// others says whether the leader is the winner, or which may be as good.
func (r ranking) others() string {
	switch {
	case len(r.rivals)+len(r.beaten) == 0:
		return "No other balancer was measured."
	case len(r.rivals) > 0:
		return fmt.Sprintf("Not told apart from it in this run: %s.", wording.List(atMost(opponents(r.rivals), maxRivals)))
	case r.more:
		return fmt.Sprintf("That is the most of all %d balancers, beyond the spread.", len(r.beaten)+1)
	}
	return fmt.Sprintf("That is the least of all %d balancers, beyond the spread.", len(r.beaten)+1)
}

func opponents(duels []duel) []string {
	var all []string
	for _, d := range duels {
		all = append(all, wording.Clean(d.of))
	}
	return all
}

// atMost keeps the first of many words, and says how many there are more.
func atMost(words []string, most int) []string {
	if len(words) <= most+1 {
		return words
	}
	return append(slices.Clip(words[:most]), fmt.Sprintf("%d more", len(words)-most))
}

// enough says how many repeats would tell two subjects apart, and how long they take.
func enough(d duel, pace time.Duration) string {
	n := d.repeatsToTell()
	text := fmt.Sprintf("%s of each point", wording.Counted("repeat")(wording.Decimal(float64(n), 0)))
	if total := pace * time.Duration(n); pace > 0 && total/time.Duration(n) == pace {
		text += fmt.Sprintf(" (about %s)", roughly(total))
	}
	return text + " would tell"
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

// pace is how long the run took for each of its repeats; 0 is unknown.
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

// briefItems is how many items of a list a short sentence has.
const briefItems = 3

// brief makes one or two short sentences of a verdict: what is missed before what holds, and lists cut short.
func brief(sentences []string, prefix string) []string {
	sentences = slices.DeleteFunc(slices.Clone(sentences), func(s string) bool {
		return strings.HasPrefix(strings.TrimPrefix(s, prefix), saturatedWords)
	})
	if len(sentences) == 0 {
		return []string{"The tables below show what was measured; there is nothing to hold it against."}
	}
	slices.SortStableFunc(sentences, func(a, b string) int { return b2i(missedTargets(b)) - b2i(missedTargets(a)) })
	var out []string
	for _, sentence := range sentences[:min(2, len(sentences))] {
		items := strings.Split(strings.TrimSuffix(sentence, "."), "; ")
		out = append(out, strings.Join(atMost(items, briefItems), "; ")+".")
	}
	return out
}

func missedTargets(s string) bool { return strings.Contains(s, "argets that are missed") }

// certaintyNote says what an interval of the answer is.
func (s *section) certaintyNote() string {
	r, ok := s.ranking()
	if !ok || !r.toReference.sure() {
		return ""
	}
	return fmt.Sprintf("In brackets: the interval that has the true ratio in it in %.0f of 100 runs; "+
		"from %d pairs of interleaved trials at %s.", math.Round(certainty.Level*100), r.toReference.Pairs,
		wording.Counted("point")(fmt.Sprint(r.toReference.points)))
}

// rest of a winner's name where it is not told apart from all others.
const maxRivals = 3
