// SPDX-License-Identifier: Apache-2.0

// Package packets reports the data plane packet by packet: nanoseconds, and instructions.
package packets

import (
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// lineSubject is a program that reads one line of memory, and waits for it.
const lineSubject = "line"

// packetSheets are the tables of `jeoul bench packets`: one for each hook with a row for every kind of packet, and one
// with every figure.
func packetSheets(s *model.Section) []model.Sheet {
	var sheets []model.Sheet
	for _, g := range bySubject(s).Groups {
		sheets = append(sheets, hookSheet(s, g))
		if sh := schedulerSheet(s, g); !sh.Empty() {
			sheets = append(sheets, sh)
		}
	}
	sheets = append(sheets, everySheet(s))
	if rest := model.RestSheet(s); len(rest.Columns) > 1+len(model.PlaceFields(s)) {
		sheets = append(sheets, rest)
	}
	return sheets
}

// hookSheet shows the cost of each kind of packet in a hook, by the number of flows.
func hookSheet(s *model.Section, g *model.Group) model.Sheet {
	sh := model.Sheet{
		Title: "What a packet costs" + inHook(g),
		Lead:  "Nanoseconds net of an empty program, by the number of flows; medians over the valid repeats. Beside them, of the fewest flows: the whole time of a packet, and the lowest and the highest repeat.",
		Notes: []string{"Rows say what varies within their subject; the table of every figure has all parameters."},
	}
	if s.Measured(adjustSubject) {
		sh.Notes = append(sh.Notes,
			"Net of adjust: less what it costs to make room for a header and to take it away again, as the harness must before the next packet.")
	}
	if s.Measured(lineSubject) {
		sh.Notes = append(sh.Notes,
			"line: one cache line for each flow, at a place in 64 MiB that depends on what the one before has said. So long does the memory take: a packet of so many remembered flows waits for it at the least.")
	}
	return sh.Of(packetKinds(s, g), packetFields(s, "ns", 1, results.NsPerPacket, results.NsNetOfEmpty), []model.Field{
		model.NumberField("Most × fewest", "", wording.RatioText, func(_ *model.Group, p *model.Point) (float64, bool) {
			most := mostFlows(s, p)
			r, ok := model.RatioOf(most, p, results.NsNetOfEmpty)
			return r, ok && most != p
		}),
		model.Fixed(model.SpreadField("Spread of net", results.NsNetOfEmpty), 1),
		model.NumberField("Net of adjust", "ns", nanoseconds, func(_ *model.Group, p *model.Point) (float64, bool) {
			return netOfAdjust(s, p)
		}),
	})
}

// packetFields are the first columns: the subject, its packets, the whole cost of a packet, and its net cost with each
// number of flows.
func packetFields(s *model.Section, unit string, decimals int, whole, net string) []model.Field {
	fields := []model.Field{model.NameField(),
		model.TextField("Packets", func(p *model.Point) string { return packetWords(s, p) }),
		model.Fixed(model.MetricField("Per packet", unit, whole), decimals)}
	for _, flows := range model.Distinct(s.Trials, model.ParamFlows) {
		title := "Net"
		if flows.Numeric {
			title = model.Describe(model.ParamFlows, flows)
		}
		words := func(v float64) string { return wording.Decimal(v, decimals) }
		of := func(_ *model.Group, p *model.Point) (float64, bool) {
			q := ofFlows(s, p, flows)
			if q == nil {
				return 0, false
			}
			return q.Stats[net].Median, q.Has(net)
		}
		fields = append(fields, model.NumberField(title, unit, words, of))
	}
	return fields
}

// packetKinds returns the section with the points of one group only, without the points that differ from an earlier one
// only in their flows.
func packetKinds(s *model.Section, g *model.Group) *model.Section {
	kinds := &model.Group{Params: g.Params}
	for _, p := range g.Points {
		if !slices.ContainsFunc(kinds.Points,
			func(q *model.Point) bool { return q.Subject == p.Subject && sameKind(p, q) }) {
			kinds.Points = append(kinds.Points, p)
		}
	}
	only := *s
	only.Groups = []*model.Group{kinds}
	return &only
}

// packetWords describes a point's packets by the parameters that vary within its subject.
func packetWords(s *model.Section, p *model.Point) string {
	return p.Params.Only(slices.DeleteFunc(slices.Concat(s.Varying, s.Own), func(name string) bool {
		return name == model.ParamFlows || name == model.ParamHook || !s.VariesWithin(p.Subject, name)
	})).Text()
}

// everySheet has a row for every subject and set of parameters.
func everySheet(s *model.Section) model.Sheet {
	fields := []model.Field{model.NameField()}
	for _, name := range slices.SortedFunc(slices.Values(slices.Concat(s.Varying, s.Own)), model.CompareNames) {
		fields = append(fields, model.ParamField(s, name))
	}
	fields = append(fields,
		model.Fixed(model.MetricField("Per packet", "ns", results.NsPerPacket), 1),
		model.Fixed(model.SpreadField("Spread", results.NsPerPacket), 1),
		model.Fixed(model.MetricField("Net of empty", "ns", results.NsNetOfEmpty), 1),
		model.Fixed(model.MetricField("× empty", "", results.RatioToEmpty), 2),
		model.NumberField("Net × one flow", "", wording.RatioText, func(_ *model.Group, p *model.Point) (float64, bool) {
			return model.RatioOf(p, oneFlow(s, p), results.NsNetOfEmpty)
		}),
		model.RepeatsField(),
	)
	return model.Sheet{
		Title: "Every figure",
		Lead:  "Medians over the valid repeats; the baselines ran in the same, interleaved run.",
		Notes: []string{
			"Net of empty: less what the empty program cost in the same run, which is the harness.",
			"Net × one flow: against the same row with one flow; what memory costs once the tables outgrow the caches.",
		},
		Secondary: true,
	}.Of(bySubject(s), fields)
}

// packetCharts draws one chart for each hook: a row for every kind of packet, a dot for every number of flows.
func packetCharts(s *model.Section) []chart.Figure {
	flows := model.Distinct(s.Trials, model.ParamFlows)
	var out []chart.Figure
	for _, g := range bySubject(s).Groups {
		c := &chart.Chart{Axis: "ns per packet, net of an empty program", Kind: chart.Dots}
		for i, f := range flows {
			if f.Numeric {
				c.Legend = append(c.Legend,
					chart.LegendEntry{Name: model.Describe(model.ParamFlows, f),
						Ink: model.FlowInks[i%len(model.FlowInks)]})
			}
		}
		c.Rows = packetRows(s, g, flows)
		caption := "Less is better; medians. Nought is a program that does nothing."
		if c.LogIfWide() {
			caption = "Less is better; medians."
		}
		out = append(out, chart.Figure{Title: "What a packet costs" + inHook(g), Caption: caption, Chart: c}, schedulerFigure(s, g))
	}
	return out
}

// packetRows joins the points of a group that differ only in their flows, under a head for every subject with rows of
// its own.
func packetRows(s *model.Section, g *model.Group, flows []model.Value) []chart.Row {
	var rows []chart.Row
	at := map[string]int{}
	for _, p := range g.Points {
		if p.Subject == model.EmptySubject || !p.Has(results.NsNetOfEmpty) || ofScheduler(p) {
			continue
		}
		words := packetWords(s, p)
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
			Ink:   model.FlowInks[max(slices.Index(flows, p.Params[model.ParamFlows]), 0)%len(model.FlowInks)],
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
