// SPDX-License-Identifier: Apache-2.0

// Package flood reports connections during a flood.
package flood

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// floodTargetRatio is the greatest ratio of the p99 in a flood to the quiet p99.
const floodTargetRatio = 2

// Kind registers the experiment of a flood.
var Kind = model.Registration{
	Titles: map[string]string{
		"syn":          "SYN flood",
		"syn-answered": "SYN flood that servers answer",
		"syn-ack":      "Flood of SYNs and their ACKs",
		"udp":          "UDP flood",
	},
	Name: "Flood",
	Of: func(s *model.Section) *model.Kind {
		if !s.HasParam(model.ParamFlood) {
			return nil
		}
		return &model.Kind{Question: "who of those that are connected is lost or has to wait while it is flooded, and what does it keep of the flood",
			Sheets: floodSheets, Verdict: floodVerdict, Figures: floodFigures, Reading: floodReading,
			Answer: floodAnswer, Overview: floodOverview, Sure: floodSure}
	},
}

var floodReading = []model.Paragraph{
	{Head: "Two phases",
		Text: "Each trial has the same connections in both: quiet, and then beside the flood. A ratio is of the two phases of one trial, so that what differs between trials stays out of it. " +
			"Compare it with that of direct, where the flood is dropped at once: so much a busy neighbouring core does by itself."},
	{Head: "Whose core",
		Text: "The flood has one core for everything that comes of it, the connections another. What they share is the memory, its caches, and what the balancer keeps for all of its flows: " +
			"its tables, its locks, its sockets. That is what is looked for."},
	{Head: "What was handled",
		Text: "Packets of the flood that the balancer has sent on, or answered in a server's place, as a proxy does. Where less is handled than offered, the rest was dropped on the balancer: " +
			"an honest client's SYN would have been among it."},
	{Head: "Failed and late",
		Text: "A SYN that is lost is sent again after a second. So new connections that p99 shows beyond 1,000 ms lost their first one, though they have not failed."},
}

// floodSheets are the tables of a flood's experiment.
func floodSheets(s *model.Section) []model.Sheet {
	return s.Shown(floodConnections(s), floodBalancer(s), model.RestSheet(s, floodShown...))
}

// floodConnections shows the clients' view.
func floodConnections(s *model.Section) model.Sheet {
	return model.Sheet{
		Title: "Those who are connected",
		Lead:  "Connections that were open before the flood, and what requests over them took; medians over the repeats.",
		Notes: []string{
			"Lost: reset, closed, wrongly answered or silent, in the whole trial.",
			"p99 × quiet: each trial has both phases, and so a ratio of its own. Neither the estimate from these, with its interval, nor their median is the quotient of the medians beside it.",
			"New: connections opened while the flood went on; one that was opened late, after its SYN was sent again, has not failed.",
		},
	}.Of(s, s.Rows(), []model.Field{
		model.MetricField("Connec\u00ADtions", "", results.Established),
		model.Fixed(model.MetricField("Lost", "", results.EstablishedLost), 0),
		floodLatency("p50 quiet", results.QuietLatencyMsP50),
		floodLatency("p50 flood", results.FloodLatencyMsP50),
		floodLatency("p99 quiet", results.QuietLatencyMsP99),
		floodLatency("p99 flood", results.FloodLatencyMsP99),
		slowdownField(), model.MedianField("Median of these", "", results.FloodRatioP99, wording.Times),
		model.SpreadField("Spread", results.FloodRatioP99),
		model.Fixed(model.MetricField("New opened", "", results.FloodNewOpened), 0),
		model.Fixed(model.MetricField("New failed", "", results.FloodNewFailed), 0),
		floodLatency("New p99", results.FloodNewLatencyMsP99),
		model.RepeatsField(),
	})
}

// floodLatency returns a field for a latency in milliseconds, with two decimals.
func floodLatency(title, metric string) model.Field {
	return model.Fixed(model.MetricField(title, "ms", metric), 2)
}

// floodBalancer shows the flood's effect on the balancer.
func floodBalancer(s *model.Section) model.Sheet {
	return model.Sheet{
		Title: "The flood, and the balancer",
		Lead:  "What reached the balancer's link, what the balancer sent on or answered, what that cost it, and how much it kept for flows.",
		Notes: []string{
			"One core makes the flood and does everything that comes of it: less is offered where more is to be done with each packet.",
			"Kept: flows in our tables, connections that the kernel tracks, or sockets of a proxy; the notes on trials say which.",
		},
	}.Of(s, s.Rows(), []model.Field{
		model.Fixed(model.MetricField("Offered", "packets/s", results.FloodOfferedPerSecond), 0),
		model.Fixed(model.MetricField("Handled", "packets/s", results.FloodHandledPerSecond), 0),
		model.Fixed(model.MetricField("Answered", "SYN-ACKs/s", results.FloodAnsweredPerSecond), 0),
		model.Fixed(model.MetricField("CPU quiet", "cores", results.QuietBalancerCPUCores), 2),
		model.Fixed(model.MetricField("CPU flood", "cores", results.FloodBalancerCPUCores), 2),
		model.NumberField("CPU", "ns/packet", func(v float64) string { return wording.Decimal(v, 0) }, floodCost),
		model.Fixed(model.MetricField("Kept before", "", results.RememberedBefore), 0),
		model.Fixed(model.MetricField("Kept in flood", "", results.RememberedDuring), 0),
		model.Fixed(model.MetricField("Kept after", "", results.RememberedAfter), 0),
		model.Fixed(model.MetricField("Bound", "", results.RememberedLimit), 0),
		model.MedianField("Memory", "", results.RememberedBytes, wording.BytesText),
	})
}

