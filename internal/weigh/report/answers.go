// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// answer is which balancer is best at a point, by one metric.
type answer struct {
	best *point
	// rivals are those that cannot be told apart from the best one.
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
		return wording.Missing
	}
	text := fmt.Sprintf("%s (%s)", wording.Clean(a.best.Label), figure(a.best))
	if len(a.rivals) == 0 {
		return text
	}
	var names []string
	for _, r := range a.rivals[:min(len(a.rivals), maxRivals)] {
		names = append(names, wording.Clean(r.Label))
	}
	if others := len(a.rivals) - len(names); others > 0 {
		names = append(names, fmt.Sprintf("%d more", others))
	}
	return text + "; not told apart: " + strings.Join(names, ", ")
}

// answered says whether the section's loads are such that one balancer can be
// better than another by its rate.
func (s *section) answered() bool {
	return (s.kind() == nil || s.isDNS()) && !s.isPackets() && !s.laddered() &&
		slices.ContainsFunc(s.Groups, func(g *group) bool { return len(s.balancers(g)) > 1 })
}

// answersSheet says which balancer is best for which load; nil where nothing was
// weighed against another.
func answersSheet(sections []*section) *sheet {
	sh := &sheet{
		Title: "The best at each point",
		Lead:  "The best median at each point, and those that this run does not tell apart from it.",
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
			cmp.Or(g.Params.only(s.Varying).text(), wording.Missing),
			most.text(func(p *point) string { return wording.Significant(p.Stats[rate].Median) + " " + noun }),
			bestBy(points, cost, false).text(func(p *point) string {
				return wording.Significant(p.Stats[cost].Median) + " " + unit
			}),
			bestBy(points, results.LatencyMsP99, false).text(func(p *point) string {
				return wording.Significant(p.Stats[results.LatencyMsP99].Median) + " ms"
			}),
			cmp.Or(most.best.Saturated, wording.Missing),
		}})
	}
	return lines
}
