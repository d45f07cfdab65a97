// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"slices"
)

// packetAnswer says what is cheapest and what is dearest, and which targets are missed.
func packetAnswer(s *section) []string {
	costs := slices.DeleteFunc(packetCosts(s), func(c *packetCost) bool { return c.few.n == 0 || c.foreign })
	if len(costs) == 0 {
		return brief(packetVerdict(s), "")
	}
	slices.SortStableFunc(costs, func(a, b *packetCost) int { return cmp.Compare(a.few.high, b.few.high) })
	least, most := costs[0], costs[len(costs)-1]
	out := []string{fmt.Sprintf("A packet costs least through %s: %s ns more than an empty program.",
		least.name(), least.few.text(nanoseconds))}
	if most != least {
		out = []string{fmt.Sprintf(
			"A packet costs least through %s (%s ns more than an empty program) and most through %s (%s ns).",
			least.name(), least.few.text(nanoseconds), most.name(), most.few.text(nanoseconds))}
	}
	for _, sentence := range brief(packetVerdict(s), "") {
		if missedTargets(sentence) {
			return append(out, sentence)
		}
	}
	return out
}

// packetOverview has a row for each way of forwarding, with the fewest flows and with the most.
func packetOverview(s *section) *sheet {
	costs := packetCosts(s)
	if len(costs) == 0 {
		return nil
	}
	sh := &sheet{Lead: "Nanoseconds net of an empty program: the range of the medians over kinds of packets.",
		Columns: []column{{Title: "Subject"}, {Title: describe(paramFlows, costs[0].fewFlows), Unit: "ns",
			Numeric: true}}}
	if costs[0].fewFlows != costs[0].manyFlows {
		sh.Columns = append(sh.Columns, column{Title: describe(paramFlows, costs[0].manyFlows), Unit: "ns",
			Numeric: true})
	}
	var lines []line
	for _, c := range costs {
		l := line{Cells: []string{c.name()}}
		for _, of := range []span{c.few, c.many}[:len(sh.Columns)-1] {
			if of.n > 0 {
				l.Cells = append(l.Cells, of.text(nanoseconds))
			} else {
				l.Cells = append(l.Cells, wording.Missing)
			}
		}
		lines = append(lines, l)
	}
	sh.group(lines)
	return sh.clipped(overviewRows+4, len(sh.Columns))
}

// packetPicture shows the range of each way of forwarding.
func packetPicture(s *section) *chart.Figure {
	c := &chart.Chart{Axis: "ns per packet, net of an empty program", Kind: chart.Dots}
	costs := slices.DeleteFunc(packetCosts(s), func(c *packetCost) bool { return c.foreign })
	for _, cost := range costs {
		row := chart.Row{Label: cost.name()}
		for i, of := range []span{cost.few, cost.many} {
			if of.n > 0 {
				row.Value = of.text(nanoseconds)
				row.Marks = append(row.Marks, chart.Mark{Value: of.low, Ink: flowInks[2*i]},
					chart.Mark{Value: of.high, Ink: flowInks[2*i]})
			}
		}
		c.Rows = append(c.Rows, row)
	}
	if len(costs) > 0 {
		c.Legend = []chart.LegendEntry{{Name: describe(paramFlows, costs[0].fewFlows), Ink: flowInks[0]}}
		if costs[0].fewFlows != costs[0].manyFlows {
			c.Legend = append(c.Legend,
				chart.LegendEntry{Name: describe(paramFlows, costs[0].manyFlows), Ink: flowInks[2]})
		}
	}
	if c.Wide() {
		c.Log = true
		c.Axis += " (logarithmic)"
	}
	return chart.Figure{Title: "What a packet costs",
		Caption: "Less is better; the lowest and the highest median over kinds of packets.", Chart: c}.Fitted()
}