// floodCost is the cost of a packet of the flood to the balancer, in nanoseconds of CPU.
func floodCost(_ *model.Group, p *model.Point) (ns float64, ok bool) {
	handled := p.Stats[results.FloodHandledPerSecond].Median
	more := p.Stats[results.FloodBalancerCPUCores].Median - p.Stats[results.QuietBalancerCPUCores].Median
	ns, ok = model.Ratio(more*1e9, handled)
	return ns, ok && ns > 0
}

// floodShown are the metrics of the other two tables.
var floodShown = []string{
	results.Established, results.EstablishedLost,
	results.QuietLatencyMsP50, results.FloodLatencyMsP50, results.QuietLatencyMsP99, results.FloodLatencyMsP99,
	results.FloodRatioP99,
	results.FloodNewOpened, results.FloodNewFailed, results.FloodNewLatencyMsP99,
	results.FloodOfferedPerSecond, results.FloodHandledPerSecond, results.FloodAnsweredPerSecond,
	results.QuietBalancerCPUCores, results.FloodBalancerCPUCores,
	results.RememberedBefore, results.RememberedDuring, results.RememberedAfter, results.RememberedLimit,
	results.RememberedBytes,
}

// floodVerdict compares our own subjects with the targets, and gives the results of the others.
func floodVerdict(s *model.Section) []string {
	var held, missed, others []string
	for _, p := range slices.Concat(s.Points(), s.Invalid) {
		j := checkFlood(p)
		switch {
		case p.Subject == model.BaselineSubject:
		case !strings.HasPrefix(p.Subject, model.OwnPrefix):
			others = append(others, j.text)
		case j.holds:
			held = append(held, j.text)
		default:
			missed = append(missed, j.text)
		}
	}
	var sentences []string
	for _, of := range []struct {
		what  string
		words []string
	}{
		{fmt.Sprintf(
			"no connection lost, p99 at most %d × the quiet one, and nothing kept beyond the bound. That holds for",
			floodTargetRatio), held},
		{"That is missed by", missed},
		{"The others:", others},
	} {
		if len(of.words) > 0 {
			sentences = append(sentences, fmt.Sprintf("%s: %s %s.", s.Title(), of.what, strings.Join(of.words, "; ")))
		}
	}
	return sentences
}

// floodResult is a point compared with the targets.
type floodResult struct {
	text  string
	holds bool
}

// checkFlood compares the lost and kept connections of every repeat, and the median of the latencies, with the targets.
// A repeat that is not valid has lost everything.
func checkFlood(p *model.Point) floodResult {
	if p.Valid == 0 {
		return floodResult{text: p.InvalidText()}
	}
	lost, ratio := p.Stats[results.EstablishedLost], p.Stats[results.FloodRatioP99]
	words := []string{fmt.Sprintf("%s lost", wording.Decimal(lost.Max, 0))}
	if ratio.N > 0 {
		words = append(words, fmt.Sprintf("p99 %s (%.2f ms quiet, %.2f ms in the flood)", wording.Times(ratio.Median),
			p.Stats[results.QuietLatencyMsP99].Median, p.Stats[results.FloodLatencyMsP99].Median))
	}
	if failed := p.Stats[results.FloodNewFailed]; failed.Max > 0 {
		words = append(words, fmt.Sprintf("%s new connections failed", wording.Decimal(failed.Max, 0)))
	}
	kept := p.Stats[results.RememberedDuring]
	bounded := true
	if limit := p.Stats[results.RememberedLimit]; kept.N > 0 && limit.N > 0 {
		bounded = kept.Max <= limit.Max
		words = append(words, fmt.Sprintf("%s of %s kept", wording.Decimal(kept.Max, 0), wording.Decimal(limit.Max, 0)))
	}
	return floodResult{
		text:  wording.Clean(p.Label) + " (" + strings.Join(words, ", ") + ")" + p.InvalidRemark(),
		holds: p.AllValid() && lost.Max == 0 && ratio.N > 0 && ratio.Median <= floodTargetRatio && bounded,
	}
}

// floodFigures show latencies, and how many packets of the flood the balancer handled.
func floodFigures(s *model.Section, _ *chart.Palette) []chart.Figure {
	colours := model.NewPalette([]*model.Section{s})
	return []chart.Figure{floodLatencyChart(s, colours), {
		Title: "Packets of the flood that the balancer handled", Caption: "More is better, as far as one core lets it. " +
			model.WhiskerCaption, Chart: &chart.Chart{
			Axis: "packets/s", Kind: chart.Bars,
			Rows: model.EachPoint(s, model.MedianRow(s, colours, results.FloodHandledPerSecond)),
		},
	}}
}

func floodLatencyChart(s *model.Section, colours *chart.Palette) chart.Figure {
	c := &chart.Chart{Axis: "p99 of requests over open connections, ms", Kind: chart.Dots, Legend: []chart.LegendEntry{
		{Name: "quiet", Ink: chart.InkQuiet, Hollow: true}, {Name: "in the flood", Ink: chart.InkQuiet},
	}}
	c.Rows = model.EachPoint(s, model.DotsRow(colours, " → ", results.QuietLatencyMsP99, results.QuietLatencyMsP99,
		results.FloodLatencyMsP99))
	c.LogIfWide()
	return chart.Figure{Title: "What those who are connected wait",
		Caption: "Less is better, and the two dots of a row should not be far apart.", Chart: c}
}
