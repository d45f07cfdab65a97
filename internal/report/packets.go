// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/results"
)

// isPackets says whether the load measures the data plane packet by packet.
func (s *section) isPackets() bool { return s.has(results.NsPerPacket) }

// packetSheets are the tables of `jeoul bench packets`: a row for every
// subject and set of parameters, by hook.
func packetSheets(s *section) []sheet {
	fields := []field{{
		column: column{Title: "Subject"},
		cell:   func(_ *group, p *point, _ int) string { return p.marked(clean(p.Subject)) },
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
				return missing
			}
			return ratioText(r)
		}},
		repeatsField(),
	)
	sh := sheet{
		Title: "Nanoseconds per packet",
		Lead:  "Medians over the valid repeats; an empty program and a bare MAC swap ran in the same, interleaved run.",
		Notes: []string{
			"Net of empty: less what the empty program cost in the same run, which is the harness.",
			"Net × one flow: against the same row with one flow; what memory costs once the tables outgrow the caches.",
		},
	}
	sh.fill(s.bySubject(), fields)
	rest := restSheet(s)
	if len(rest.Columns) > 1+len(placeFields(s)) {
		return []sheet{sh, rest}
	}
	return []sheet{sh}
}

// oneFlow returns the point that differs from p by having one flow only.
func (s *section) oneFlow(p *point) *point {
	if _, ok := p.Params[paramFlows]; !ok {
		return nil
	}
	want := maps.Clone(p.Params)
	want[paramFlows] = value{number: 1, numeric: true}
	for _, q := range s.points() {
		if q.Subject == p.Subject && q.Params.key() == want.key() {
			return q
		}
	}
	return nil
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

// packetCost is what packets of one kind cost a subject in one of its variants.
type packetCost struct {
	subject, variant string
	// few and many are the ranges of net costs with the fewest and the most
	// flows, growth that of their ratios.
	few, many, growth   span
	fewFlows, manyFlows value
	foreign             bool
}

// name returns the subject with its variant.
func (c packetCost) name() string {
	if c.variant == "" {
		return clean(c.subject)
	}
	return clean(c.subject) + " · " + c.variant
}

// packetCosts sums up the contenders' costs, packets that are not the
// balancer's apart from the others.
func packetCosts(s *section) []*packetCost {
	var costs []*packetCost
	for _, p := range s.bySubject().points() {
		if !p.has(results.NsNetOfEmpty) || !slices.Contains(s.contenders(), p.Subject) {
			continue
		}
		foreign := p.Params[paramPackets].word == foreignPackets
		variant := ""
		if !foreign {
			variant = p.Params.only([]string{paramScheduler}).text()
		}
		i := slices.IndexFunc(costs, func(c *packetCost) bool {
			return c.subject == p.Subject && c.variant == variant && c.foreign == foreign
		})
		if i < 0 {
			i = len(costs)
			costs = append(costs, &packetCost{subject: p.Subject, variant: variant, foreign: foreign})
		}
		costs[i].add(s, p)
	}
	return costs
}

// add counts a point in.
func (c *packetCost) add(s *section, p *point) {
	flows := distinct(s.trials, paramFlows)
	c.fewFlows, c.manyFlows = flows[0], flows[len(flows)-1]
	at := p.Params[paramFlows]
	net := p.Stats[results.NsNetOfEmpty].Median
	if at == c.fewFlows {
		c.few.add(net, true)
	}
	if at == c.manyFlows {
		c.many.add(net, true)
		if one := s.oneFlow(p); one != p {
			c.growth.add(ratioOf(p, one, results.NsNetOfEmpty))
		}
	}
}

// withFlows says with how many flows, where that was a parameter.
func withFlows(v value) string {
	if !v.numeric {
		return ""
	}
	return " with " + describe(paramFlows, v)
}

func nanoseconds(v float64) string { return decimal(v, 1) }

// packetVerdict says what the data plane costs.
func packetVerdict(s *section) []string {
	var sentences []string
	for _, c := range packetCosts(s) {
		text := c.name()
		if c.foreign {
			text += " passes a packet that is not its own for"
		} else {
			text += " forwards a packet for"
		}
		var costs []string
		if c.few.n > 0 {
			costs = append(costs, c.few.text(nanoseconds)+" ns"+withFlows(c.fewFlows))
		}
		if c.many.n > 0 && c.fewFlows != c.manyFlows {
			costs = append(costs, c.many.text(nanoseconds)+" ns"+withFlows(c.manyFlows))
		}
		if len(costs) == 0 {
			continue
		}
		text += " " + list(costs) + ", net of an empty program"
		if c.growth.n > 0 {
			text += fmt.Sprintf(" (%s its one-flow figure)", c.growth.text(times))
		}
		sentences = append(sentences, text+".")
	}
	return sentences
}

// packetCards are the verdicts of `jeoul bench packets` in figures.
func packetCards(s *section, colours *palette) []card {
	var out []card
	for _, c := range packetCosts(s) {
		if c.foreign {
			continue
		}
		k := card{Subject: c.name(), Load: "net of an empty program", ink: colours.subject(c.subject)}
		if c.few.n > 0 {
			k.Figures = append(k.Figures, figureText{c.few.text(nanoseconds) + " ns", "a packet" + withFlows(c.fewFlows)})
		}
		if c.many.n > 0 && c.fewFlows != c.manyFlows {
			k.Figures = append(k.Figures, figureText{c.many.text(nanoseconds) + " ns", "a packet" + withFlows(c.manyFlows)})
		}
		if c.growth.n > 0 {
			k.Figures = append(k.Figures, figureText{c.growth.text(times), "its one-flow figure"})
		}
		out = append(out, k)
	}
	return out
}

// flowInks tell numbers of flows apart, from few to many.
var flowInks = []ink{inkSky, inkBlue, inkPurple, inkVermillion}

// packetCharts draws one chart a hook: a row for every kind of packet, a dot
// for every number of flows.
func packetCharts(s *section) []figure {
	flows := distinct(s.trials, paramFlows)
	var out []figure
	for _, g := range s.bySubject().Groups {
		c := &chart{Axis: "ns per packet, net of an empty program", Kind: dots}
		for i, f := range flows {
			if f.numeric {
				c.Legend = append(c.Legend, legendEntry{Name: describe(paramFlows, f), Ink: flowInks[i%len(flowInks)]})
			}
		}
		c.Rows = packetRows(s, g, flows)
		title := "What a packet costs"
		if hook, ok := g.Params[paramHook]; ok {
			title += " in " + strings.ToUpper(hook.text(paramHook))
		}
		out = append(out, figure{title, "Less is better; medians. Nought is a program that does nothing.", c})
	}
	return out
}

// packetRows joins the points of a group that differ in their flows only, under
// a head for every subject with rows of its own.
func packetRows(s *section, g *group, flows []value) []chartRow {
	var rows []chartRow
	at := map[string]int{}
	for _, p := range g.Points {
		if p.Subject == emptySubject || !p.has(results.NsNetOfEmpty) {
			continue
		}
		words := p.Params.only(slices.DeleteFunc(slices.Concat(s.Varying, s.Own), func(name string) bool {
			return name == paramFlows || name == paramHook
		})).text()
		key := p.Subject + "\x00" + words
		i, ok := at[key]
		if !ok {
			row := chartRow{Label: words}
			if words == "" {
				row.Label = clean(p.Subject)
			} else if _, headed := at[p.Subject]; !headed {
				at[p.Subject] = len(rows)
				rows = append(rows, chartRow{Label: clean(p.Subject), Head: true})
			}
			i = len(rows)
			at[key] = i
			rows = append(rows, row)
		}
		rows[i].Marks = append(rows[i].Marks, mark{
			Value: p.Stats[results.NsNetOfEmpty].Median,
			Ink:   flowInks[max(slices.Index(flows, p.Params[paramFlows]), 0)%len(flowInks)],
		})
	}
	for i, r := range rows {
		if n := len(r.Marks); n > 0 {
			rows[i].Value = decimal(r.Marks[0].Value, 1)
			if n > 1 {
				rows[i].Value += " → " + decimal(r.Marks[n-1].Value, 1)
			}
		}
	}
	return rows
}
