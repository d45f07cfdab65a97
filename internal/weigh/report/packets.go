// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// adjustSubject makes room for a header in front of a packet, and does nothing
// else: what the harness has to undo for the next one is in its cost.
const adjustSubject = "adjust"

// lineSubject reads one line of memory, and waits for it.
const lineSubject = "line"

// isPackets says whether the load measures the data plane packet by packet.
func (s *section) isPackets() bool { return s.kind() == nil && s.has(results.NsPerPacket) }

// packetSheets are the tables of `jeoul bench packets`: one a hook with a row
// for every kind of packet, and one with every figure.
func packetSheets(s *section) []sheet {
	var sheets []sheet
	for _, g := range s.bySubject().Groups {
		sheets = append(sheets, hookSheet(s, g))
		if sh := schedulerSheet(s, g); !sh.empty() {
			sheets = append(sheets, sh)
		}
	}
	sheets = append(sheets, everySheet(s))
	if rest := restSheet(s); len(rest.Columns) > 1+len(placeFields(s)) {
		sheets = append(sheets, rest)
	}
	return sheets
}

// hookSheet shows what each kind of packet costs in a hook, by the number of flows.
func hookSheet(s *section, g *group) sheet {
	fields := []field{
		{column: column{Title: "Subject"}, cell: func(_ *group, p *point, _ int) string {
			return p.marked(wording.Clean(p.Subject))
		}},
		{column: column{Title: "Packets"}, cell: func(_ *group, p *point, _ int) string {
			return cmp.Or(s.packetWords(p), wording.Missing)
		}},
		fixed(metricField("Per packet", "ns", results.NsPerPacket), 1),
	}
	for _, flows := range distinct(s.trials, paramFlows) {
		fields = append(fields, netField(s, flows))
	}
	fields = append(fields,
		field{column: column{Title: "Most × fewest", Numeric: true}, cell: func(_ *group, p *point, _ int) string {
			r, ok := ratioOf(s.mostFlows(p), p, results.NsNetOfEmpty)
			if !ok || s.mostFlows(p) == p {
				return wording.Missing
			}
			return wording.RatioText(r)
		}},
		fixed(spreadField("Spread of net", results.NsNetOfEmpty), 1),
		field{column: column{Title: "Net of adjust", Unit: "ns", Numeric: true},
			cell: func(_ *group, p *point, _ int) string {
				if net, ok := s.netOfAdjust(p); ok {
					return wording.Decimal(net, 1)
				}
				return wording.Missing
			}},
	)
	sh := sheet{
		Title: "What a packet costs" + inHook(g),
		Lead:  "Nanoseconds net of an empty program, by the number of flows; medians over the valid repeats. Beside them, of the fewest flows: the whole time of a packet, and the lowest and the highest repeat.",
		Notes: []string{"Rows say what varies within their subject; the table of every figure has all parameters."},
	}
	if s.measured(adjustSubject) {
		sh.Notes = append(sh.Notes,
			"Net of adjust: less what it costs to make room for a header and to take it away again, as the harness must before the next packet.")
	}
	if s.measured(lineSubject) {
		sh.Notes = append(sh.Notes,
			"line: one cache line for each flow, at a place in 64 MiB that depends on what the one before has said. So long does the memory take: a packet of so many remembered flows waits for it at the least.")
	}
	row := *s
	row.Groups = []*group{{Params: g.Params, Points: s.kinds(g)}}
	sh.fill(&row, fields)
	return sh
}

// netField shows the net cost of a row's packets with a number of flows.
func netField(s *section, flows value) field {
	title := "Net"
	if flows.numeric {
		title = describe(paramFlows, flows)
	}
	return field{column: column{Title: title, Unit: "ns", Numeric: true}, cell: func(_ *group, p *point, _ int) string {
		if q := s.withFlows(p, flows); q != nil && q.has(results.NsNetOfEmpty) {
			return wording.Decimal(q.Stats[results.NsNetOfEmpty].Median, 1)
		}
		return wording.Missing
	}}
}

