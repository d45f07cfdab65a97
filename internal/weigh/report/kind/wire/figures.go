// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ladderFigures draws established over offered connections, and each balancer's servers.
func ladderFigures(s *model.Section, _ *chart.Palette) []chart.Figure {
	colours := model.NewPalette([]*model.Section{s})
	all := []chart.Figure{offeredChart(s, colours)}
	for _, label := range labels(s) {
		all = append(all, serversChart(s, label))
	}
	return all
}

// offeredChart draws the established rate over the offered one.
func offeredChart(s *model.Section, colours *chart.Palette) chart.Figure {
	metric, _, noun := wireRate(s)
	c := &chart.Chart{Kind: chart.Lines, Axis: nouns(noun) + " offered a second", YAxis: nouns(noun) + " established a second"}
	var all []chart.Series
	var ideal []chart.XY
	for _, label := range labels(s) {
		line := chart.Series{Name: wording.Clean(label)}
		for _, p := range along(s, label) {
			offered := p.Params[model.ParamOffered]
			if !offered.Numeric || !p.Has(metric) {
				continue
			}
			line.Ink = colours.Ink(p.Subject)
			line.Points = append(line.Points, chart.XY{X: offered.Number, Y: p.Stats[metric].Median})
			if len(ideal) == 0 || offered.Number > ideal[len(ideal)-1].X {
				ideal = append(ideal, chart.XY{X: offered.Number, Y: offered.Number})
			}
		}
		if len(line.Points) > 0 {
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		return chart.Figure{Chart: c}
	}
	c.Lines = append([]chart.Series{{Name: "all that was offered", Ink: chart.InkQuiet, Quiet: true, Dash: 2, Points: ideal}},
		chart.WithDashes(all)...)
	return chart.Figure{Title: capital(nouns(noun)) + " offered, and established",
		Caption: "More is better, up to the dotted line: there nothing is lost. Medians over the repeats.", Chart: c}
}

// serverInks tell servers apart.
var serverInks = []chart.Ink{chart.InkBlue, chart.InkOrange, chart.InkGreen, chart.InkPurple, chart.InkVermillion,
	chart.InkSky, chart.InkYellow, chart.InkBaseline}

// serversChart draws the share of each server of one balancer at each rate, in the repeat of median unevenness.
func serversChart(s *model.Section, label string) chart.Figure {
	metric, _, noun := wireRate(s)
	c := &chart.Chart{Kind: chart.Lines, Axis: nouns(noun) + " offered a second", YAxis: nouns(noun) + " of a server a second"}
	var all []chart.Series
	for _, p := range along(s, label) {
		offered := p.Params[model.ParamOffered]
		if !offered.Numeric || !p.Has(metric) || len(p.Shares) < 2 {
			continue
		}
		for i, share := range p.Shares {
			if i == len(all) {
				all = append(all, chart.Series{Name: fmt.Sprintf("server %d", i+1), Ink: serverInks[i%len(serverInks)]})
			}
			each := p.Stats[metric].Median / float64(len(p.Shares))
			all[i].Points = append(all[i].Points, chart.XY{X: offered.Number, Y: share * each})
		}
	}
	c.Lines = chart.WithDashes(all)
	return chart.Figure{Title: fmt.Sprintf("%s by server: %s", capital(nouns(noun)), wording.Clean(label)),
		Caption: "Where the lines are one, every server gets as much as the others.", Chart: c}
}

// wirePeakFigures draws the rates that were reached.
func wirePeakFigures(s *model.Section, _ *chart.Palette) []chart.Figure {
	metric, title, _ := wireRate(s)
	colours := model.NewPalette([]*model.Section{s})
	return []chart.Figure{
		{Title: title, Caption: "More is better. " + model.WhiskerCaption,
			Chart: &chart.Chart{Axis: title, Kind: chart.Bars,
				Rows: model.EachPoint(s, model.MedianRow(s, colours, metric))}},
		{Title: "The balancer's own CPU time", Caption: "Less is better; kernel work included. " + model.WhiskerCaption, Chart: &chart.Chart{
			Axis: "µs of balancer CPU each", Kind: chart.Bars, Rows: costRows(s, colours)}},
	}
}

func costRows(s *model.Section, colours *chart.Palette) []chart.Row {
	if !s.Has(results.BalancerCPUUsPerConnection) {
		return nil
	}
	return model.EachPoint(s, model.MedianRow(s, colours, results.BalancerCPUUsPerConnection))
}

// capacityFigures draws the number of connections that were held.
func capacityFigures(s *model.Section, _ *chart.Palette) []chart.Figure {
	colours := model.NewPalette([]*model.Section{s})
	return []chart.Figure{{Title: "Connections that were alive in the end", Caption: "More is better, up to those asked for. " +
		model.WhiskerCaption, Chart: &chart.Chart{
		Axis: "connections", Kind: chart.Bars, Rows: model.EachPoint(s, model.MedianRow(s, colours, results.WireCompleted))}}}
}
