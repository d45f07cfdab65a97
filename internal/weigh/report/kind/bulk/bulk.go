// SPDX-License-Identifier: Apache-2.0

// Package bulk reports transfers in bulk.
package bulk

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Kind registers transfers in bulk, which make no requests.
var Kind = model.Registration{
	Titles: map[string]string{
		"bulk":        "Bulk transfer (iperf3)",
		"bulk-frames": "Bulk transfer in single frames (iperf3)",
	},
	Name: "Bulk transfer",
	Of: func(s *model.Section) *model.Kind {
		if !s.HasParam(model.ParamStreams) {
			return nil
		}
		return &model.Kind{Question: "how many gigabits a second does each let through, and at what cost",
			Expected: s.Baseline, Sheets: bulkSheets,
			Verdict: func(s *model.Section) []string { return model.RateVerdict(s, bulkFloors) },
			Figures: bulkFigures, Drawn: bulkFigures, OnePoint: true,
			Yardstick: bulkYardstick, BestOfPoint: true, Reading: bulkReading, OfRepeats: true}
	},
}

// bulkFloors are the targets of bulk transfer.
var bulkFloors = []model.Floor{
	{Mode: lb.NAT, Against: "routed", Metric: results.GigabitsPerSecond, Least: 0.97, Streams: 10, From: ""},
}

func bulkYardstick(s *model.Section) model.Yardstick {
	y := model.ByRate(s)
	y.Cost, y.CostUnit = results.BalancerCPUMsPerGigabyte, "ms/GB"
	return y
}

func bulkFigures(s *model.Section, colours *chart.Palette) []chart.Figure {
	return []chart.Figure{model.RateChart(s, colours),
		model.CostChart(s, colours, "ms of balancer CPU per gigabyte", results.BalancerCPUMsPerGigabyte)}
}

// bulkSheets are the tables of a load that transferred in bulk.
func bulkSheets(s *model.Section) []model.Sheet {
	return s.Shown(bulkSheet(s), model.PartSheet(s), model.RestSheet(s))
}

// bulkSheet shows the throughput.
func bulkSheet(s *model.Section) model.Sheet {
	metric, title, noun := s.Rate()
	return model.Sheet{
		Title: "Throughput",
		Lead:  "Medians over the valid repeats; spreads are the lowest and the highest repeat.",
		Notes: model.BaselineNotes(s, noun),
	}.Of(s, s.Rows(model.ParamStreams), []model.Field{
		model.MetricField(title, "", metric),
		model.RatioField("× "+s.Baseline, metric, s.Baseline, metric),
		model.SpreadField("Spread of "+noun, metric),
		model.Fixed(model.MetricField("Retransmits", "", results.Retransmits), 0),
		model.MetricField("Balancer CPU", "ms/gigabyte", results.BalancerCPUMsPerGigabyte),
		model.SaturatedField(),
		model.RepeatsField(),
	})
}

var bulkReading = []model.Paragraph{
	{Head: "Bulk transfer",
		Text: "A sender goes as fast as TCP lets it, so the figure is what clients, switch, balancer and servers together can move with the machine's cores. What a balancer that passes both directions adds to that is seen in the ratio to plain forwarding at the same place, not in the gigabits."},
	{Head: "Shared cores",
		Text: "All of them share the cores of one machine: a balancer that needs less leaves more for the others. On separate machines ratios would differ; a proxy's would suffer less, since it has cores of its own there."},
	{Head: "Offloads", Text: "With offloads a packet of up to 64 KiB crosses the laboratory in one piece, as between network cards with TSO and GRO; without, every frame of 1,500 bytes costs its way through each device and hides most of what a balancer costs besides."},
}
