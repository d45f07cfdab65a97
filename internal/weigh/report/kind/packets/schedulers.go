// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Bounds of a packet's cost by the scheduler of its service, in nanoseconds net of an empty program.
const (
	// newOverKnown is the greatest ratio of the cost of a packet of a new flow to that of a known one, where nothing is
	// remembered.
	newOverKnown = 1.1
	// Where every flow is remembered, the bounds are those of the packet that opens a flow, of a packet of a known flow
	// when that is the only one, and when it is one of the most.
	rememberNs, recallNs, recallManyNs = 250, 60, 250
)

// The schedulers that the targets name.
var (
	statelessTargets = []lb.Scheduler{lb.Maglev, lb.SourceHash}
	trackedTargets   = []lb.Scheduler{lb.RoundRobin, lb.WeightedRoundRobin, lb.LeastConnections}
)

// schedulerRow holds the points of one scheduler in one mode, or of one effect of a change on a flow.
type schedulerRow struct {
	subject, scheduler, change string
	// The points of known and of new flows, with the fewest flows and with the most; nil where not measured.
	known, knownMany, fresh, freshMany *model.Point
}

// schedulerRows collects the rows of a hook: requests of TCP over IPv4.
func schedulerRows(s *model.Section, g *model.Group) []*schedulerRow {
	var rows []*schedulerRow
	flows := model.Distinct(s.Trials, model.ParamFlows)
	for _, p := range g.Points {
		if !ofSchedulers(s, p) {
			continue
		}
		scheduler, change := p.Params[model.ParamScheduler].Word, p.Params[model.ParamChange].Word
		i := slices.IndexFunc(rows, func(r *schedulerRow) bool {
			return r.subject == p.Subject && r.scheduler == scheduler && r.change == change
		})
		if i < 0 {
			i = len(rows)
			rows = append(rows, &schedulerRow{subject: p.Subject, scheduler: scheduler, change: change})
		}
		rows[i].put(p, flows[0], flows[len(flows)-1])
	}
	return slices.DeleteFunc(rows, func(r *schedulerRow) bool {
		return r.change == "" && r.fresh == nil && r.freshMany == nil
	})
}

// ofSchedulers reports whether a point is used to compare schedulers.
func ofSchedulers(s *model.Section, p *model.Point) bool {
	for _, name := range []string{model.ParamConfigured, model.ParamOuter, "tag"} {
		if _, ok := p.Params[name]; ok {
			return false
		}
	}
	mode := modeOf(p)
	return strings.HasPrefix(p.Subject, model.OwnPrefix) && (mode == string(lb.L2DSR) || mode == string(lb.NAT)) &&
		p.Params[model.ParamPackets].Word != model.ForeignPackets &&
		p.Params[model.ParamDirection].Word != model.ReplyDirection &&
		p.Params["family"].Word != "ipv6" && p.Params["protocol"].Word != "udp" && p.Has(results.NsNetOfEmpty)
}

func (r *schedulerRow) put(p *model.Point, few, many model.Value) {
	fresh := p.Params[model.ParamPackets].Word == model.NewPackets
	switch at := p.Params[model.ParamFlows]; {
	case at == few && fresh:
		r.fresh = p
	case at == few:
		r.known = p
	case at == many && fresh:
		r.freshMany = p
	case at == many:
		r.knownMany = p
	}
}

// newest returns the point of new flows: with two of them, the point with the most flows.
func (r *schedulerRow) newest() *model.Point {
	if r.freshMany != nil {
		return r.freshMany
	}
	return r.fresh
}

// ratios returns the ratios of new flows to known ones, with the same number of flows.
func (r *schedulerRow) ratios() (of model.Span) {
	of.Add(model.RatioOf(r.fresh, r.known, results.NsNetOfEmpty))
	of.Add(model.RatioOf(r.freshMany, r.knownMany, results.NsNetOfEmpty))
	return of
}

// name returns the mode and the scheduler, and the change under which the row was measured.
func (r *schedulerRow) name() string {
	mode, _, _ := strings.Cut(strings.TrimPrefix(r.subject, model.OwnPrefix), "-")
	name := wording.Clean(mode) + " " + wording.Clean(r.scheduler)
	if r.change != "" {
		name += ", " + model.ChangeText(r.change)
	}
	return name
}

