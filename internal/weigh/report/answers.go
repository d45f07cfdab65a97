// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// notBalancers are the subjects that no service can be given to: they are the
// measure of the others.
var notBalancers = []string{baselineSubject, "routed", "bare", "bare-tc", emptySubject, swapSubject}

// rest of a winner's name where it is not told apart from all others.
const maxRivals = 3

// answer is which balancer is best at a point, by one metric.
type answer struct {
	best *point
	// rivals are those whose repeats overlap the best one's: between them the run
	// does not decide.
	rivals []*point
}

// balancers are the group's points that are of a balancer.
func (s *section) balancers(g *group) []*point {
	return slices.DeleteFunc(slices.Clone(g.Points), func(p *point) bool {
		return p.Subject == s.Baseline || slices.Contains(notBalancers, p.Subject)
	})
}

// bestBy returns the point with the best median of a metric; more is better, or
// less. best is nil where fewer than two balancers have the metric.
func bestBy(points []*point, metric string, more bool) answer {
	with := slices.DeleteFunc(slices.Clone(points), func(p *point) bool { return !p.has(metric) })
	if len(with) < 2 {
		return answer{}
	}
	slices.SortStableFunc(with, func(a, b *point) int {
		order := cmp.Compare(a.Stats[metric].Median, b.Stats[metric].Median)
		if more {
			return -order
		}
		return order
	})
	a := answer{best: with[0]}
	for _, p := range with[1:] {
		if tied(a.best, p, metric) {
			a.rivals = append(a.rivals, p)
		}
	}
	return a
}

// text names the best, what it measured, and who may be as good.
func (a answer) text(figure func(*point) string) string {
	if a.best == nil {
		return missing
	}
	text := fmt.Sprintf("%s (%s)", clean(a.best.Label), figure(a.best))
	if len(a.rivals) == 0 {
		return text
	}
	var names []string
	for _, r := range a.rivals[:min(len(a.rivals), maxRivals)] {
		names = append(names, clean(r.Label))
	}
	if others := len(a.rivals) - len(names); others > 0 {
		names = append(names, fmt.Sprintf("%d more", others))
	}
	return text + "; not told apart: " + strings.Join(names, ", ")
}

// answered says whether the section's loads are such that one balancer can be
// better than another by its rate.
func (s *section) answered() bool {
	return (s.kind() == nil || s.isDNS()) && !s.isPackets() && !s.laddered() && slices.ContainsFunc(s.Groups, func(g *group) bool { return len(s.balancers(g)) > 1 })
}

// answersSheet says which balancer is best for which load; nil where nothing was
// weighed against another.
func answersSheet(sections []*section) *sheet {
	sh := &sheet{
		Title: "The best at each point",
		Lead:  "The best median at each point. Where another one's repeats overlap the best one's, it is named too: this run does not tell them apart.",
		Columns: []column{{Title: "Load"}, {Title: "Point"}, {Title: "Serves most"}, {Title: "Costs least CPU"},
			{Title: "Shortest p99"}, {Title: "What limited the first"}},
	}
	for _, s := range sections {
		if s.answered() {
			sh.group(answerLines(s))
		}
	}
	if sh.empty() {
		return nil
	}
	sh.dropBlankColumns()
	return sh
}

func answerLines(s *section) []line {
	rate, _, noun := s.rate()
	cost, unit := s.costMetric()
	var lines []line
	for _, g := range s.Groups {
		points := s.balancers(g)
		most := bestBy(points, rate, true)
		if most.best == nil {
			continue
		}
		lines = append(lines, line{Cells: []string{
			s.title(),
			cmp.Or(g.Params.only(s.Varying).text(), missing),
			most.text(func(p *point) string { return significant(p.Stats[rate].Median) + " " + noun }),
			bestBy(points, cost, false).text(func(p *point) string { return significant(p.Stats[cost].Median) + " " + unit }),
			bestBy(points, results.LatencyMsP99, false).text(func(p *point) string { return significant(p.Stats[results.LatencyMsP99].Median) + " ms" }),
			cmp.Or(most.best.Saturated, missing),
		}})
	}
	return lines
}

// costMetric is what the balancer's CPU time is counted by under the load.
func (s *section) costMetric() (metric, unit string) {
	if s.isBulk() {
		return results.BalancerCPUMsPerGigabyte, "ms/GB"
	}
	return results.BalancerCPUUsPerRequest, "µs"
}

// answersInWords sums each load's answers up in a sentence.
func answersInWords(sections []*section) []string {
	var sentences []string
	for _, s := range sections {
		if s.answered() {
			sentences = append(sentences, s.title()+": "+s.recommendation())
		}
	}
	return sentences
}

// recommendation says which balancer served most, at how many of the points, and
// what that is worth.
func (s *section) recommendation() string {
	rate, _, noun := s.rate()
	wins, alone, points := map[string]int{}, 0, 0
	var order []string
	var ratios span
	for _, g := range s.Groups {
		a := bestBy(s.balancers(g), rate, true)
		if a.best == nil {
			continue
		}
		points++
		if wins[a.best.Subject]++; wins[a.best.Subject] == 1 {
			order = append(order, a.best.Subject)
		}
		if !slices.ContainsFunc(a.rivals, func(p *point) bool { return p.Subject != a.best.Subject }) {
			alone++
		}
	}
	if points == 0 {
		return "no two balancers have a valid trial at the same point, so there is no choice to make."
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(wins[b], wins[a]) })
	first := order[0]
	for _, g := range s.Groups {
		ratios.add(ratioOf(g.best(first, rate), g.best(s.Baseline, rate), rate))
	}
	text := fmt.Sprintf("%s serves the most %s", clean(first), noun)
	if points > 1 {
		text += fmt.Sprintf(" at %d of %d points", wins[first], points)
	}
	if ratios.n > 0 {
		text += fmt.Sprintf(", %s of %s", ratios.text(times), s.Baseline)
	}
	switch {
	case alone == points:
		return text + "; no other balancer comes within the spread."
	case alone == 0:
		return text + ", but another balancer is within the spread: choose by cost and by what it can do."
	}
	return text + fmt.Sprintf("; at %d of %d points another balancer is within the spread.", points-alone, points)
}
