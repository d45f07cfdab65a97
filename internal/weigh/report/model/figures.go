// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Figures returns the charts of a load that have something to show.
func Figures(s *Section, colours *chart.Palette) []chart.Figure {
	if s.Kind.Figures == nil {
		return nil
	}
	all := s.Kind.Figures(s, colours)
	return slices.DeleteFunc(all, func(f chart.Figure) bool { return f.Chart.Empty() })
}

// EachPoint builds the rows of a chart: one for each point for which make returns a value, under a head for each group
// where there are several.
func EachPoint(s *Section, make func(*Point) chart.Row) []chart.Row {
	var rows []chart.Row
	for _, g := range s.Groups {
		var of []chart.Row
		for _, p := range g.Points {
			if r := make(p); r.Value != "" {
				r.Label = wording.Clean(p.Label)
				of = append(of, r)
			}
		}
		if len(of) > 0 && len(s.Groups) > 1 {
			rows = append(rows, chart.Row{Label: g.Params.Only(s.Varying).Text(), Head: true})
		}
		rows = append(rows, of...)
	}
	return rows
}

// MedianRow returns a row with one bar: a metric's median and range.
func MedianRow(s *Section, colours *chart.Palette, metric string) func(*Point) chart.Row {
	var values []float64
	for _, p := range s.Points() {
		if p.Has(metric) {
			values = append(values, p.Stats[metric].Median)
		}
	}
	decimals := wording.DecimalsFor(values)
	return func(p *Point) chart.Row {
		if !p.Has(metric) && p.Subject == s.Baseline {
			return chart.Row{Value: "no balancer"}
		}
		if !p.Has(metric) {
			return chart.Row{}
		}
		st := p.Stats[metric]
		return chart.Row{
			Marks: []chart.Mark{{Value: st.Median, Low: st.Min, High: st.Max, Ink: colours.Ink(p.Subject)}},
			Value: wording.Decimal(st.Median, decimals),
		}
	}
}

// DotsRow returns a row with a dot for each metric's median, one of them hollow.
func DotsRow(colours *chart.Palette, joint, hollow string, metrics ...string) func(*Point) chart.Row {
	return func(p *Point) (r chart.Row) {
		var words []string
		for _, m := range metrics {
			if p.Has(m) {
				v := p.Stats[m].Median
				words = append(words, wording.Significant(v))
				r.Marks = append(r.Marks, chart.Mark{Value: v, Ink: colours.Ink(p.Subject), Hollow: m == hollow})
			}
		}
		r.Value = strings.Join(words, joint)
		return r
	}
}

// WhiskerCaption explains bars and whiskers.
const WhiskerCaption = "Bars are medians, whiskers the lowest and highest repeat."

// RateChart shows the load's rate.
func RateChart(s *Section, colours *chart.Palette) chart.Figure {
	metric, title, noun := s.Rate()
	return chart.Figure{Title: title, Caption: "More is better. " + WhiskerCaption, Chart: &chart.Chart{
		Axis: noun, Kind: chart.Bars, Rows: EachPoint(s, MedianRow(s, colours, metric)),
	}}
}

// CostChart shows a metric of the balancer's CPU time, which the axis names.
func CostChart(s *Section, colours *chart.Palette, axis, metric string) chart.Figure {
	c := &chart.Chart{Axis: axis, Kind: chart.Bars}
	if s.Has(metric) {
		c.Rows = EachPoint(s, MedianRow(s, colours, metric))
	}
	return chart.Figure{Title: "The balancer's own CPU time", Caption: "Less is better; kernel work included. " +
		WhiskerCaption, Chart: c}
}

// RequestCostChart shows the balancer's CPU time for each request.
func RequestCostChart(s *Section, colours *chart.Palette) chart.Figure {
	return CostChart(s, colours, "µs of balancer CPU per request", results.BalancerCPUUsPerRequest)
}

// RateAndCost are the two charts of a picture.
func RateAndCost(s *Section, colours *chart.Palette) []chart.Figure {
	return []chart.Figure{RateChart(s, colours), RequestCostChart(s, colours)}
}