// schedulerSheet compares the schedulers in a hook.
func schedulerSheet(s *model.Section, g *model.Group) model.Sheet {
	flows := model.Distinct(s.Trials, model.ParamFlows)
	sh := model.Sheet{
		Title: "New and known flows by scheduler" + inHook(g),
		Lead:  "Nanoseconds net of an empty program; medians over the valid repeats. TCP over IPv4, 25 backends.",
		Notes: []string{
			"New flows: SYNs, each of another flow. Where every flow is remembered, beside the most known ones, and with how many of those there are it makes no difference.",
			"New × known: with the same number of flows; of two such, the range.",
		},
		Columns: []model.Column{{Title: "Scheduler"}, {Title: "Known, " + model.Describe(model.ParamFlows, flows[0]), Unit: "ns",
			Numeric: true},
			{Title: "Known, " + model.Describe(model.ParamFlows, flows[len(flows)-1]), Unit: "ns", Numeric: true},
			{Title: "New", Unit: "ns", Numeric: true}, {Title: "New × known", Numeric: true}},
	}
	net := func(p *model.Point) string {
		if p == nil {
			return wording.Missing
		}
		return nanoseconds(p.Stats[results.NsNetOfEmpty].Median)
	}
	for _, changes := range []bool{false, true} {
		var lines []model.Line
		for _, r := range schedulerRows(s, g) {
			if changes != (r.change != "") {
				continue
			}
			ratio := wording.Missing
			if of := r.ratios(); of.N > 0 {
				ratio = of.Text(wording.Times)
			}
			lines = append(lines,
				model.Line{Cells: []string{r.name(), net(r.known), net(r.knownMany), net(r.newest()), ratio}})
		}
		if changes && len(lines) > 0 {
			sh.Notes = append(sh.Notes,
				"Slot moved: the backends have just become more. A flow of a slot that one of the new ones has got is remembered by its first packet, and then known.")
		}
		sh.Group(lines)
	}
	return sh
}

// schedulerFigure draws a row for each scheduler, and for each effect of a change on a flow.
func schedulerFigure(s *model.Section, g *model.Group) chart.Figure {
	flows := model.Distinct(s.Trials, model.ParamFlows)
	c := &chart.Chart{Axis: "ns per packet, net of an empty program", Kind: chart.Dots, Legend: []chart.LegendEntry{
		{Name: "known, " + model.Describe(model.ParamFlows, flows[0]), Ink: model.FlowInks[0]},
		{Name: "known, " + model.Describe(model.ParamFlows, flows[len(flows)-1]), Ink: model.FlowInks[1]},
		{Name: "new", Ink: model.FlowInks[3]},
	}}
	for _, r := range schedulerRows(s, g) {
		row := chart.Row{Label: r.name()}
		var values []string
		for _, dot := range []struct {
			p   *model.Point
			ink chart.Ink
		}{{r.known, model.FlowInks[0]}, {r.knownMany, model.FlowInks[1]}, {r.newest(), model.FlowInks[3]}} {
			if dot.p == nil {
				continue
			}
			v := dot.p.Stats[results.NsNetOfEmpty].Median
			row.Marks = append(row.Marks, chart.Mark{Value: v, Ink: dot.ink})
			values = append(values, nanoseconds(v))
		}
		row.Value = strings.Join(values, " · ")
		c.Rows = append(c.Rows, row)
	}
	c.LogIfWide()
	return chart.Figure{Title: "New and known flows by scheduler" + inHook(g), Caption: "Less is better; medians.", Chart: c}
}

// schedulerTargets compares a hook's schedulers with their targets.
func schedulerTargets(s *model.Section, g *model.Group) []model.TargetResult {
	var all []model.TargetResult
	flows := model.Distinct(s.Trials, model.ParamFlows)
	few, many := withFlows(flows[0]), withFlows(flows[len(flows)-1])
	for _, r := range schedulerRows(s, g) {
		scheduler := lb.Scheduler(r.scheduler)
		if of := r.ratios(); r.change == "" && slices.Contains(statelessTargets, scheduler) && of.N > 0 {
			all = append(all, model.TargetResult{What: r.name() + " new flows", Bound: wording.Decimal(newOverKnown, 1) + " × known",
				Figures: of, Format: wording.Times, Holds: of.High <= newOverKnown})
		}
		if !slices.Contains(trackedTargets, scheduler) {
			continue
		}
		all = append(all, r.bounded(r.newest(), "new flows", rememberNs)...)
		all = append(all, r.bounded(r.known, "known"+few, recallNs)...)
		if r.knownMany != r.known {
			all = append(all, r.bounded(r.knownMany, "known"+many, recallManyNs)...)
		}
	}
	return all
}

// bounded compares one point of a row with its bound.
func (r *schedulerRow) bounded(p *model.Point, what string, bound float64) []model.TargetResult {
	if p == nil {
		return nil
	}
	j := model.TargetResult{What: r.name() + " " + what, Bound: wording.Decimal(bound, 0) + " ns", Format: nanoseconds}
	j.Figures.Add(p.Stats[results.NsNetOfEmpty].Median, true)
	j.Holds = j.Figures.High <= bound
	return []model.TargetResult{j}
}

// schedulerVerdict gives the cost of a new flow, in a sentence for each hook.
func schedulerVerdict(s *model.Section) []string {
	var sentences []string
	for _, g := range bySubject(s).Groups {
		var parts []string
		for _, r := range schedulerRows(s, g) {
			if p := r.newest(); p != nil {
				parts = append(parts, r.name()+" "+nanoseconds(p.Stats[results.NsNetOfEmpty].Median))
			}
		}
		if len(parts) > 0 {
			sentences = append(sentences,
				fmt.Sprintf("A packet%s that opens a flow costs, in nanoseconds net of an empty program: %s.",
					inHook(g), strings.Join(parts, "; ")))
		}
	}
	return sentences
}
