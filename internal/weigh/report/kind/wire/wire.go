// SPDX-License-Identifier: Apache-2.0

// Package wire reports connections and datagrams that are made packet by packet.
package wire

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// isLadder says whether the load is a series of rates.
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

// nouns is the plural.
func nouns(noun string) string {
	if noun == "query" {
		return "queries"
	}
	return noun + "s"
}

// Kind is of connections and datagrams that are made packet by packet.
var Kind = model.Registration{
	Titles: map[string]string{
		"setup":          "Connections set up at rising rates",
		"session":        "Sessions at rising rates",
		"setup-peak":     "The most connections set up a second",
		"session-peak":   "The most sessions a second",
		"setup-lossless": "Connections set up without loss",
		"capacity":       "Connections open at a time",
		"capacity-2M":    "Two million connections open at a time",
		"capacity-5M":    "Five million connections open at a time",
		"quiet":          "Sessions without a flood",
		"flooded":        "Sessions beside a SYN flood",
	},
	Name: "Packet by packet",
	Of: func(s *model.Section) *model.Kind {
		if !s.HasParam(model.ParamWire) {
			return nil
		}
		_, _, noun := wireRate(s)
		k := &model.Kind{Sheets: wirePeakSheets, Verdict: wirePeakVerdict, Figures: wirePeakFigures,
			Reading:  wireReading,
			Question: fmt.Sprintf("how many %s a second does each carry, and how evenly does it spread them", nouns(noun))}
		switch {
		case isLadder(s):
			k.Sheets, k.Verdict, k.Figures = ladderSheets, ladderVerdict, ladderFigures
		case s.Constant[model.ParamWire].Word == model.WireCapacity:
			k.Question = "how many connections can each hold at a time"
			k.Sheets, k.Verdict, k.Figures = capacitySheets, capacityVerdict, capacityFigures
		case s.HasParam("beside"):
			k.Question = "what does it lose while it is flooded"
			k.Verdict = besideVerdict
		default:
			k.Yardstick = wireYardstick
		}
		if s.HasParam("bursts") {
			k.Reading = slices.Concat(wireReading, burstReading)
		}
		return k
	},
}

// wireYardstick ranks by the rate.
func wireYardstick(s *model.Section) model.Yardstick {
	y := model.Yardstick{More: true, Cost: results.BalancerCPUUsPerConnection, CostUnit: "µs"}
	y.Metric, y.Title, y.Noun = wireRate(s)
	y.Noun = nouns(y.Noun) + "/s"
	return y
}

var wireReading = []model.Paragraph{
	{Head: "Clients and servers without sockets",
		Text: "Both are eBPF programs on the hosts' devices, which speak TCP packet by packet. So neither is the limit, and what is seen is the balancer, " +
			"up to what the tester itself reaches on this machine: that is direct."},
	{Head: "bare", Text: "An XDP program in the balancer's place that rewrites MAC addresses and does nothing else. Its packets take as many hops as those of a balancer whose servers answer directly, " +
		"so it is the most that such a balancer can reach here. A balancer that answers come back through sends every packet over two hops more."},
	{Head: "Offered and established",
		Text: "Offered is the rate that was asked for. Established are handshakes that were completed (sessions: closed by both sides), by the time in which the step's were begun. " +
			"A SYN that was lost is sent again after a second."},
	{Head: "Evenness", Text: "The greatest difference of a server's connections from an equal share. A hash (maglev) draws lots, so its servers differ by chance; round robin need not."},
}

// burstReading is for loads that were put on in bursts.
var burstReading = []model.Paragraph{
	{Head: "Bursts", Text: "A peak is looked for in several bursts, and the fastest counts, of every subject alike: what else a machine does, neighbours on the same processor included, only slows them down. " +
		"samples in the results has all of them."},
}

// evenBound is by how much a server of round robin may differ from its share, in per cent.
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

// along returns the points with a label, one a group, in the groups' order.
func along(s *model.Section, label string) []*model.Point {
	var all []*model.Point
	for _, g := range s.Groups {
		if p := labelled(g, label); p != nil {
			all = append(all, p)
		}
	}
	return all
}
