// SPDX-License-Identifier: Apache-2.0

// Package paced reports requests that are due at a fixed rate: an open loop.
package paced

import (
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Kind registers open-loop loads: requests are due at given rates, whatever became of the previous ones.
var Kind = model.Registration{
	Titles: map[string]string{
		"arrivals":     "Requests at a fixed rate, new connections (open loop)",
		"highest-rate": "The highest rate that holds, new connections (open loop)",
	},
	Name: "Requests at a fixed rate",
	Of: func(s *model.Section) *model.Kind {
		searched := web.Kind.Of(s)
		searched.Reading, searched.ReadFirst = openReading, true
		switch {
		case s.HasParam(model.ParamArrivals):
			return &model.Kind{Question: "how long do clients of each wait while requests come at a fixed rate",
				Expected: s.Baseline, Sheets: model.LoadSheets, Verdict: pacedVerdict,
				Figures: pacedFigures, Drawn: model.RateAndCost, OnePoint: true,
				Yardstick: byP99, Reading: openReading, OfRepeats: true, ReadFirst: true}
		case s.HasParam(model.ParamP99Bound):
			return searched
		}
		return nil
	},
}

// byP99 ranks by the latency that 99 % of the requests do not exceed.
func byP99(s *model.Section) model.Yardstick {
	return model.Yardstick{Metric: results.LatencyMsP99, Title: "p99, ms", Noun: "p99",
		Cost: results.BalancerCPUUsPerRequest, CostUnit: "µs"}
}

func pacedFigures(s *model.Section, colours *chart.Palette) []chart.Figure {
	return []chart.Figure{model.LatencyChart(s, colours), model.RateChart(s, colours),
		model.RequestCostChart(s, colours)}
}

// pacedVerdict gives for each rate the time that 99 % of the requests took: as long as all requests are served, their
// rate distinguishes no subjects.
func pacedVerdict(s *model.Section) []string {
	var sentences []string
	for _, g := range s.Groups {
		var words []string
		for _, p := range g.Points {
			if p.Has(results.LatencyMsP99) {
				words = append(words,
					fmt.Sprintf("%s %s ms", wording.Clean(p.Label), wording.Significant(p.Stats[results.LatencyMsP99].Median)))
			}
		}
		if len(words) > 0 {
			sentences = append(sentences, fmt.Sprintf("%s: with %s, 99 %% were answered within: %s.",
				s.Title(), model.Describe(model.ParamArrivals, g.Params[model.ParamArrivals]), strings.Join(words, "; ")))
		}
	}
	if v := model.SaturationVerdict(s); v != "" {
		sentences = append(sentences, s.Title()+": "+v)
	}
	return sentences
}

var openReading = []model.Paragraph{
	{Head: "Open loop",
		Text: "Requests are due at a fixed rate, whether the last ones have been answered or not, and latency counts from when a request was due: one that had to wait because the server, the balancer or the generator stood still shows all of it. A closed loop would not have sent it (“coordinated omission”)."},
	{Head: "The highest rate",
		Text: "Where it was searched for, the requests/s are the highest rate at which 99 % of the requests kept the bound and none failed; a rate has to fail twice in a row to count as failed."},
}
