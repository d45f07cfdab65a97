// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// packetAnswer names the cheapest and the most expensive way of forwarding, and the targets that are missed.
func packetAnswer(s *model.Section) []string {
	costs := slices.DeleteFunc(packetCosts(s), func(c *packetCost) bool { return c.few.N == 0 || c.foreign })
	if len(costs) == 0 {
		return model.Brief(packetVerdict(s), "")
	}
	slices.SortStableFunc(costs,
		func(a, b *packetCost) int { return cmp.Compare(mean(a.fewest).Ratio, mean(b.fewest).Ratio) })
	least, most := costs[0], costs[len(costs)-1]
	out := []string{fmt.Sprintf("A packet costs least through %s: %s ns more than an empty program.",
		least.name(), meanText(least.fewest))}
	if most != least {
		out = []string{fmt.Sprintf(
			"A packet costs least through %s, %s ns more than an empty program, and most through %s, %s ns.",
			least.name(), meanText(least.fewest), most.name(), meanText(most.fewest))}
	}
	for _, sentence := range model.Brief(packetVerdict(s), "") {
		if model.MissedTargets(sentence) {
			return append(out, sentence)
		}
	}
	return out
}

// mean is the mean cost of a packet over its kinds, by the repeats.
func mean(points []*model.Point) model.Comparison { return model.Level(points, results.NsNetOfEmpty) }

func meanText(points []*model.Point) string { return mean(points).LevelText(nanoseconds) }

// packetOverview has a row for each way of forwarding, with the fewest flows and with the most.
func packetOverview(s *model.Section) *model.Sheet {
	costs := packetCosts(s)
	if len(costs) == 0 {
		return nil
	}
	sh := &model.Sheet{Lead: "Nanoseconds net of an empty program: the mean over kinds of packets, in brackets the interval from the repeats.",
		Columns: []model.Column{{Title: "Subject"}, {Title: model.Describe(model.ParamFlows, costs[0].fewFlows), Unit: "ns",
			Numeric: true}}}
	if costs[0].fewFlows != costs[0].manyFlows {
		sh.Columns = append(sh.Columns,
			model.Column{Title: model.Describe(model.ParamFlows, costs[0].manyFlows), Unit: "ns",
				Numeric: true})
	}
	var lines []model.Line
	for _, c := range costs {
		l := model.Line{Cells: []string{c.name()}}
		for _, of := range [][]*model.Point{c.fewest, c.most}[:len(sh.Columns)-1] {
			l.Cells = append(l.Cells, meanText(of))
		}
		lines = append(lines, l)
	}
	sh.Group(lines)
	return sh.Clipped(model.OverviewRows+4, len(sh.Columns))
}

// packetPicture shows the range of each way of forwarding.
func packetPicture(s *model.Section) *chart.Figure {
	c := &chart.Chart{Axis: "ns per packet, net of an empty program", Kind: chart.Dots}
	costs := slices.DeleteFunc(packetCosts(s), func(c *packetCost) bool { return c.foreign })
	for _, cost := range costs {
		row := chart.Row{Label: cost.name()}
		for i, of := range []model.Span{cost.few, cost.many} {
			if of.N > 0 {
				row.Value = of.Text(nanoseconds)
				row.Marks = append(row.Marks, chart.Mark{Value: of.Low, Ink: model.FlowInks[2*i]},
					chart.Mark{Value: of.High, Ink: model.FlowInks[2*i]})
			}
		}
		c.Rows = append(c.Rows, row)
	}
	if len(costs) > 0 {
		c.Legend = []chart.LegendEntry{{Name: model.Describe(model.ParamFlows, costs[0].fewFlows),
			Ink: model.FlowInks[0]}}
		if costs[0].fewFlows != costs[0].manyFlows {
			c.Legend = append(c.Legend,
				chart.LegendEntry{Name: model.Describe(model.ParamFlows, costs[0].manyFlows), Ink: model.FlowInks[2]})
		}
	}
	c.LogIfWide()
	return chart.Figure{Title: "What a packet costs",
		Caption: "Less is better; the lowest and the highest median over kinds of packets.", Chart: c}.Fitted()
}
