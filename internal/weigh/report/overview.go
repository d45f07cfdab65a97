// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// overview answers a run's question at a glance.
type overview struct {
	Question string
	// Answer is one or two sentences; Sure explains their intervals.
	Answer []string
	Sure   string
	// Load is the load of the picture and the table.
	Load    string
	Picture *chart.Figure
	Table   *model.Sheet
	of      *model.Section
}

// newOverview answers by the run's first load that has an answer. Of the run's intervals, so many contain the true
// ratio as level states.
func newOverview(sections []*model.Section, colours *chart.Palette, each time.Duration, level float64) overview {
	if len(sections) == 0 {
		return overview{Answer: []string{"The run has no trials: there is nothing to judge."}}
	}
	s := slices.MaxFunc(sections, func(a, b *model.Section) int {
		return cmp.Compare(informationRank(a), informationRank(b))
	})
	o := overview{Question: s.Kind.Question, Answer: sayAnswer(s, each), Sure: certaintyNote(s, level), Load: s.Title(),
		of: s}
	if f := picture(s, colours); f != nil && !f.Chart.Empty() {
		o.Picture = f
	}
	o.Table = overviewTable(s)
	return o
}

// informationRank ranks the information of a load: 2 if one balancer is significantly better than another, 0 if none
// can be, otherwise 1.
func informationRank(s *model.Section) int {
	switch r, ok := s.Ranking(); {
	case ok && r.ToReference.Significant():
		return 2
	case ok:
		return 0
	}
	return 1
}

// picture is the figure that shows the answer: rate against cost, or the first of the load's charts.
func picture(s *model.Section, colours *chart.Palette) *chart.Figure {
	if r, ok := s.Ranking(); ok && s.Has(r.Cost) && r.More {
		if f := scatter(s, r, colours); len(f.Chart.Places) > 0 {
			return &f
		}
	}
	if s.Kind.Picture != nil {
		return s.Kind.Picture(s)
	}
	all := model.Figures(s.Pictured(), colours)
	if len(all) == 0 {
		return nil
	}
	f := all[0]
	return f.Fitted()
}

// scatter shows the rate over the balancer's CPU time at the load's fullest point.
func scatter(s *model.Section, r model.Ranking, colours *chart.Palette) chart.Figure {
	c := &chart.Chart{Kind: chart.Scatter, Axis: "balancer CPU, " + r.CostUnit + " each", YAxis: r.Noun, Log: true}
	g := s.Fullest()
	hollow := false
	for _, name := range s.Subjects {
		p := r.Pick(g, name)
		if p == nil {
			continue
		}
		x, y := p.Stats[r.Cost], p.Stats[r.Metric]
		if measure := slices.Contains(model.NotBalancers, name); measure || x.N == 0 || x.Min <= 0 {
			if measure {
				c.Limits = append(c.Limits, chart.Limit{Name: wording.Clean(name), Value: y.Median})
			}
			continue
		}
		at := chart.Place{Name: wording.Clean(name), Ink: colours.Ink(name),
			Hollow: !slices.Contains(p.Limits, string(results.SaturatedBalancer)),
			X:      chart.Mark{Value: x.Median, Low: x.Min, High: x.Max}, Y: chart.Mark{Value: y.Median, Low: y.Min,
				High: y.Max}}
		hollow = hollow || at.Hollow
		c.Places = append(c.Places, at)
	}
	caption := "Up and to the left is better. " +
		"Lines through a point reach from its lowest to its highest repeat; the CPU axis is logarithmic."
	if hollow {
		caption += " Hollow: not the balancer was the limit, so it can do at least that."
	}
	if at := g.Params.Only(s.Varying).Text(); at != "" {
		caption = "At " + at + ". " + caption
	}
	return chart.Figure{Title: r.Title + " against the balancer's CPU time", Caption: caption, Chart: c}
}

// overviewTable is the compact table beside the picture; nil without a row.
func overviewTable(s *model.Section) *model.Sheet {
	if r, ok := s.Ranking(); ok {
		return rankingTable(s, r)
	}
	if s.Kind.Overview != nil {
		return s.Kind.Overview(s)
	}
	sheets := s.Sheets()
	if len(sheets) == 0 {
		return nil
	}
	return sheets[0].Clipped(model.OverviewRows, 5)
}

// variant names the subject, and its variant at a point.
func variant(s *model.Section, p *model.Point) string {
	parts := []string{p.Subject}
	for _, name := range s.Own {
		if v, ok := p.Params[name]; ok && s.VariesWithin(p.Subject, name) {
			parts = append(parts, model.Describe(name, v))
		}
	}
	return wording.Clean(strings.Join(parts, " · "))
}

// rankingTable has a row for each subject: its rate, its ratio to the reference, and its CPU time.
func rankingTable(s *model.Section, r model.Ranking) *model.Sheet {
	g := s.Fullest()
	sh := &model.Sheet{Columns: []model.Column{
		{Title: "Subject"}, {Title: r.Title, Numeric: true}, {Title: "× " + r.Reference, Numeric: true},
		{Title: "Balancer CPU", Unit: r.CostUnit, Numeric: true}, {Title: "Saturated"}}}
	sh.Lead = fmt.Sprintf(
		"Medians; ratios to %s are over all points. Grey: not told apart from it.", wording.Clean(r.Reference))
	if at := g.Params.Only(s.Varying).Text(); at != "" {
		sh.Lead = fmt.Sprintf("Medians at %s; ratios to %s are over all points. Grey: not told apart from it.",
			at, wording.Clean(r.Reference))
	}
	var lines []model.Line
	for _, name := range s.Subjects {
		p := r.Pick(g, name)
		if p == nil {
			continue
		}
		l := model.Line{Baseline: name == r.Reference, Cells: []string{
			variant(s, p), wording.Significant(p.Stats[r.Metric].Median), wording.Missing, wording.Missing,
			cmp.Or(p.Saturated, wording.Missing)}}
		if p.Has(r.Cost) && !slices.Contains(model.NotBalancers, name) {
			l.Cells[3] = wording.Significant(p.Stats[r.Cost].Median)
		}
		if d := s.Compare(r.Yardstick, name, r.Reference, r.Metric); name != r.Reference && d.Pairs > 0 {
			l.Cells[2], l.Quiet = d.Interval(), !d.Significant()
		}
		lines = append(lines, l)
	}
	sh.Group(lines)
	sh.DropBlankColumns()
	return sh.OrNil()
}
