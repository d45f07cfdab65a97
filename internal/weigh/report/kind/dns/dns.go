// SPDX-License-Identifier: Apache-2.0

// Package dns reports name servers that are asked by few sockets or many.
package dns

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// relaySubjects are user-space relays for UDP: the document's relay, and the one to use where that was not measured.
var relaySubjects = []string{"docker-proxy", "nginx-stream"}

// Targets of the DNS experiment.
const (
	dnsOverRules = 1.0
	dnsOverRelay = 2.0
	// dnsEven is by how many per cent the queries of the busiest backend may exceed those of the idlest, where the
	// sockets can be distributed evenly.
	dnsEven = 2
	// dnsBounded is the share of the generators' configured rate from which that rate is the limit, and not the
	// balancer.
	dnsBounded = 0.98
)

// Kind registers queries to name servers.
var Kind = model.Registration{
	Titles: map[string]string{
		"dnsperf": "DNS queries (dnsperf)",
		"dns":     "DNS queries (dnsperf)",
		"first":   "DNS queries of the document's first experiment",
		"second":  "DNS queries of the document's second experiment",
		"even":    "DNS queries from sockets dealt out evenly",
		"full":    "DNS queries from two generators",
	},
	Name: "DNS queries",
	Of: func(s *model.Section) *model.Kind {
		if !s.HasParam(model.ParamQuestion) {
			return nil
		}
		return &model.Kind{Question: "how many queries a second are answered by one and by more name servers, and what does that cost the machine",
			Sheets: dnsSheets, Verdict: dnsVerdict, Figures: dnsFigures, Reading: dnsReading,
			Yardstick: model.ByRate, BestOfPoint: true}
	},
}

var dnsReading = []model.Paragraph{
	{Head: "Generator, balancer and servers on one machine",
		Text: "As in the document. Where the machine is full, one name server more adds nothing, and a balancer that needs less of it leaves more to them: that is what differs here. " +
			"On machines of their own the balancers' CPU time per query carries over best."},
	{Head: "Sockets", Text: "Balancers keep a flow's backend, and a flow of UDP is a socket of a client. With as few sockets as the document's, backends can only be used evenly where their number divides the sockets; with three sockets the fourth name server idles. Several generators, and the threads of one, ask from sockets of their own, each as fast as it gets to run, so backends are not asked alike then."},
	{Head: "Server and relay CPU",
		Text: "A name server's process in per cent of one core, the mean of those that were asked, and a relay's where there is one for each server; with the packet work that ran on top of it. The machine's user, system, softirq and idle are shares of all its cores."},
	{Head: "Lost", Text: "Queries without an answer in time. dnsperf waits for each of them, so a trial in which more than 1 % were lost is not valid."},
}

// dnsSheets are the tables of the experiment, in the document's order: queries by the number of name servers, and the
// machine's CPU use during the queries.
func dnsSheets(s *model.Section) []model.Sheet {
	return append(dnsByBackends(s).List(),
		s.Shown(dnsMachine(s), dnsWaits(s), model.PartSheet(s), model.RestSheet(s, dnsShown...))...)
}

// dnsLine is one balancer under one load, over the numbers of backends.
type dnsLine struct {
	label, subject string
	// at holds its points by the number of backends.
	at map[float64]*model.Point
}

// dnsSeries holds lines that can be compared: all parameters of the load but the number of backends are the same.
type dnsSeries struct {
	// text names the parameters that the lines have in common, if those vary.
	text  string
	lines []*dnsLine
}

// dnsLines sorts the points into series, and lists the numbers of backends.
func dnsLines(s *model.Section) (all []*dnsSeries, backends []model.Value) {
	of := map[string]*dnsSeries{}
	others := slices.DeleteFunc(slices.Clone(s.Varying), func(name string) bool { return name == model.ParamBackends })
	for _, g := range s.Groups {
		common := g.Params.Only(others)
		series := of[common.Key()]
		if series == nil {
			series = &dnsSeries{text: common.Text()}
			of[common.Key()] = series
			all = append(all, series)
		}
		n := g.Params[model.ParamBackends]
		for _, p := range g.Points {
			if !p.Has(results.QueriesPerSecond) {
				continue
			}
			series.line(p).at[n.Number] = p
			if !slices.Contains(backends, n) {
				backends = append(backends, n)
			}
		}
	}
	for _, series := range all {
		slices.SortStableFunc(series.lines, func(a, b *dnsLine) int {
			return slices.Index(s.Subjects, a.subject) - slices.Index(s.Subjects, b.subject)
		})
	}
	slices.SortFunc(backends, model.Value.Compare)
	return slices.DeleteFunc(all, func(of *dnsSeries) bool { return len(of.lines) == 0 }), backends
}

