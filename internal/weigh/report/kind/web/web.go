// SPDX-License-Identifier: Apache-2.0

// Package web reports requests in a closed loop: their rate, their cost and the clients' latencies.
package web

import (
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
)

// Kind registers requests in a closed loop.
var Kind = model.Registration{
	Titles: map[string]string{
		"ab":         "New connections (ab)",
		"wrk":        "Kept connections (wrk)",
		"https":      "New connections with TLS (ab)",
		"https-kept": "Kept connections with TLS (wrk)",
	},
	Name: "Web requests",
	Of: func(s *model.Section) *model.Kind {
		return &model.Kind{Question: "how many requests a second does each serve, and at what cost", Expected: s.Baseline,
			Sheets:  model.LoadSheets,
			Verdict: func(s *model.Section) []string { return model.RateVerdict(s, nil) },
			Figures: webFigures, Drawn: model.RateAndCost, OnePoint: true,
			Yardstick: model.ByRate, BestOfPoint: true, Reading: requestReading, OfRepeats: true}
	},
}

func webFigures(s *model.Section, colours *chart.Palette) []chart.Figure {
	return []chart.Figure{model.RateChart(s, colours), model.RequestCostChart(s, colours),
		model.LatencyChart(s, colours), model.PartChart(s),
		model.EvennessChart(s, colours)}
}

var requestReading = []model.Paragraph{
	{Head: "Closed loop",
		Text: "A client sends its next request when the last one is answered. A slow subject is therefore offered less, and its latency looks better than it would under a fixed rate of arrivals: throughput and latency are two sides of the same figure, about concurrency ÷ requests/s."},
	{Head: "Shared cores",
		Text: "Clients, switch, balancer and servers run on the cores of one machine. A subject that needs less CPU leaves more for the others and so serves more requests: ratios depend on how much the rest costs, and on separate machines they would differ. The balancer's CPU time per request carries over best."},
	{Head: "Saturated",
		Text: "The part that was out of CPU, or refused work, while others still had room. Where it is not the balancer, the requests/s are a lower bound of what that subject could do. “none” means that no part was short, “unknown” that the probes did not tell."},
}
