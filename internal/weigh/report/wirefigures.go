// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ladderFigures are offered against established, and each balancer's servers.
func ladderFigures(s *section) []figure {
	colours := newPalette([]*section{s})
	all := []figure{offeredChart(s, colours)}
	for _, label := range s.labels() {
		all = append(all, serversChart(s, label))
	}
	return all
}

// offeredChart draws what was established over what was offered.
func offeredChart(s *section, colours *palette) figure {
	metric, _, noun := s.wireRate()
	c := &chart{Kind: lines, Axis: nouns(noun) + " offered a second", YAxis: nouns(noun) + " established a second"}
	var all []series
	var ideal []xy
	for _, label := range s.labels() {
		line := series{Name: clean(label)}
		for _, p := range s.along(label) {
			offered := p.Params[paramOffered]
			if !offered.numeric || !p.has(metric) {
				continue
			}
			line.Ink = colours.subject(p.Subject)
			line.Points = append(line.Points, xy{X: offered.number, Y: p.Stats[metric].Median})
			if len(ideal) == 0 || offered.number > ideal[len(ideal)-1].X {
				ideal = append(ideal, xy{X: offered.number, Y: offered.number})
			}
		}
		if len(line.Points) > 0 {
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		return figure{chart: c}
	}
	c.Lines = append([]series{{Name: "all that was offered", Ink: inkQuiet, Quiet: true, Dash: 2, Points: ideal}},
		withDashes(all)...)
	return figure{capital(nouns(noun)) + " offered, and established",
		"More is better, up to the dotted line: there nothing is lost. Medians over the repeats.", c}
}

// serverInks tell servers apart.
var serverInks = []ink{inkBlue, inkOrange, inkGreen, inkPurple, inkVermillion, inkSky, inkYellow, inkBaseline}

// serversChart draws what each server got at each rate, of one balancer: in the repeat of
// median unevenness.
func serversChart(s *section, label string) figure {
	metric, _, noun := s.wireRate()
	c := &chart{Kind: lines, Axis: nouns(noun) + " offered a second", YAxis: nouns(noun) + " of a server a second"}
	var all []series
	for _, p := range s.along(label) {
		offered := p.Params[paramOffered]
		if !offered.numeric || !p.has(metric) || len(p.Shares) < 2 {
			continue
		}
		for i, share := range p.Shares {
			if i == len(all) {
				all = append(all, series{Name: fmt.Sprintf("server %d", i+1), Ink: serverInks[i%len(serverInks)]})
			}
			each := p.Stats[metric].Median / float64(len(p.Shares))
			all[i].Points = append(all[i].Points, xy{X: offered.number, Y: share * each})
		}
	}
	c.Lines = withDashes(all)
	return figure{fmt.Sprintf("%s by server: %s", capital(nouns(noun)), clean(label)),
		"Where the lines are one, every server gets as much as the others.", c}
}

// wirePeakFigures are the rates that were reached.
func wirePeakFigures(s *section) []figure {
	metric, title, _ := s.wireRate()
	colours := newPalette([]*section{s})
	return []figure{
		{title, "More is better. " + whiskerCaption,
			&chart{Axis: title, Kind: bars, Rows: eachPoint(s, medianRow(s, colours, metric))}},
		{"The balancer's own CPU time", "Less is better; kernel work included. " + whiskerCaption, &chart{
			Axis: "µs of balancer CPU each", Kind: bars, Rows: costRows(s, colours)}},
	}
}

func costRows(s *section, colours *palette) []chartRow {
	if !s.has(results.BalancerCPUUsPerConnection) {
		return nil
	}
	return eachPoint(s, medianRow(s, colours, results.BalancerCPUUsPerConnection))
}

// capacityFigures are how many were held.
func capacityFigures(s *section) []figure {
	colours := newPalette([]*section{s})
	return []figure{{"Connections that were alive in the end", "More is better, up to those asked for. " +
		whiskerCaption, &chart{
		Axis: "connections", Kind: bars, Rows: eachPoint(s, medianRow(s, colours, results.WireCompleted))}}}
}