// line returns the line of a point, and creates it if there is none.
func (d *dnsSeries) line(p *model.Point) *dnsLine {
	i := slices.IndexFunc(d.lines, func(l *dnsLine) bool { return l.label == p.Label })
	if i < 0 {
		i = len(d.lines)
		d.lines = append(d.lines, &dnsLine{label: p.Label, subject: p.Subject, at: map[float64]*model.Point{}})
	}
	return d.lines[i]
}

// dnsByBackends has a column for each number of name servers.
func dnsByBackends(s *model.Section) model.Sheet {
	all, backends := dnsLines(s)
	sh := model.Sheet{
		Title: "Queries a second by number of name servers",
		Lead:  "Medians over the valid repeats; in brackets × " + wording.Clean(s.Baseline) + " with as many.",
	}
	sh.Columns = []model.Column{{Title: "Subject"}}
	for _, n := range backends {
		sh.Columns = append(sh.Columns, model.Column{Title: model.Describe(model.ParamBackends, n), Numeric: true})
	}
	for _, series := range all {
		var rows []model.Line
		for _, l := range series.lines {
			label := wording.Clean(l.label)
			if series.text != "" {
				label += ", " + series.text
			}
			row := model.Line{Cells: []string{label}, Baseline: l.subject == s.Baseline}
			for _, n := range backends {
				row.Cells = append(row.Cells, series.cell(l.at[n.Number], s.Baseline, n.Number))
			}
			rows = append(rows, row)
		}
		sh.Groups = append(sh.Groups, rows)
	}
	return sh
}

// cell shows a point's queries a second, and their ratio to the baseline's.
func (d *dnsSeries) cell(p *model.Point, baseline string, backends float64) string {
	if p == nil {
		return wording.Missing
	}
	text := wording.Decimal(p.Stats[results.QueriesPerSecond].Median, 0)
	if r, ok := model.RatioOf(p, d.of(baseline, backends), results.QueriesPerSecond); ok && p.Subject != baseline {
		text += " (" + wording.RatioText(r) + ")"
	}
	return text
}

// of returns a subject's best point with a number of backends; nil if there is none.
func (d *dnsSeries) of(subject string, backends float64) *model.Point {
	var best *model.Point
	for _, l := range d.lines {
		p := l.at[backends]
		if l.subject == subject && p != nil && (best == nil ||
			p.Stats[results.QueriesPerSecond].Median > best.Stats[results.QueriesPerSecond].Median) {
			best = p
		}
	}
	return best
}

// dnsMachine returns the table that the document has beside its queries.
func dnsMachine(s *model.Section) model.Sheet {
	rate := results.QueriesPerSecond
	return model.Sheet{
		Title: "What the machine did",
		Lead:  "Medians over the valid repeats. The balancer's CPU time includes its kernel work; user, system, softirq and idle are of the whole machine.",
	}.Of(s, s.Rows(model.ParamConcurrency, model.ParamBackends), []model.Field{
		model.Fixed(model.MetricField("Queries/s", "", rate), 0),
		model.RatioField("× "+model.IptablesSubject, rate, model.IptablesSubject, rate),
		model.Fixed(model.MetricField("Server CPU", "%", results.NameServerCPUPercent), 0),
		model.Fixed(model.MetricField("Relay CPU", "%", results.RelayCPUPercent), 0),
		model.Fixed(model.MetricField("Balancer CPU", "µs/query", results.BalancerCPUUsPerRequest), 2),
		model.Fixed(model.MetricField("Balancer's host CPU", "µs/query", results.BalancerHostCPUUsPerRequest), 2),
		model.Fixed(model.MetricField("Context switches", "/s", results.ContextSwitchesPerS), 0),
		model.Fixed(model.MetricField("User", "%", results.HostUserPercent), 0),
		model.Fixed(model.MetricField("System", "%", results.HostSystemPercent), 0),
		model.Fixed(model.MetricField("Softirq", "%", results.HostSoftirqPercent), 0),
		model.Fixed(model.MetricField("Idle", "%", results.HostIdlePercent), 0),
		model.SaturatedField(),
		model.RepeatsField(),
	})
}

