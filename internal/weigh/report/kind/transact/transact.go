// SPDX-License-Identifier: Apache-2.0

// Package transact reports transactions of a byte each way: TCP_CRR and TCP_RR.
package transact

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Kind registers transactions of a byte each way: TCP_CRR or TCP_RR.
var Kind = model.Registration{
	Titles: map[string]string{
		"crr":         "A connection for each transaction (TCP_CRR)",
		"rr":          "Transactions over kept connections (TCP_RR)",
		"crr-netperf": "A connection for each transaction (netperf's TCP_CRR)",
		"rr-netperf":  "Transactions over kept connections (netperf's TCP_RR)",
	},
	Name: "Transactions",
	Of: func(s *model.Section) *model.Kind {
		if !slices.ContainsFunc(s.Trials, func(t results.Trial) bool {
			return t.Params[model.ParamPinned] != nil && t.Params[model.ParamConcurrency] != nil
		}) {
			return nil
		}
		return &model.Kind{Question: "how many transactions a second does each carry, and at what cost",
			Expected: s.Baseline, Sheets: transactSheets,
			Verdict: func(s *model.Section) []string { return model.RateVerdict(s, transactFloors) },
			Figures: transactFigures, Drawn: model.RateAndCost, OnePoint: true,
			Yardstick: model.ByRate, BestOfPoint: true, Reading: transactReading, OfRepeats: true}
	},
}

// transactSheets are the tables of a load of transactions.
func transactSheets(s *model.Section) []model.Sheet {
	return s.Shown(transactSheet(s), model.PartSheet(s),
		model.RestSheet(s, results.TransactionsPerSecond, results.ConnectionsPerSecond))
}

func transactSheet(s *model.Section) model.Sheet {
	metric, title, noun := s.Rate()
	return model.Sheet{
		Title: "Transactions and latency",
		Lead:  "Medians over the valid repeats; spreads are the lowest and the highest repeat. The balancer's CPU time is that of one transaction, kernel work included.",
		Notes: model.BaselineNotes(s, noun),
	}.Of(s, s.Rows(model.ParamConcurrency), []model.Field{
		model.MetricField(title, "", metric),
		model.RatioField("× "+s.Baseline, metric, s.Baseline, metric),
		model.RatioField("× "+model.ProxyTCPSubject, metric, model.ProxyTCPSubject, metric),
		model.SpreadField("Spread of "+noun, metric),
		model.MetricField("Min latency", "ms", results.LatencyMsMin),
		model.MetricField("Mean", "ms", results.LatencyMsMean),
		model.MetricField("p50", "ms", results.LatencyMsP50),
		model.MetricField("p99", "ms", results.LatencyMsP99),
		model.MetricField("Balancer CPU", "µs each", results.BalancerCPUUsPerRequest),
		model.MetricField("Balancer's host CPU", "µs each", results.BalancerHostCPUUsPerRequest),
		model.Fixed(model.MetricField("Failed", "", results.Failed), 0),
		model.SaturatedField(),
		model.RepeatsField(),
	})
}

// transactFigures are the charts of the document: the rate, and the least and the mean latency.
func transactFigures(s *model.Section, colours *chart.Palette) []chart.Figure {
	return []chart.Figure{model.RateChart(s, colours), delayChart(s, colours), model.RequestCostChart(s, colours)}
}

func delayChart(s *model.Section, colours *chart.Palette) chart.Figure {
	c := &chart.Chart{Axis: "latency, ms", Kind: chart.StackedBars, Legend: []chart.LegendEntry{{Name: "least", Ink: chart.InkSky},
		{Name: "from there to the mean", Ink: chart.InkBaseline}}}
	if s.Has(results.LatencyMsMean) {
		c.Rows = model.EachPoint(s, func(p *model.Point) chart.Row {
			least, mean := p.Stats[results.LatencyMsMin].Median, p.Stats[results.LatencyMsMean].Median
			if !p.Has(results.LatencyMsMin) || !p.Has(results.LatencyMsMean) || mean < least {
				return chart.Row{}
			}
			return chart.Row{
				Marks: []chart.Mark{{Value: least, Ink: chart.InkSky}, {Value: mean - least, Ink: chart.InkBaseline}},
				Value: wording.Significant(least) + " – " + wording.Significant(mean),
			}
		})
	}
	return chart.Figure{Title: "Least and mean latency", Caption: "Less is better. Medians over the valid repeats.", Chart: c}
}

// transactFloors are the targets of transactions.
var transactFloors = []model.Floor{
	{Mode: lb.NAT, Against: "routed", Metric: results.ConnectionsPerSecond, Least: 1, Streams: 1, From: ""},
	{Mode: lb.NAT, Against: "routed", Metric: results.TransactionsPerSecond, Least: 1, Streams: 1, From: ""},
	{Mode: lb.NAT, Against: model.ProxyTCPSubject, Metric: results.ConnectionsPerSecond, Least: 1.7, Streams: 1,
		From: ""},
	{Mode: lb.NAT, Against: model.ProxyTCPSubject, Metric: results.TransactionsPerSecond, Least: 1.7, Streams: 1,
		From: ""},
	{Mode: lb.L2DSR, Against: model.BaselineSubject, Metric: results.ConnectionsPerSecond, Least: 0.9, Streams: 1,
		From: ""},
	{Mode: lb.NAT, Against: model.BaselineSubject, Metric: results.ConnectionsPerSecond, Least: model.LocalOverDirect,
		Streams: 1, From: model.FromBalancer},
	{Mode: lb.NAT, Against: model.BaselineSubject, Metric: results.TransactionsPerSecond, Least: model.LocalOverDirect,
		Streams: 1, From: model.FromBalancer},
}

var transactReading = []model.Paragraph{
	{Head: "Transactions",
		Text: "A transaction is a byte to a server and a byte back. With crr a connection is opened for it and closed by the server, as netperf's TCP_CRR does; with rr connections are kept, as in TCP_RR. The latency is that of all of it, closing included."},
	{Head: "One connection",
		Text: "A single connection is a chain in which each part waits for the one before it, so its rate is one divided by its latency. Everything is tied to one core then: elsewhere, what it costs to wake another core is most of such a figure."},
	{Head: "Many connections",
		Text: "With many the cores are full, and a balancer that needs less of them leaves more to clients and servers. On separate machines the ratios would differ; the balancer's CPU time carries over best."},
}
