// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// figures returns the charts of a load that have something to show.
func figures(s *section, colours *palette) []figure {
	var all []figure
	switch kind := s.kind(); {
	case kind != nil && kind.figures != nil:
		all = kind.figures(s)
	case kind != nil:
	case s.isPackets():
		all = packetCharts(s)
	case s.transacts():
		all = transactFigures(s, colours)
	case s.isBulk():
		all = []figure{rateChart(s, colours), costChart(s, colours)}
	case s.laddered():
		all = []figure{latencyChart(s, colours), rateChart(s, colours), costChart(s, colours)}
	default:
		all = []figure{rateChart(s, colours), costChart(s, colours), latencyChart(s, colours), partChart(s),
			evennessChart(s, colours)}
	}
	return slices.DeleteFunc(all, func(f figure) bool { return f.chart.empty() })
}

// eachPoint builds the rows of a chart: one a point for which make returns
// a value, under a head for each group where there are several.
func eachPoint(s *section, make func(*point) chartRow) []chartRow {
	var rows []chartRow
	for _, g := range s.Groups {
		var of []chartRow
		for _, p := range g.Points {
			if r := make(p); r.Value != "" {
				r.Label = clean(p.Label)
				of = append(of, r)
			}
		}
		if len(of) > 0 && len(s.Groups) > 1 {
			rows = append(rows, chartRow{Label: g.Params.only(s.Varying).text(), Head: true})
		}
		rows = append(rows, of...)
	}
	return rows
}

// medianRow is a row with one bar: a metric's median and range.
func medianRow(s *section, colours *palette, metric string) func(*point) chartRow {
	var values []float64
	for _, p := range s.points() {
		if p.has(metric) {
			values = append(values, p.Stats[metric].Median)
		}
	}
	decimals := decimalsFor(values)
	return func(p *point) chartRow {
		if !p.has(metric) && p.Subject == s.Baseline {
			return chartRow{Value: "no balancer"}
		}
		if !p.has(metric) {
			return chartRow{}
		}
		st := p.Stats[metric]
		return chartRow{
			Marks: []mark{{Value: st.Median, Low: st.Min, High: st.Max, Ink: colours.subject(p.Subject)}},
			Value: decimal(st.Median, decimals),
		}
	}
}

const whiskerCaption = "Bars are medians, whiskers the lowest and highest repeat."

func rateChart(s *section, colours *palette) figure {
	metric, title, noun := s.rate()
	return figure{title, "More is better. " + whiskerCaption, &chart{
		Axis: noun, Kind: bars, Rows: eachPoint(s, medianRow(s, colours, metric)),
	}}
}

func costChart(s *section, colours *palette) figure {
	axis, metric := "µs of balancer CPU per request", results.BalancerCPUUsPerRequest
	if s.isBulk() {
		axis, metric = "ms of balancer CPU per gigabyte", results.BalancerCPUMsPerGigabyte
	}
	c := &chart{Axis: axis, Kind: bars}
	if s.has(metric) {
		c.Rows = eachPoint(s, medianRow(s, colours, metric))
	}
	return figure{"The balancer's own CPU time", "Less is better; kernel work included. " + whiskerCaption, c}
}

func latencyChart(s *section, colours *palette) figure {
	var values []float64
	for _, p := range s.points() {
		for _, m := range []string{results.LatencyMsP50, results.LatencyMsP99} {
			if p.has(m) {
				values = append(values, p.Stats[m].Median)
			}
		}
	}
	c := &chart{Axis: "latency, ms", Kind: dots, Legend: []legendEntry{
		{Name: "p50", Ink: inkQuiet}, {Name: "p99", Ink: inkQuiet, Hollow: true},
	}}
	if len(values) > 0 && slices.Min(values) > 0 && slices.Max(values)/slices.Min(values) > logFrom {
		c.Log = true
		c.Axis += " (logarithmic)"
	}
	c.Rows = eachPoint(s, func(p *point) chartRow {
		var r chartRow
		for _, m := range []string{results.LatencyMsP50, results.LatencyMsP99} {
			if !p.has(m) {
				continue
			}
			v := p.Stats[m].Median
			if r.Value != "" {
				r.Value += " – "
			}
			r.Value += significant(v)
			r.Marks = append(r.Marks, mark{Value: v, Ink: colours.subject(p.Subject),
				Hollow: m == results.LatencyMsP99})
		}
		return r
	})
	return figure{"What clients waited", "Less is better. Half of the requests took up to p50, all but 1 % up to p99.",
		c}
}

// partInks are the inks of cpuParts.
var partInks = []ink{inkSky, inkBaseline, inkVermillion, inkOrange, inkGreen}

func partChart(s *section) figure {
	c := &chart{Axis: "µs of CPU per request, all parts", Kind: stackedBars}
	for i, part := range cpuParts {
		if s.has(part.PerRequest) {
			c.Legend = append(c.Legend, legendEntry{Name: part.Name, Ink: partInks[i]})
		}
	}
	if !s.hasParts() {
		return figure{chart: c}
	}
	c.Rows = eachPoint(s, func(p *point) chartRow {
		var r chartRow
		total := 0.0
		for i, part := range cpuParts {
			if v := p.Stats[part.PerRequest].Median; v > 0 {
				r.Marks = append(r.Marks, mark{Value: v, Ink: partInks[i]})
				total += v
			}
		}
		r.Value = decimal(total, decimalsFor([]float64{total}))
		return r
	})
	return figure{"Where a request's CPU time goes",
		"Less is better. All parts share this machine's cores, so the sum decides how many requests it can serve.", c}
}

// evennessChart shows each backend's connections at the fullest point only:
// the tables have the figure for every point.
func evennessChart(s *section, colours *palette) figure {
	c := &chart{Axis: "connections of a backend, relative to an equal share", Kind: dots, Reference: 100,
		HasReference: true, Percent: true}
	g := s.fullest()
	if g == nil {
		return figure{chart: c}
	}
	for _, p := range g.Points {
		if len(p.Shares) < 2 {
			continue
		}
		r := chartRow{Label: clean(p.Label), Value: unevennessOf(p.Shares)}
		for _, v := range p.Shares {
			r.Marks = append(r.Marks, mark{Value: v * 100, Ink: colours.subject(p.Subject)})
		}
		c.Rows = append(c.Rows, r)
	}
	caption := "A dot is a backend, in the repeat of median unevenness. Behind them: how many more connections the busiest had than the idlest."
	if at := g.Params.only(s.Varying).text(); at != "" {
		caption = "At " + at + ". " + caption
	}
	return figure{"How evenly backends were used", caption, c}
}

// unevennessOf says by how much the largest share exceeds the smallest.
func unevennessOf(shares []float64) string {
	if least := slices.Min(shares); least > 0 {
		return percentMore((slices.Max(shares)/least - 1) * 100)
	}
	return "some idle"
}

// fullest returns the group with the most points, the last of several.
func (s *section) fullest() *group {
	var best *group
	for _, g := range s.Groups {
		if best == nil || len(g.Points) >= len(best.Points) {
			best = g
		}
	}
	return best
}