// inHook names a group's hook in a title.
func inHook(g *group) string {
	if hook, ok := g.Params[paramHook]; ok {
		return " in " + strings.ToUpper(hook.text(paramHook))
	}
	return ""
}

// kinds returns a group's points without those that differ from one before in
// their flows only.
func (s *section) kinds(g *group) []*point {
	var rows []*point
	for _, p := range g.Points {
		if !slices.ContainsFunc(rows, func(q *point) bool { return q.Subject == p.Subject && sameKind(p, q) }) {
			rows = append(rows, p)
		}
	}
	return rows
}

// sameKind says whether two points differ in their flows at most.
func sameKind(p, q *point) bool {
	a, b := maps.Clone(p.Params), maps.Clone(q.Params)
	delete(a, paramFlows)
	delete(b, paramFlows)
	return a.key() == b.key()
}

// packetWords says what a point's packets are, by the parameters in which those
// of its subject differ.
func (s *section) packetWords(p *point) string {
	return p.Params.only(slices.DeleteFunc(slices.Concat(s.Varying, s.Own), func(name string) bool {
		return name == paramFlows || name == paramHook || !s.variesWithin(p.Subject, name)
	})).text()
}

// netOfAdjust returns what a tunnel's packet costs besides the room for its
// header; ok is false for other packets.
func (s *section) netOfAdjust(p *point) (net float64, ok bool) {
	if _, tunnel := p.Params[paramOuter]; !tunnel || !p.has(results.NsNetOfEmpty) {
		return 0, false
	}
	for _, q := range s.points() {
		if q.Subject == adjustSubject && q.Params[paramHook] == p.Params[paramHook] &&
			q.Params[paramFlows] == p.Params[paramFlows] && q.has(results.NsNetOfEmpty) {
			return p.Stats[results.NsNetOfEmpty].Median - q.Stats[results.NsNetOfEmpty].Median, true
		}
	}
	return 0, false
}

// everySheet has a row for every subject and set of parameters.
func everySheet(s *section) sheet {
	fields := []field{{
		column: column{Title: "Subject"},
		cell:   func(_ *group, p *point, _ int) string { return p.marked(wording.Clean(p.Subject)) },
	}}
	for _, name := range slices.SortedFunc(slices.Values(slices.Concat(s.Varying, s.Own)), compareNames) {
		fields = append(fields, paramField(s, name))
	}
	fields = append(fields,
		fixed(metricField("Per packet", "ns", results.NsPerPacket), 1),
		fixed(spreadField("Spread", results.NsPerPacket), 1),
		fixed(metricField("Net of empty", "ns", results.NsNetOfEmpty), 1),
		fixed(metricField("× empty", "", results.RatioToEmpty), 2),
		field{column: column{Title: "Net × one flow", Numeric: true}, cell: func(_ *group, p *point, _ int) string {
			r, ok := ratioOf(p, s.oneFlow(p), results.NsNetOfEmpty)
			if !ok {
				return wording.Missing
			}
			return wording.RatioText(r)
		}},
		repeatsField(),
	)
	sh := sheet{
		Title: "Every figure",
		Lead:  "Medians over the valid repeats; the baselines ran in the same, interleaved run.",
		Notes: []string{
			"Net of empty: less what the empty program cost in the same run, which is the harness.",
			"Net × one flow: against the same row with one flow; what memory costs once the tables outgrow the caches.",
		},
		Aside: true,
	}
	sh.fill(s.bySubject(), fields)
	return sh
}

// withFlows returns the point that differs from p by its number of flows at
// most, or nil.
func (s *section) withFlows(p *point, flows value) *point {
	for _, q := range s.points() {
		if q.Subject == p.Subject && q.Params[paramFlows] == flows && sameKind(p, q) {
			return q
		}
	}
	return nil
}

// oneFlow returns the point that differs from p by having one flow only.
func (s *section) oneFlow(p *point) *point {
	return s.withFlows(p, value{number: 1, numeric: true})
}