// dnsWaits shows latency, spread and evenness.
func dnsWaits(s *model.Section) model.Sheet {
	return model.Sheet{
		Title:     "Latency, spread and evenness",
		Lead:      "Latency as dnsperf clocked it; it tells no percentiles. Spreads are the lowest and the highest repeat.",
		Notes:     []string{"Busiest over idlest: how many more queries the busiest name server had than the idlest."},
		Secondary: true,
	}.Of(s, s.Rows(model.ParamConcurrency, model.ParamBackends), []model.Field{
		model.MetricField("Min", "ms", results.LatencyMsMin),
		model.MetricField("Mean", "ms", results.LatencyMsMean),
		model.MetricField("Max", "ms", results.LatencyMsMax),
		model.Fixed(model.MetricField("Lost", "", results.Lost), 0),
		model.SpreadField("Spread of queries/s", results.QueriesPerSecond),
		model.Field{Column: model.Column{Title: "Busiest over idlest", Numeric: true}, Cell: model.EvennessCell},
	})
}

// dnsShown are the metrics of these tables.
var dnsShown = []string{
	results.QueriesPerSecond, results.Queries, results.Lost, results.NameServerCPUPercent, results.RelayCPUPercent,
	results.ContextSwitchesPerS,
	results.HostUserPercent, results.HostSystemPercent, results.HostSoftirqPercent, results.HostIdlePercent,
}

// dnsVerdict compares our subjects with the document's rules and with a relay.
func dnsVerdict(s *model.Section) []string {
	var all []model.TargetResult
	var own []string
	relay := relaySubjects[0]
	if !s.Measured(relay) {
		relay = relaySubjects[1]
	}
	for _, subject := range s.Subjects {
		if !s.Measured(subject) || !strings.HasPrefix(subject, model.OwnPrefix) {
			continue
		}
		if mode := strings.Split(strings.TrimPrefix(subject, model.OwnPrefix), "-")[0]; mode == string(lb.NAT) ||
			mode == string(lb.L2DSR) {
			all = append(all, dnsOver(s, subject, model.IptablesSubject, dnsOverRules)...)
			all = append(all, dnsOver(s, subject, relay, dnsOverRelay)...)
			if local(s) {
				all = append(all, dnsOver(s, subject, model.BaselineSubject, model.LocalOverDirect)...)
			}
		}
		own = append(own, subject)
	}
	all = append(all, dnsEvenness(s, own)...)
	var sentences []string
	for _, sentence := range slices.Concat(model.TargetSentences(all, ""), dnsLeftOut(s, own),
		[]string{model.SaturationVerdict(s)}) {
		if sentence != "" {
			sentences = append(sentences, s.Title()+": "+sentence)
		}
	}
	return sentences
}

// local reports whether the section's load generators were on the balancer's host.
func local(s *model.Section) bool {
	return slices.ContainsFunc(s.Groups, func(g *model.Group) bool { return g.Is(model.FromBalancer) })
}

// dnsBoundedAt reports whether a subject answered the whole rate that the generators were configured to send.
func dnsBoundedAt(g *model.Group, subject string) bool {
	p, most := g.Best(subject, results.QueriesPerSecond), g.Params[model.ParamMostQueries].Number
	return p != nil && most > 0 &&
		p.Stats[results.QueriesPerSecond].Median >= dnsBounded*most*g.Params[model.ParamGenerators].Number
}

// dnsIdleAt reports whether nothing was saturated in at least half of a subject's trials: then the generators sent no
// more.
func dnsIdleAt(g *model.Group, subject string) bool {
	p := g.Best(subject, results.QueriesPerSecond)
	if p == nil {
		return false
	}
	idle := 0
	for _, part := range p.Limits {
		idle += model.OneIf(part == string(results.SaturatedNone))
	}
	return idle > 0 && 2*idle >= len(p.Limits)
}

// dnsLeftOut counts the points of the subjects that were left out for either reason.
func dnsLeftOut(s *model.Section, subjects []string) (sentences []string) {
	points, bounded, idle := 0, 0, 0
	for _, subject := range subjects {
		for _, g := range s.Groups {
			if g.Best(subject, results.QueriesPerSecond) == nil {
				continue
			}
			points++
			switch {
			case dnsBoundedAt(g, subject):
				bounded++
			case dnsIdleAt(g, subject):
				idle++
			}
		}
	}
	if bounded > 0 {
		sentences = append(sentences,
			fmt.Sprintf("%d of %d points of ours reached the rate that dnsperf was told (-Q), which is nobody's limit; targets are judged by the others.", bounded, points))
	}
	if idle > 0 {
		sentences = append(sentences,
			fmt.Sprintf("At %d of %d points of ours the machine was not full: dnsperf asked no more; targets are judged by the others.", idle, points))
	}
	return sentences
}

