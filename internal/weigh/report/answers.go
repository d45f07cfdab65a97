// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// answer is the best balancer at a point, by one metric.
type answer struct {
	best *model.Point
	// tied are the points that cannot be told apart from the best one.
	tied []*model.Point
}

// balancers returns the points of the group whose subject is a balancer.
func balancers(s *model.Section, g *model.Group) []*model.Point {
	return slices.DeleteFunc(slices.Clone(g.Points), func(p *model.Point) bool {
		return p.Subject == s.Baseline || slices.Contains(model.NotBalancers, p.Subject)
	})
}

// bestBy returns the point with the best median of a metric; more is better, or
// less. best is nil where fewer than two balancers have the metric.
func bestBy(points []*model.Point, metric string, more bool) answer {
	with := slices.DeleteFunc(slices.Clone(points), func(p *model.Point) bool { return !p.Has(metric) })
	if len(with) < 2 {
		return answer{}
	}
	slices.SortStableFunc(with, func(a, b *model.Point) int {
		order := cmp.Compare(a.Stats[metric].Median, b.Stats[metric].Median)
		if more {
			return -order
		}
		return order
	})
	a := answer{best: with[0]}
	for _, p := range with[1:] {
		if model.Tied(a.best, p, metric) {
			a.tied = append(a.tied, p)
		}
	}
	return a
}

// text names the best balancer with its figure, and the balancers that may be as good.
func (a answer) text(figure func(*model.Point) string) string {
	if a.best == nil {
		return wording.Missing
	}
	text := fmt.Sprintf("%s (%s)", wording.Clean(a.best.Label), figure(a.best))
	if len(a.tied) == 0 {
		return text
	}
	var names []string
	for _, r := range a.tied[:min(len(a.tied), model.MaxListed)] {
		names = append(names, wording.Clean(r.Label))
	}
	if others := len(a.tied) - len(names); others > 0 {
		names = append(names, fmt.Sprintf("%d more", others))
	}
	return text + "; not told apart: " + strings.Join(names, ", ")
}

// answered reports whether one balancer can be better than another by its rate under the section's load.
func answered(s *model.Section) bool {
	return s.Kind.BestOfPoint &&
		slices.ContainsFunc(s.Groups, func(g *model.Group) bool { return len(balancers(s, g)) > 1 })
}

// answersSheet returns the table of the best balancer for each load; nil where no balancer was compared with another.
func answersSheet(sections []*model.Section) *model.Sheet {
	sh := &model.Sheet{
		Title: "The best at each point",
		Lead:  "The best median at each point, and those that this run does not tell apart from it.",
		Columns: []model.Column{{Title: "Load"}, {Title: "Point"}, {Title: "Serves most"}, {Title: "Costs least CPU"},
			{Title: "Shortest p99"}, {Title: "What limited the first"}},
	}
	for _, s := range sections {
		if answered(s) {
			sh.Group(answerLines(s))
		}
	}
	if sh.Empty() {
		return nil
	}
	sh.DropBlankColumns()
	return sh
}

func answerLines(s *model.Section) []model.Line {
	by := s.Kind.Yardstick(s)
	var lines []model.Line
	for _, g := range s.Groups {
		points := balancers(s, g)
		most := bestBy(points, by.Metric, true)
		if most.best == nil {
			continue
		}
		lines = append(lines, model.Line{Cells: []string{
			s.Title(),
			cmp.Or(g.Params.Only(s.Varying).Text(), wording.Missing),
			most.text(func(p *model.Point) string {
				return wording.Significant(p.Stats[by.Metric].Median) + " " +
					by.Noun
			}),
			bestBy(points, by.Cost, false).text(func(p *model.Point) string {
				return wording.Significant(p.Stats[by.Cost].Median) + " " + by.CostUnit
			}),
			bestBy(points, results.LatencyMsP99, false).text(func(p *model.Point) string {
				return wording.Significant(p.Stats[results.LatencyMsP99].Median) + " ms"
			}),
			cmp.Or(most.best.Saturated, wording.Missing),
		}})
	}
	return lines
}