// fewestFlows returns the point that differs from p by having as few flows as any.
func (s *section) fewestFlows(p *point) *point {
	return s.withFlows(p, distinct(s.trials, paramFlows)[0])
}

// mostFlows returns the point that differs from p by having as many flows as any.
func (s *section) mostFlows(p *point) *point {
	flows := distinct(s.trials, paramFlows)
	return s.withFlows(p, flows[len(flows)-1])
}

// bySubject regroups a section: a group a hook, in the order in which hooks
// were measured first, with each subject's points together.
func (s *section) bySubject() *section {
	r := *s
	r.Groups = nil
	byHook := map[value]*group{}
	for _, t := range s.trials {
		hook := toParams(t.Params)[paramHook]
		if byHook[hook] == nil {
			byHook[hook] = &group{Params: toParams(t.Params).only([]string{paramHook})}
			r.Groups = append(r.Groups, byHook[hook])
		}
	}
	for _, p := range s.points() {
		g := byHook[p.Params[paramHook]]
		g.Points = append(g.Points, p)
	}
	for _, g := range r.Groups {
		slices.SortStableFunc(g.Points, func(a, b *point) int {
			return cmp.Or(
				cmp.Compare(slices.Index(s.Subjects, a.Subject), slices.Index(s.Subjects, b.Subject)),
				a.Params.compare(b.Params),
			)
		})
	}
	return &r
}

// flowInks tell numbers of flows apart, from few to many.
var flowInks = []chart.Ink{chart.InkSky, chart.InkBlue, chart.InkPurple, chart.InkVermillion}

// packetCharts draws one chart a hook: a row for every kind of packet, a dot
// for every number of flows.
func packetCharts(s *section) []chart.Figure {
	flows := distinct(s.trials, paramFlows)
	var out []chart.Figure
	for _, g := range s.bySubject().Groups {
		c := &chart.Chart{Axis: "ns per packet, net of an empty program", Kind: chart.Dots}
		for i, f := range flows {
			if f.numeric {
				c.Legend = append(c.Legend,
					chart.LegendEntry{Name: describe(paramFlows, f), Ink: flowInks[i%len(flowInks)]})
			}
		}
		c.Rows = packetRows(s, g, flows)
		caption := "Less is better; medians. Nought is a program that does nothing."
		if c.Wide() {
			c.Log = true
			c.Axis += " (logarithmic)"
			caption = "Less is better; medians."
		}
		out = append(out, chart.Figure{Title: "What a packet costs" + inHook(g), Caption: caption, Chart: c}, schedulerFigure(s, g))
	}
	return out
}

// packetRows joins the points of a group that differ in their flows only, under
// a head for every subject with rows of its own.
func packetRows(s *section, g *group, flows []value) []chart.Row {
	var rows []chart.Row
	at := map[string]int{}
	for _, p := range g.Points {
		if p.Subject == emptySubject || !p.has(results.NsNetOfEmpty) || ofScheduler(p) {
			continue
		}
		words := s.packetWords(p)
		key := p.Subject + "\x00" + words
		i, ok := at[key]
		if !ok {
			row := chart.Row{Label: words}
			if words == "" {
				row.Label = wording.Clean(p.Subject)
			} else if _, headed := at[p.Subject]; !headed {
				at[p.Subject] = len(rows)
				rows = append(rows, chart.Row{Label: wording.Clean(p.Subject), Head: true})
			}
			i = len(rows)
			at[key] = i
			rows = append(rows, row)
		}
		rows[i].Marks = append(rows[i].Marks, chart.Mark{
			Value: p.Stats[results.NsNetOfEmpty].Median,
			Ink:   flowInks[max(slices.Index(flows, p.Params[paramFlows]), 0)%len(flowInks)],
		})
	}
	for i, r := range rows {
		if n := len(r.Marks); n > 0 {
			rows[i].Value = wording.Decimal(r.Marks[0].Value, 1)
			if n > 1 {
				rows[i].Value += " → " + wording.Decimal(r.Marks[n-1].Value, 1)
			}
		}
	}
	return rows
}