// dnsOver compares a subject's queries a second with another subject's, at every point where the load limited neither
// of them.
func dnsOver(s *model.Section, subject, against string, least float64) []model.TargetResult {
	var over model.Span
	for _, g := range s.Groups {
		if dnsBoundedAt(g, subject) || dnsIdleAt(g, subject) || dnsIdleAt(g, against) {
			continue
		}
		over.Add(model.RatioOf(g.Best(subject, results.QueriesPerSecond), g.Best(against, results.QueriesPerSecond),
			results.QueriesPerSecond))
	}
	if over.N == 0 {
		return nil
	}
	return []model.TargetResult{{What: wording.Clean(subject), Bound: wording.Times(least) + " " + against, Figures: over,
		Format: wording.Times,
		Holds:  over.Low >= least, Least: true}}
}

// dnsEvenness judges round robin where the sockets can be distributed evenly and send at the same rate: the sockets of
// several generators, or of several threads of one generator, do not. Subjects that are even are judged together.
func dnsEvenness(s *model.Section, subjects []string) []model.TargetResult {
	if s.HasParam(model.ParamGeneratorThreads) {
		return nil
	}
	percent := func(v float64) string { return wording.Decimal(v, 2) + " %" }
	even := model.TargetResult{What: "round robin, the busiest name server over the idlest,", Bound: fmt.Sprintf("%d %%", dnsEven),
		Format: percent, Holds: true}
	var all []model.TargetResult
	for _, subject := range subjects {
		uneven := dnsUneven(s, subject)
		switch {
		case uneven.N == 0:
		case uneven.High <= dnsEven:
			even.Figures.Add(uneven.Low, true)
			even.Figures.Add(uneven.High, true)
		default:
			of := even
			of.What, of.Figures, of.Holds = wording.Clean(subject)+" with "+even.What, uneven, false
			all = append(all, of)
		}
	}
	if even.Figures.N > 0 {
		all = append(all, even)
	}
	return all
}

// dnsUneven returns by how many per cent the queries of the busiest name server exceed those of the idlest.
func dnsUneven(s *model.Section, subject string) (uneven model.Span) {
	for _, g := range s.Groups {
		sockets, backends := g.Params[model.ParamConcurrency].Number, g.Params[model.ParamBackends].Number
		for _, p := range g.Points {
			if p.Subject != subject || !model.RoundRobin(p) || backends < 2 || int(sockets)%int(backends) != 0 ||
				g.Params[model.ParamGenerators].Number != 1 {
				continue
			}
			if p.Idle > 0 {
				uneven.Add(100, true) // all that it could have had
			} else if p.Evenness.N > 0 {
				uneven.Add(p.Evenness.Max, true)
			}
		}
	}
	return uneven
}

// dnsFigures draws queries over the number of backends, and their costs.
func dnsFigures(s *model.Section, _ *chart.Palette) []chart.Figure {
	colours := model.NewPalette([]*model.Section{s})
	all, _ := dnsLines(s)
	var figures []chart.Figure
	for _, series := range all {
		figures = append(figures, series.chart(colours))
	}
	cost := &chart.Chart{Axis: "µs of balancer CPU per query", Kind: chart.Bars}
	if s.Has(results.BalancerCPUUsPerRequest) {
		cost.Rows = model.EachPoint(s, model.MedianRow(s, colours, results.BalancerCPUUsPerRequest))
	}
	return append(figures,
		chart.Figure{Title: "The balancer's own CPU time", Caption: "Less is better; kernel work included. " + model.WhiskerCaption, Chart: cost},
		chart.Figure{Title: "Context switches",
			Caption: "Of the whole machine, a second. What is forwarded in the kernel wakes nobody on its way. " +
				model.WhiskerCaption,
			Chart: &chart.Chart{Axis: "context switches/s", Kind: chart.Bars,
				Rows: model.EachPoint(s, model.MedianRow(s, colours, results.ContextSwitchesPerS))}})
}

// chart draws a line for each balancer over the number of name servers.
func (d *dnsSeries) chart(colours *chart.Palette) chart.Figure {
	c := &chart.Chart{Kind: chart.Lines, Axis: "name servers", YAxis: "queries/s"}
	for _, l := range d.lines {
		drawn := chart.Series{Name: wording.Clean(l.label), Ink: colours.Ink(l.subject)}
		for backends, p := range l.at {
			drawn.Points = append(drawn.Points, chart.XY{X: backends, Y: p.Stats[results.QueriesPerSecond].Median})
		}
		slices.SortFunc(drawn.Points, func(a, b chart.XY) int { return int(a.X - b.X) })
		c.Lines = append(c.Lines, drawn)
	}
	c.Lines = chart.WithDashes(c.Lines)
	title := "Queries a second by number of name servers"
	if d.text != "" {
		title += ": " + d.text
	}
	return chart.Figure{Title: title, Caption: "More is better. Medians over the repeats.", Chart: c}
}
