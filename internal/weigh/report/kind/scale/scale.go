// SPDX-License-Identifier: Apache-2.0

// Package scale reports the cost of a configuration's size.
package scale

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Bounds of the cost of a configuration's size.
const (
	loadBound   = 5   // seconds, from a file to forwarding
	updateBound = 50  // milliseconds, 99 of 100 changes
	sizeBound   = 1.3 // times what a packet costs with one small service
)

// sizeText is a configuration's size in a word: services × backends of each.
func sizeText(p *model.Point) string {
	return p.Params[model.ParamServices].Text(model.ParamServices) + " × " +
		p.Params[model.ParamBackends].Text(model.ParamBackends)
}

func oneGroup(*model.Point) string { return "" }

// besideText is the size that a point was measured at, or that it was measured beside.
func besideText(p *model.Point) string {
	if v, ok := p.Params[model.ParamBeside]; ok {
		return v.Word
	}
	return sizeOf(p)
}

// sizeField is the first column of this load's tables.
func sizeField() model.Field {
	return model.TextField("Services × backends", sizeText)
}

// scaleSheets show loading, changes and packets.
func scaleSheets(s *model.Section) []model.Sheet {
	sheets := s.TabulateBy(model.Sheet{
		Title: "Loading",
		Lead:  "Medians over the valid repeats.",
		Notes: []string{
			"Reading: from the file to a checked configuration. Loading: from there until the last service's packets are forwarded, the kernel's verifier included.",
			"What the kernel has to learn of neighbours and addresses besides is not in it.",
		},
	}, results.LoadSeconds, oneGroup, []model.Field{
		sizeField(),
		model.Fixed(model.MetricField("Reading", "s", results.ParseSeconds), 2),
		model.Fixed(model.MetricField("Loading", "s", results.LoadSeconds), 2),
		model.Fixed(model.SpreadField("Spread of loading", results.LoadSeconds), 2),
		model.MegabytesField("Kernel memory", results.MemlockBytes), model.RepeatsField(),
	})
	sheets = append(sheets, s.TabulateBy(model.Sheet{
		Title: "One backend's change",
		Lead:  "Until the data plane has taken it; after each, the packet of a flow that it concerns went where it should.",
	}, results.UpdateMsP50, sizeText, []model.Field{
		sizeField(), model.ParamField(s, model.ParamOf),
		model.Fixed(model.MetricField("p50", "ms", results.UpdateMsP50), 2),
		model.Fixed(model.MetricField("p99", "ms", results.UpdateMsP99), 2),
		model.Fixed(model.MetricField("Max", "ms", results.UpdateMsMax), 2),
		model.Fixed(model.MetricField("Changes", "", results.Updates), 0),
	})...)
	return append(sheets, s.TabulateBy(model.Sheet{
		Title: "What a packet costs",
		Lead:  "In turn with the same packets for one service of ten backends; medians over the valid repeats.",
		Notes: []string{
			"Packets of all services: each of another flow and of a service at random, so that each finds another part of the tables in no cache.",
			"Packets of ten backends: of flows that one service sends to ten of its backends.",
		},
	}, results.NsNetOfEmpty, besideText, []model.Field{
		sizeField(), model.ParamField(s, model.ParamOf), model.ParamField(s, model.ParamFlows),
		model.Fixed(model.MetricField("Per packet", "ns", results.NsPerPacket), 1),
		model.Fixed(model.MetricField("Net of empty", "ns", results.NsNetOfEmpty), 1),
		model.Fixed(model.SpreadField("Spread of net", results.NsNetOfEmpty), 1),
		model.NumberField("× one service", "", wording.RatioText, func(_ *model.Group, p *model.Point) (float64, bool) {
			return model.RatioOf(p, small(s, p), results.NsNetOfEmpty)
		}),
		model.TextField("Beside", func(p *model.Point) string { return wording.Clean(p.Params[model.ParamBeside].Word) }),
		model.RepeatsField(),
	})...)
}

// small returns the point of the small configuration that was measured beside p, or nil.
func small(s *model.Section, p *model.Point) *model.Point {
	for _, q := range s.Points() {
		if q.Params[model.ParamBeside].Word == sizeOf(p) && q.Params[model.ParamOf] == p.Params[model.ParamOf] {
			return q
		}
	}
	return nil
}

// sizeOf is the size in the spelling of the parameter.
func sizeOf(p *model.Point) string {
	return fmt.Sprintf("%.0f × %.0f", p.Params[model.ParamServices].Number, p.Params[model.ParamBackends].Number)
}

// scaleVerdict compares the figures with the targets.
func scaleVerdict(s *model.Section) []string {
	var all []model.TargetResult
	add := func(what, bound string, value, most float64, format func(float64) string) {
		j := model.TargetResult{What: what, Bound: bound, Format: format, Holds: value <= most}
		j.Figures.Add(value, true)
		all = append(all, j)
	}
	two := func(v float64) string { return wording.Decimal(v, 2) }
	for _, p := range s.Points() {
		size := sizeText(p)
		if p.Has(results.LoadSeconds) {
			add(size+" read and loaded", fmt.Sprintf("%d s", loadBound),
				p.Stats[results.ParseSeconds].Median+p.Stats[results.LoadSeconds].Median, loadBound, two)
		}
		if p.Has(results.UpdateMsP99) {
			add(size+" "+model.Describe(model.ParamOf, p.Params[model.ParamOf])+", p99", fmt.Sprintf("%d ms", updateBound),
				p.Stats[results.UpdateMsP99].Median, updateBound, two)
		}
		if r, ok := model.RatioOf(p, small(s, p), results.NsNetOfEmpty); ok {
			add(size+" "+model.Describe(model.ParamOf, p.Params[model.ParamOf]), wording.Decimal(sizeBound, 1)+" × one service", r,
				sizeBound, two)
		}
	}
	return model.TargetSentences(all, "")
}

var scaleReading = []model.Paragraph{
	{Head: "Size", Text: "What a packet costs grows with what it has to read that is in no cache. One service's packets read that service's part of the tables, and those to ten of its backends these backends' part, however many others there are. A quarter of a million flows to ten thousand backends, and packets spread at random over ten thousand services, read a different part each, which no table layout spares them and no real traffic does to that degree."},
}

// Kind registers large configurations.
var Kind = model.Registration{
	Titles: map[string]string{"scale": "What size costs"},
	Of: func(s *model.Section) *model.Kind {
		if s.Load != "scale" {
			return nil
		}
		return &model.Kind{Question: "how long does a large configuration take to load and to change, and what does a packet cost there",
			Sheets: scaleSheets, Verdict: scaleVerdict, Reading: scaleReading}
	},
}
