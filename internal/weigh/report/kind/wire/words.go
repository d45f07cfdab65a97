// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// isLadder reports whether the load is a series of rates.
func isLadder(s *model.Section) bool { return slices.Contains(s.Varying, model.ParamOffered) }

// wireRates are the main metrics of packet-level loads, with the nouns that they count.
var wireRates = []struct{ metric, title, noun string }{
	{results.SessionsPerSecond, "Sessions/s", "session"},
	{results.ConnectionsPerSecond, "Connections/s", "connection"},
	{results.QueriesPerSecond, "Queries/s", "query"},
	{results.PacketsPerSecond, "Packets/s", "packet"},
}

// wireRate is the section's main metric.
func wireRate(s *model.Section) (metric, title, noun string) {
	for _, r := range wireRates {
		if s.Has(r.metric) {
			return r.metric, r.title, r.noun
		}
	}
	return wireRates[1].metric, wireRates[1].title, wireRates[1].noun
}

// nouns returns the plural of a noun.
func nouns(noun string) string {
	if noun == "query" {
		return "queries"
	}
	return noun + "s"
}

// evenBound is the greatest deviation of a server from its share under round robin, in per cent.
const evenBound = 1

// labelled returns the point with the label, nil if there is none.
func labelled(g *model.Group, label string) *model.Point {
	i := slices.IndexFunc(g.Points, func(p *model.Point) bool { return p.Label == label })
	if i < 0 {
		return nil
	}
	return g.Points[i]
}

// labels lists the labels of all points, in the order of the subjects.
func labels(s *model.Section) []string {
	var all []string
	for _, subject := range s.Subjects {
		for _, p := range s.Points() {
			if p.Subject == subject && !slices.Contains(all, p.Label) {
				all = append(all, p.Label)
			}
		}
	}
	return all
}

// along returns the points with a label, one for each group, in the groups' order.
func along(s *model.Section, label string) []*model.Point {
	var all []*model.Point
	for _, g := range s.Groups {
		if p := labelled(g, label); p != nil {
			all = append(all, p)
		}
	}
	return all
}
