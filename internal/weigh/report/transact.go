// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// paramPinned says whether generators are tied to cores.
const paramPinned = "pinned"

// transacts says whether the load made transactions of a byte each way: TCP_CRR or
// TCP_RR.
func (s *section) transacts() bool {
	return slices.ContainsFunc(s.trials, func(t results.Trial) bool {
		return t.Params[paramPinned] != nil && t.Params[paramConcurrency] != nil
	})
}

// transactSheets are the tables of a load of transactions.
func transactSheets(s *section) []sheet {
	var sheets []sheet
	for _, sh := range []sheet{transactSheet(s), partSheet(s),
		restSheet(s, results.TransactionsPerSecond, results.ConnectionsPerSecond)} {
		if !sh.empty() && len(sh.Columns) > 1+len(placeFields(s)) {
			sheets = append(sheets, sh)
		}
	}
	return sheets
}

// tcpProxy is the proxy that transactions are held against.
const tcpProxy = "haproxy-tcp"

func transactSheet(s *section) sheet {
	metric, title, noun := s.rate()
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s, paramConcurrency)...)
	fields = append(fields,
		metricField(title, "", metric),
		ratioField("× "+s.Baseline, metric, s.Baseline, metric),
		ratioField("× "+tcpProxy, metric, tcpProxy, metric),
		spreadField("Spread of "+noun, metric),
		metricField("Min latency", "ms", results.LatencyMsMin),
		metricField("Mean", "ms", results.LatencyMsMean),
		metricField("p50", "ms", results.LatencyMsP50),
		metricField("p99", "ms", results.LatencyMsP99),
		metricField("Balancer CPU", "µs each", results.BalancerCPUUsPerRequest),
		metricField("Balancer's host CPU", "µs each", results.BalancerHostCPUUsPerRequest),
		fixed(metricField("Failed", "", results.Failed), 0),
		saturatedField(),
		repeatsField(),
	)
	sh := sheet{
		Title: "Transactions and latency",
		Lead:  "Medians over the valid repeats; spreads are the lowest and the highest repeat. The balancer's CPU time is that of one transaction, kernel work included.",
		Notes: baselineNotes(s, noun),
	}
	sh.fill(s, fields)
	return sh
}

// transactFigures are the charts of the document: what was reached, and the least
// and the mean latency.
func transactFigures(s *section, colours *chart.Palette) []chart.Figure {
	return []chart.Figure{rateChart(s, colours), delayChart(s, colours), costChart(s, colours)}
}

func delayChart(s *section, colours *chart.Palette) chart.Figure {
	c := &chart.Chart{Axis: "latency, ms", Kind: chart.StackedBars, Legend: []chart.LegendEntry{{Name: "least", Ink: chart.InkSky},
		{Name: "from there to the mean", Ink: chart.InkBaseline}}}
	if s.has(results.LatencyMsMean) {
		c.Rows = eachPoint(s, func(p *point) chart.Row {
			least, mean := p.Stats[results.LatencyMsMin].Median, p.Stats[results.LatencyMsMean].Median
			if !p.has(results.LatencyMsMin) || !p.has(results.LatencyMsMean) || mean < least {
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

// floor is a ratio that a subject of ours is to reach.
type floor struct {
	mode    lb.Mode
	against string
	metric  string
	least   float64
	// streams is from how many of them the target is meant, from where clients are that it is
	// meant for: empty is anywhere.
	streams float64
	from    string
}

// localOverDirect is what clients on the balancer's host are to have of what they have without one.
const localOverDirect = 0.97

// floors are the targets of transactions and bulk transfer.
var floors = []floor{
	{lb.NAT, "routed", results.ConnectionsPerSecond, 1, 1, ""},
	{lb.NAT, "routed", results.TransactionsPerSecond, 1, 1, ""},
	{lb.NAT, tcpProxy, results.ConnectionsPerSecond, 1.7, 1, ""},
	{lb.NAT, tcpProxy, results.TransactionsPerSecond, 1.7, 1, ""},
	{lb.L2DSR, baselineSubject, results.ConnectionsPerSecond, 0.9, 1, ""},
	{lb.NAT, "routed", results.GigabitsPerSecond, 0.97, 10, ""},
	{lb.NAT, baselineSubject, results.ConnectionsPerSecond, localOverDirect, 1, fromBalancer},
	{lb.NAT, baselineSubject, results.TransactionsPerSecond, localOverDirect, 1, fromBalancer},
}

// floorVerdict says which of the targets hold that the load can tell of.
func floorVerdict(s *section) []string {
	rate, _, _ := s.rate()
	var all []judged
	for _, f := range floors {
		if f.metric != rate {
			continue
		}
		for _, subject := range s.Subjects {
			if !strings.HasPrefix(subject, ownPrefix+string(f.mode)+"-") {
				continue
			}
			var over span
			for _, g := range s.Groups {
				if v, ok := g.Params[paramStreams]; (!ok || v.number >= f.streams) && g.is(f.from) {
					over.add(ratioOf(g.best(subject, rate), g.best(f.against, rate), rate))
				}
			}
			if over.n > 0 {
				all = append(all, judged{what: wording.Clean(subject), bound: wording.Times(f.least) + " " + f.against,
					figures: over,
					format:  wording.Times, holds: over.low >= f.least, least: true})
			}
		}
	}
	return judgement(all, "")
}

var transactReading = []paragraph{
	{"Transactions",
		"A transaction is a byte to a server and a byte back. With crr a connection is opened for it and closed by the server, as netperf's TCP_CRR does; with rr connections are kept, as in TCP_RR. The latency is that of all of it, closing included."},
	{"One connection",
		"A single connection is a chain in which each part waits for the one before it, so its rate is one divided by its latency. Everything is tied to one core then: elsewhere, what it costs to wake another core is most of such a figure."},
	{"Many connections",
		"With many the cores are full, and a balancer that needs less of them leaves more to clients and servers. On separate machines the ratios would differ; the balancer's CPU time carries over best."},
}
