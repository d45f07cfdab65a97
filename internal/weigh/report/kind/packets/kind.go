// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Kind registers the data plane, measured packet by packet.
var Kind = model.Registration{
	Titles: map[string]string{
		"packets": "Packets through the data plane",
	},
	Name: "Packets",
	Of: func(s *model.Section) *model.Kind {
		if !s.Has(results.NsPerPacket) {
			return nil
		}
		return &model.Kind{Question: "how many nanoseconds does each spend on a packet", Expected: model.EmptySubject,
			Sheets: packetSheets, Verdict: packetVerdict,
			Figures: func(s *model.Section, _ *chart.Palette) []chart.Figure { return packetCharts(s) },
			Answer:  packetAnswer, Overview: packetOverview, Picture: packetPicture, Reading: packetReading,
			Compared: &model.RateMetric{Name: results.NsNetOfEmpty, Title: "ns a packet, net", Noun: "ns"}}
	},
}

var packetReading = []model.Paragraph{
	{Head: "What a packet costs here",
		Text: "The kernel runs the program over and over on one core (BPF_PROG_TEST_RUN) without a network card: parsing, lookup and rewriting, but no driver, no interrupt, no DMA. The empty program is the cost of the harness itself."},
	{Head: "Flows", Text: "One flow keeps everything in the nearest cache and flatters every balancer. The figure with a million flows is the one that a busy service sees."},
}
