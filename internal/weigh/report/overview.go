// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// overview answers a run's question at one look.
type overview struct {
	Question string
	// Answer is one or two sentences; Sure says what their intervals are.
	Answer []string
	Sure   string
	// Load names what the picture and the table are of.
	Load    string
	Picture *chart.Figure
	Table   *sheet
	of      *section
}

const (
	// overviewRows are the most rows of the first screen's table.
	overviewRows = 12
)

// newOverview answers by the run's first load that has an answer.
func newOverview(sections []*section, colours *chart.Palette, each time.Duration) overview {
	if len(sections) == 0 {
		return overview{Answer: []string{"The run has no trials: there is nothing to judge."}}
	}
	s := slices.MaxFunc(sections, func(a, b *section) int { return cmp.Compare(a.telling(), b.telling()) })
	o := overview{Question: s.question(), Answer: s.answer(each), Sure: s.certaintyNote(), Load: s.title(), of: s}
	if f := s.picture(colours); f != nil && !f.Chart.Empty() {
		o.Picture = f
	}
	o.Table = s.overviewTable()
	return o
}

// telling says how much a load tells: 2 that one balancer is better than another, 0 that none could be, 1 something
// else.
func (s *section) telling() int {
	switch r, ok := s.ranking(); {
	case ok && r.toReference.told():
		return 2
	case ok:
		return 0
	}
	return 1
}

// question is what the load asks, in a line.
func (s *section) question() string {
	question := "how many requests a second does each serve, and at what cost"
	switch kind := s.kind(); {
	case kind != nil:
		question = kind.question
	case s.isPackets():
		question = "how many nanoseconds does each spend on a packet"
	case s.laddered():
		question = "how long do clients of each wait while requests come at a fixed rate"
	case s.transacts():
		question = "how many transactions a second does each carry, and at what cost"
	case s.isBulk():
		question = "how many gigabits a second does each let through, and at what cost"
	}
	return question
}

// picture is the one that shows the answer: rate against cost, or the first of the load's charts.
func (s *section) picture(colours *chart.Palette) *chart.Figure {
	if r, ok := s.ranking(); ok && s.has(r.cost) && r.more {
		if f := s.scatter(r, colours); len(f.Chart.Places) > 0 {
			return &f
		}
	}
	if kind := s.kind(); kind != nil && kind.picture != nil {
		return kind.picture(s)
	}
	if s.isPackets() {
		return packetPicture(s)
	}
	one := *s
	if g := s.fullest(); g != nil && s.kind() == nil {
		one.Groups = []*group{g}
	}
	all := figures(&one, colours)
	if len(all) == 0 {
		return nil
	}
	f := all[0]
	return f.Fitted()
}

// scatter shows the rate over the balancer's CPU time at the load's fullest point.
func (s *section) scatter(r ranking, colours *chart.Palette) chart.Figure {
	c := &chart.Chart{Kind: chart.Scatter, Axis: "balancer CPU, " + r.costUnit + " each", YAxis: r.noun, Log: true}
	g := s.fullest()
	hollow := false
	for _, name := range s.Subjects {
		p := r.pick(g, name)
		if p == nil {
			continue
		}
		x, y := p.Stats[r.cost], p.Stats[r.metric]
		if measure := slices.Contains(notBalancers, name); measure || x.N == 0 || x.Min <= 0 {
			if measure {
				c.Limits = append(c.Limits, chart.Limit{Name: wording.Clean(name), Value: y.Median})
			}
			continue
		}
		at := chart.Place{Name: wording.Clean(name), Ink: colours.Ink(name),
			Hollow: !slices.Contains(p.saturated, string(results.SaturatedBalancer)),
			X:      chart.Mark{Value: x.Median, Low: x.Min, High: x.Max}, Y: chart.Mark{Value: y.Median, Low: y.Min,
				High: y.Max}}
		hollow = hollow || at.Hollow
		c.Places = append(c.Places, at)
	}
	caption := "Up and to the left is better. " +
		"Lines through a point reach from its lowest to its highest repeat; the CPU axis is logarithmic."
	if hollow {
		caption += " Hollow: not the balancer was saturated, so it can do at least that."
	}
	if at := g.Params.only(s.Varying).text(); at != "" {
		caption = "At " + at + ". " + caption
	}
	return chart.Figure{Title: r.title + " against the balancer's CPU time", Caption: caption, Chart: c}
}

// overviewTable is the compact table beside the picture; nil without a row.
func (s *section) overviewTable() *sheet {
	if r, ok := s.ranking(); ok {
		return s.rankingTable(r)
	}
	if kind := s.kind(); kind != nil && kind.overview != nil {
		return kind.overview(s)
	}
	if s.isPackets() {
		return packetOverview(s)
	}
	sheets := s.sheets()
	if len(sheets) == 0 {
		return nil
	}
	return sheets[0].clipped(overviewRows, 5)
}

// variant names the subject, and which of its variants a point is of.
func (s *section) variant(p *point) string {
	parts := []string{p.Subject}
	for _, name := range s.Own {
		if v, ok := p.Params[name]; ok && s.variesWithin(p.Subject, name) {
			parts = append(parts, describe(name, v))
		}
	}
	return wording.Clean(strings.Join(parts, " · "))
}

// rankingTable has a row for each subject: its rate, how it stands to the reference, what it costs.
func (s *section) rankingTable(r ranking) *sheet {
	g := s.fullest()
	sh := &sheet{Columns: []column{
		{Title: "Subject"}, {Title: r.title, Numeric: true}, {Title: "× " + r.reference, Numeric: true},
		{Title: "Balancer CPU", Unit: r.costUnit, Numeric: true}, {Title: "Saturated"}}}
	sh.Lead = fmt.Sprintf(
		"Medians; ratios to %s are over all points. Grey: not told apart from it.", wording.Clean(r.reference))
	if at := g.Params.only(s.Varying).text(); at != "" {
		sh.Lead = fmt.Sprintf("Medians at %s; ratios to %s are over all points. Grey: not told apart from it.",
			at, wording.Clean(r.reference))
	}
	var lines []line
	for _, name := range s.Subjects {
		p := r.pick(g, name)
		if p == nil {
			continue
		}
		l := line{Baseline: name == r.reference, Cells: []string{
			s.variant(p), wording.Significant(p.Stats[r.metric].Median), wording.Missing, wording.Missing,
			cmp.Or(p.Saturated, wording.Missing)}}
		if p.has(r.cost) && !slices.Contains(notBalancers, name) {
			l.Cells[3] = wording.Significant(p.Stats[r.cost].Median)
		}
		if d := s.duel(r.yardstick, name, r.reference, r.metric); name != r.reference && d.Pairs > 0 {
			l.Cells[2], l.Quiet = d.interval(), !d.told()
		}
		lines = append(lines, l)
	}
	sh.group(lines)
	sh.dropBlankColumns()
	return sh.orNil()
}

// clipped returns the table's first rows and columns, and a note on the rest.
func (sh *sheet) clipped(rows, columns int) *sheet {
	short := &sheet{Lead: sh.Lead, Columns: sh.Columns[:min(columns, len(sh.Columns))]}
	left, all := rows, 0
	for _, g := range sh.Groups {
		all += len(g)
		var lines []line
		for _, l := range g[:min(left, len(g))] {
			lines = append(lines,
				line{Baseline: l.Baseline, Quiet: l.Quiet, Cells: slices.Clone(l.Cells[:len(short.Columns)])})
		}
		left -= len(lines)
		short.group(lines)
	}
	if all > rows {
		short.Notes = []string{fmt.Sprintf("%d more rows are below.", all-rows)}
	}
	return short.orNil()
}
