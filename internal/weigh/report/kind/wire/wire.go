// SPDX-License-Identifier: Apache-2.0

// Package wire reports connections and datagrams that are made packet by packet.
package wire

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Kind registers connections and datagrams that are made packet by packet.
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

// burstReading explains loads that were offered in bursts.
var burstReading = []model.Paragraph{
	{Head: "Bursts", Text: "A peak is looked for in several bursts, and the fastest counts, of every subject alike: what else a machine does, neighbours on the same processor included, only slows them down. " +
		"samples in the results has all of them."},
}
