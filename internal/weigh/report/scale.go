// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const (
	paramServices = "services"
	paramOf       = "of"
	// paramBeside says beside which size the small configuration was measured.
	paramBeside = "beside"
)

// What the size of a configuration may cost.
const (
	loadBound   = 5   // seconds, from a file to forwarding
	updateBound = 50  // milliseconds, 99 of 100 changes
	sizeBound   = 1.3 // times what a packet costs with one small service
)

// sizeText is a configuration's size in a word: services × backends of each.
func sizeText(p *point) string {
	return p.Params[paramServices].text(paramServices) + " × " + p.Params[paramBackends].text(paramBackends)
}

func oneGroup(*point) string { return "" }

// besideText is the size that a point was measured at or beside.
func besideText(p *point) string {
	if v, ok := p.Params[paramBeside]; ok {
		return v.word
	}
	return sizeOf(p)
}

// sizeField is the first column of this load's tables.
func sizeField() field {
	return field{column: column{Title: "Services × backends"}, cell: func(_ *group, p *point, _ int) string {
		return sizeText(p)
	}}
}

// scaleSheets show loading, changes and packets.
func scaleSheets(s *section) []sheet {
	sheets := s.tabulateBy(sheet{
		Title: "Loading",
		Lead:  "Medians over the valid repeats.",
		Notes: []string{
			"Reading: from the file to a checked configuration. Loading: from there until the last service's packets are forwarded, the kernel's verifier included.",
			"What the kernel has to learn of neighbours and addresses besides is not in it.",
		},
	}, results.LoadSeconds, oneGroup, []field{
		sizeField(),
		fixed(metricField("Reading", "s", results.ParseSeconds), 2),
		fixed(metricField("Loading", "s", results.LoadSeconds), 2),
		fixed(spreadField("Spread of loading", results.LoadSeconds), 2),
		megabytesField("Kernel memory", results.MemlockBytes), repeatsField(),
	})
	sheets = append(sheets, s.tabulateBy(sheet{
		Title: "One backend's change",
		Lead:  "Until the data plane has taken it; after each, the packet of a flow that it concerns went where it should.",
	}, results.UpdateMsP50, sizeText, []field{
		sizeField(), paramField(s, paramOf),
		fixed(metricField("p50", "ms", results.UpdateMsP50), 2),
		fixed(metricField("p99", "ms", results.UpdateMsP99), 2),
		fixed(metricField("Max", "ms", results.UpdateMsMax), 2),
		fixed(metricField("Changes", "", results.Updates), 0),
	})...)
	return append(sheets, s.tabulateBy(sheet{
		Title: "What a packet costs",
		Lead:  "In turn with the same packets for one service of ten backends; medians over the valid repeats.",
		Notes: []string{
			"Packets of all services: each of another flow and of a service at random, so that each finds another part of the tables in no cache.",
			"Packets of ten backends: of flows that one service sends to ten of its backends.",
		},
	}, results.NsNetOfEmpty, besideText, []field{
		sizeField(), paramField(s, paramOf), paramField(s, paramFlows),
		fixed(metricField("Per packet", "ns", results.NsPerPacket), 1),
		fixed(metricField("Net of empty", "ns", results.NsNetOfEmpty), 1),
		fixed(spreadField("Spread of net", results.NsNetOfEmpty), 1),
		{column: column{Title: "× one service", Numeric: true}, cell: func(_ *group, p *point, _ int) string {
			if r, ok := ratioOf(p, s.small(p), results.NsNetOfEmpty); ok {
				return wording.RatioText(r)
			}
			return wording.Missing
		}},
		{column: column{Title: "Beside"}, cell: func(_ *group, p *point, _ int) string {
			if v, ok := p.Params[paramBeside]; ok {
				return wording.Clean(v.word)
			}
			return wording.Missing
		}},
		repeatsField(),
	})...)
}

// small returns the point of the small configuration that was measured beside p, or nil.
func (s *section) small(p *point) *point {
	for _, q := range s.points() {
		if q.Params[paramBeside].word == sizeOf(p) && q.Params[paramOf] == p.Params[paramOf] {
			return q
		}
	}
	return nil
}

// sizeOf is the size as the parameter spells it.
func sizeOf(p *point) string {
	return fmt.Sprintf("%.0f × %.0f", p.Params[paramServices].number, p.Params[paramBackends].number)
}

// scaleVerdict holds the figures against the targets.
func scaleVerdict(s *section) []string {
	var all []judged
	judge := func(what, bound string, value, most float64, format func(float64) string) {
		j := judged{what: what, bound: bound, format: format, holds: value <= most}
		j.figures.add(value, true)
		all = append(all, j)
	}
	two := func(v float64) string { return wording.Decimal(v, 2) }
	for _, p := range s.points() {
		size := sizeText(p)
		if p.has(results.LoadSeconds) {
			judge(size+" read and loaded", fmt.Sprintf("%d s", loadBound),
				p.Stats[results.ParseSeconds].Median+p.Stats[results.LoadSeconds].Median, loadBound, two)
		}
		if p.has(results.UpdateMsP99) {
			judge(size+" "+describe(paramOf, p.Params[paramOf])+", p99", fmt.Sprintf("%d ms", updateBound),
				p.Stats[results.UpdateMsP99].Median, updateBound, two)
		}
		if r, ok := ratioOf(p, s.small(p), results.NsNetOfEmpty); ok {
			judge(size+" "+describe(paramOf, p.Params[paramOf]), wording.Decimal(sizeBound, 1)+" × one service", r,
				sizeBound, two)
		}
	}
	return judgement(all, "")
}

var scaleReading = []paragraph{
	{"Size", "What a packet costs grows with what it has to read that is in no cache. One service's packets read that service's part of the tables, and those to ten of its backends these backends' part, however many others there are. A quarter of a million flows to ten thousand backends, and packets spread at random over ten thousand services, read a different part each, which no table layout spares them and no real traffic does to that degree."},
}

func init() {
	register(rankNamed, func(s *section) *loadKind {
		if s.Load != "scale" {
			return nil
		}
		return &loadKind{question: "how long does a large configuration take to load and to change, and what does a packet cost there",
			sheets: scaleSheets, verdict: scaleVerdict, reading: scaleReading}
	})
}