// LatencyChart shows the clients' latencies.
func LatencyChart(s *Section, colours *chart.Palette) chart.Figure {
	c := &chart.Chart{Axis: "latency, ms", Kind: chart.Dots, Legend: []chart.LegendEntry{
		{Name: "p50", Ink: chart.InkQuiet}, {Name: "p99", Ink: chart.InkQuiet, Hollow: true},
	}}
	c.Rows = EachPoint(s, DotsRow(colours, " – ", results.LatencyMsP99, results.LatencyMsP50, results.LatencyMsP99))
	c.LogIfWide()
	return chart.Figure{Title: "What clients waited", Caption: "Less is better. Half of the requests took up to p50, all but 1 % up to p99.",
		Chart: c}
}

// partInks are the inks of cpuParts.
var partInks = []chart.Ink{chart.InkSky, chart.InkBaseline, chart.InkVermillion, chart.InkOrange, chart.InkGreen}

// PartChart shows the CPU time of a request by the part that used it.
func PartChart(s *Section) chart.Figure {
	c := &chart.Chart{Axis: "µs of CPU per request, all parts", Kind: chart.StackedBars}
	for i, part := range cpuParts {
		if s.Has(part.PerRequest) {
			c.Legend = append(c.Legend, chart.LegendEntry{Name: part.Name, Ink: partInks[i]})
		}
	}
	if !s.hasParts() {
		return chart.Figure{Chart: c}
	}
	c.Rows = EachPoint(s, func(p *Point) chart.Row {
		var r chart.Row
		total := 0.0
		for i, part := range cpuParts {
			if v := p.Stats[part.PerRequest].Median; v > 0 {
				r.Marks = append(r.Marks, chart.Mark{Value: v, Ink: partInks[i]})
				total += v
			}
		}
		r.Value = wording.Decimal(total, wording.DecimalsFor([]float64{total}))
		return r
	})
	return chart.Figure{Title: "Where a request's CPU time goes",
		Caption: "Less is better. All parts share this machine's cores, so the sum decides how many requests it can serve.", Chart: c}
}

// EvennessChart shows each backend's connections at the fullest point only:
// the tables have the figure for every point.
func EvennessChart(s *Section, colours *chart.Palette) chart.Figure {
	c := &chart.Chart{Axis: "connections of a backend, relative to an equal share", Kind: chart.Dots, Reference: 100,
		HasReference: true, Percent: true}
	g := s.Fullest()
	if g == nil {
		return chart.Figure{Chart: c}
	}
	for _, p := range g.Points {
		if len(p.Shares) < 2 {
			continue
		}
		r := chart.Row{Label: wording.Clean(p.Label), Value: unevennessOf(p.Shares)}
		for _, v := range p.Shares {
			r.Marks = append(r.Marks, chart.Mark{Value: v * 100, Ink: colours.Ink(p.Subject)})
		}
		c.Rows = append(c.Rows, r)
	}
	caption := "A dot is a backend, in the repeat of median unevenness. Behind them: how many more connections the busiest had than the idlest."
	if at := g.Params.Only(s.Varying).Text(); at != "" {
		caption = "At " + at + ". " + caption
	}
	return chart.Figure{Title: "How evenly backends were used", Caption: caption, Chart: c}
}

// unevennessOf returns by how much the largest share exceeds the smallest.
func unevennessOf(shares []float64) string {
	if least := slices.Min(shares); least > 0 {
		return wording.PercentMore((slices.Max(shares)/least - 1) * 100)
	}
	return "some idle"
}

// Fullest returns the group with the most points, the last of several.
func (s *Section) Fullest() *Group {
	var best *Group
	for _, g := range s.Groups {
		if best == nil || len(g.Points) >= len(best.Points) {
			best = g
		}
	}
	return best
}

// Pictured returns the section, or only the part of it that a picture shows.
func (s *Section) Pictured() *Section {
	g := s.Fullest()
	if g == nil || !s.Kind.OnePoint {
		return s
	}
	one := *s
	one.Groups = []*Group{g}
	return &one
}
