// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Parameters of the DNS experiment.
const (
	// paramQuestion is what name servers are asked for.
	paramQuestion         = "question"
	paramGeneratorThreads = "generator_threads"
	// paramGenerators is how many ask at once, and paramMostQueries the most that each
	// asks a second.
	paramGenerators  = "clients"
	paramMostQueries = "queries_per_second_most"
)

// relaySubjects are user-space relays for UDP: the document's, and where that was
// not measured the next.
var relaySubjects = []string{"docker-proxy", "nginx-stream"}

// Targets of the DNS experiment.
const (
	dnsOverRules = 1.0
	dnsOverRelay = 2.0
	// dnsEven is how many per cent more queries the busiest backend may have than
	// the idlest, where the sockets can be dealt out evenly.
	dnsEven = 2
	// dnsBounded is the share of the rate that generators were told from which that is
	// the limit, and no balancer.
	dnsBounded = 0.98
)

// isDNS says whether the load asked name servers.
func (s *section) isDNS() bool { return s.hasParam(paramQuestion) }

func init() {
	register(rankDNS, func(s *section) *loadKind {
		if s.isDNS() {
			return dnsKind()
		}
		return nil
	})
}

// dnsKind is how the DNS experiment is reported.
func dnsKind() *loadKind {
	return &loadKind{question: "how many queries a second are answered by one and by more name servers, and what does that cost the machine",
		sheets: dnsSheets, verdict: dnsVerdict, figures: dnsFigures, reading: dnsReading}
}

var dnsReading = []paragraph{
	{"Generator, balancer and servers on one machine",
		"As in the document. Where the machine is full, one name server more adds nothing, and a balancer that needs less of it leaves more to them: that is what differs here. " +
			"On machines of their own the balancers' CPU time per query carries over best."},
	{"Sockets", "Balancers keep a flow's backend, and a flow of UDP is a socket of a client. With as few sockets as the document's, backends can only be used evenly where their number divides the sockets; with three sockets the fourth name server idles. Several generators, and the threads of one, ask from sockets of their own, each as fast as it gets to run, so backends are not asked alike then."},
	{"Server and relay CPU",
		"A name server's process in per cent of one core, the mean of those that were asked, and a relay's where there is one for each server; with the packet work that ran on top of it. The machine's user, system, softirq and idle are shares of all its cores."},
	{"Lost", "Queries without an answer in time. dnsperf waits for each of them, so a trial in which more than 1 % were lost is not valid."},
}

// dnsSheets are the tables of the experiment, in the document's order: queries by
// the number of name servers, and what the machine did meanwhile.
func dnsSheets(s *section) []sheet {
	var sheets []sheet
	if sh := dnsByBackends(s); !sh.empty() {
		sheets = append(sheets, sh)
	}
	for _, sh := range []sheet{dnsMachine(s), dnsWaits(s), partSheet(s), restSheet(s, dnsShown...)} {
		if !sh.empty() && len(sh.Columns) > 1+len(placeFields(s)) {
			sheets = append(sheets, sh)
		}
	}
	return sheets
}

// dnsLine is one balancer under one load, over the numbers of backends.
type dnsLine struct {
	label, subject string
	// at holds its points by the number of backends.
	at map[float64]*point
}

// dnsSeries are lines that can be compared: all parameters of the load are the
// same, but for the number of backends.
type dnsSeries struct {
	// text says what they have in common, if that varies.
	text  string
	lines []*dnsLine
}

// dnsSeries sorts the points into series, and lists the numbers of backends.
func (s *section) dnsSeries() (all []*dnsSeries, backends []value) {
	of := map[string]*dnsSeries{}
	others := slices.DeleteFunc(slices.Clone(s.Varying), func(name string) bool { return name == paramBackends })
	for _, g := range s.Groups {
		common := g.Params.only(others)
		series := of[common.key()]
		if series == nil {
			series = &dnsSeries{text: common.text()}
			of[common.key()] = series
			all = append(all, series)
		}
		n := g.Params[paramBackends]
		for _, p := range g.Points {
			if !p.has(results.QueriesPerSecond) {
				continue
			}
			series.line(p).at[n.number] = p
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
	slices.SortFunc(backends, value.compare)
	return slices.DeleteFunc(all, func(of *dnsSeries) bool { return len(of.lines) == 0 }), backends
}

// line returns the line of a point, which it makes if there is none.
func (d *dnsSeries) line(p *point) *dnsLine {
	i := slices.IndexFunc(d.lines, func(l *dnsLine) bool { return l.label == p.Label })
	if i < 0 {
		i = len(d.lines)
		d.lines = append(d.lines, &dnsLine{label: p.Label, subject: p.Subject, at: map[float64]*point{}})
	}
	return d.lines[i]
}

// dnsByBackends has a column for each number of name servers.
func dnsByBackends(s *section) sheet {
	all, backends := s.dnsSeries()
	sh := sheet{
		Title: "Queries a second by number of name servers",
		Lead:  "Medians over the valid repeats; in brackets × " + wording.Clean(s.Baseline) + " with as many.",
	}
	sh.Columns = []column{{Title: "Subject"}}
	for _, n := range backends {
		sh.Columns = append(sh.Columns, column{Title: describe(paramBackends, n), Numeric: true})
	}
	for _, series := range all {
		var rows []line
		for _, l := range series.lines {
			label := wording.Clean(l.label)
			if series.text != "" {
				label += ", " + series.text
			}
			row := line{Cells: []string{label}, Baseline: l.subject == s.Baseline}
			for _, n := range backends {
				row.Cells = append(row.Cells, series.cell(l.at[n.number], s.Baseline, n.number))
			}
			rows = append(rows, row)
		}
		sh.Groups = append(sh.Groups, rows)
	}
	return sh
}

// cell shows a point's queries a second, and what that is to the baseline's.
func (d *dnsSeries) cell(p *point, baseline string, backends float64) string {
	if p == nil {
		return wording.Missing
	}
	text := wording.Decimal(p.Stats[results.QueriesPerSecond].Median, 0)
	if r, ok := ratioOf(p, d.of(baseline, backends), results.QueriesPerSecond); ok && p.Subject != baseline {
		text += " (" + wording.RatioText(r) + ")"
	}
	return text
}

// of returns a subject's point with a number of backends, its best; nil if there is
// none.
func (d *dnsSeries) of(subject string, backends float64) *point {
	var best *point
	for _, l := range d.lines {
		p := l.at[backends]
		if l.subject == subject && p != nil && (best == nil ||
			p.Stats[results.QueriesPerSecond].Median > best.Stats[results.QueriesPerSecond].Median) {
			best = p
		}
	}
	return best
}

// dnsMachine is what the document gives beside its queries.
func dnsMachine(s *section) sheet {
	rate := results.QueriesPerSecond
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s, paramConcurrency, paramBackends)...)
	fields = append(fields,
		fixed(metricField("Queries/s", "", rate), 0),
		ratioField("× "+iptablesSubject, rate, iptablesSubject, rate),
		fixed(metricField("Server CPU", "%", results.NameServerCPUPercent), 0),
		fixed(metricField("Relay CPU", "%", results.RelayCPUPercent), 0),
		fixed(metricField("Balancer CPU", "µs/query", results.BalancerCPUUsPerRequest), 2),
		fixed(metricField("Balancer's host CPU", "µs/query", results.BalancerHostCPUUsPerRequest), 2),
		fixed(metricField("Context switches", "/s", results.ContextSwitchesPerS), 0),
		fixed(metricField("User", "%", results.HostUserPercent), 0),
		fixed(metricField("System", "%", results.HostSystemPercent), 0),
		fixed(metricField("Softirq", "%", results.HostSoftirqPercent), 0),
		fixed(metricField("Idle", "%", results.HostIdlePercent), 0),
		saturatedField(),
		repeatsField(),
	)
	sh := sheet{
		Title: "What the machine did",
		Lead:  "Medians over the valid repeats. The balancer's CPU time includes its kernel work; user, system, softirq and idle are of the whole machine.",
	}
	sh.fill(s, fields)
	return sh
}

// dnsWaits shows latency, spread and evenness.
func dnsWaits(s *section) sheet {
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s, paramConcurrency, paramBackends)...)
	fields = append(fields,
		metricField("Min", "ms", results.LatencyMsMin),
		metricField("Mean", "ms", results.LatencyMsMean),
		metricField("Max", "ms", results.LatencyMsMax),
		fixed(metricField("Lost", "", results.Lost), 0),
		spreadField("Spread of queries/s", results.QueriesPerSecond),
		field{column: column{Title: "Busiest over idlest", Numeric: true}, cell: evennessCell},
	)
	sh := sheet{
		Title: "Latency, spread and evenness",
		Lead:  "Latency as dnsperf clocked it; it tells no percentiles. Spreads are the lowest and the highest repeat.",
		Notes: []string{"Busiest over idlest: how many more queries the busiest name server had than the idlest."},
		Aside: true,
	}
	sh.fill(s, fields)
	return sh
}

// dnsShown are the metrics of these tables.
var dnsShown = []string{
	results.QueriesPerSecond, results.Queries, results.Lost, results.NameServerCPUPercent, results.RelayCPUPercent,
	results.ContextSwitchesPerS,
	results.HostUserPercent, results.HostSystemPercent, results.HostSoftirqPercent, results.HostIdlePercent,
}

// dnsVerdict holds ours against the document's rules and against a relay.
func dnsVerdict(s *section) []string {
	var all []judged
	var own []string
	relay := relaySubjects[0]
	if !s.measured(relay) {
		relay = relaySubjects[1]
	}
	for _, subject := range s.Subjects {
		if !s.measured(subject) || !strings.HasPrefix(subject, ownPrefix) {
			continue
		}
		if mode := strings.Split(strings.TrimPrefix(subject, ownPrefix), "-")[0]; mode == string(lb.NAT) ||
			mode == string(lb.L2DSR) {
			all = append(all, s.dnsOver(subject, iptablesSubject, dnsOverRules)...)
			all = append(all, s.dnsOver(subject, relay, dnsOverRelay)...)
			if s.local() {
				all = append(all, s.dnsOver(subject, baselineSubject, localOverDirect)...)
			}
		}
		own = append(own, subject)
	}
	all = append(all, s.dnsEvenness(own)...)
	var sentences []string
	for _, sentence := range slices.Concat(judgement(all, ""), s.dnsLeftOut(own), []string{saturationVerdict(s)}) {
		if sentence != "" {
			sentences = append(sentences, s.title()+": "+sentence)
		}
	}
	return sentences
}

// local says whether the section's load generators were on the balancer's host.
func (s *section) local() bool {
	return slices.ContainsFunc(s.Groups, func(g *group) bool { return g.is(fromBalancer) })
}

// dnsBoundedAt says whether generators were told to ask no more than a subject answered.
func (g *group) dnsBoundedAt(subject string) bool {
	p, most := g.best(subject, results.QueriesPerSecond), g.Params[paramMostQueries].number
	return p != nil && most > 0 &&
		p.Stats[results.QueriesPerSecond].Median >= dnsBounded*most*g.Params[paramGenerators].number
}

// dnsIdleAt says whether in half of a subject's trials or more nothing was full: then
// it was the generators that asked no more.
func (g *group) dnsIdleAt(subject string) bool {
	p := g.best(subject, results.QueriesPerSecond)
	if p == nil {
		return false
	}
	idle := 0
	for _, part := range p.saturated {
		idle += b2i(part == string(results.SaturatedNone))
	}
	return idle > 0 && 2*idle >= len(p.saturated)
}

// dnsLeftOut says how often either was so for one of the subjects.
func (s *section) dnsLeftOut(subjects []string) (sentences []string) {
	points, bounded, idle := 0, 0, 0
	for _, subject := range subjects {
		for _, g := range s.Groups {
			if g.best(subject, results.QueriesPerSecond) == nil {
				continue
			}
			points++
			switch {
			case g.dnsBoundedAt(subject):
				bounded++
			case g.dnsIdleAt(subject):
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

// dnsOver holds a subject's queries a second against another's at every point where
// the load bounded neither of them.
func (s *section) dnsOver(subject, against string, least float64) []judged {
	var over span
	for _, g := range s.Groups {
		if g.dnsBoundedAt(subject) || g.dnsIdleAt(subject) || g.dnsIdleAt(against) {
			continue
		}
		over.add(ratioOf(g.best(subject, results.QueriesPerSecond), g.best(against, results.QueriesPerSecond),
			results.QueriesPerSecond))
	}
	if over.n == 0 {
		return nil
	}
	return []judged{{what: wording.Clean(subject), bound: wording.Times(least) + " " + against, figures: over,
		format: wording.Times,
		holds:  over.low >= least, least: true}}
}

// dnsEvenness judges round robin where the sockets can be dealt out evenly, and ask
// alike: those of several generators, or of one's several threads, do not. Those subjects
// that are even are judged together.
func (s *section) dnsEvenness(subjects []string) []judged {
	if s.hasParam(paramGeneratorThreads) {
		return nil
	}
	percent := func(v float64) string { return wording.Decimal(v, 2) + " %" }
	even := judged{what: "round robin, the busiest name server over the idlest,", bound: fmt.Sprintf("%d %%", dnsEven),
		format: percent, holds: true}
	var all []judged
	for _, subject := range subjects {
		uneven := s.dnsUneven(subject)
		switch {
		case uneven.n == 0:
		case uneven.high <= dnsEven:
			even.figures.add(uneven.low, true)
			even.figures.add(uneven.high, true)
		default:
			of := even
			of.what, of.figures, of.holds = wording.Clean(subject)+" with "+even.what, uneven, false
			all = append(all, of)
		}
	}
	if even.figures.n > 0 {
		all = append(all, even)
	}
	return all
}

// dnsUneven is by how many per cent more queries the busiest name server got than the
// idlest.
func (s *section) dnsUneven(subject string) (uneven span) {
	for _, g := range s.Groups {
		sockets, backends := g.Params[paramConcurrency].number, g.Params[paramBackends].number
		for _, p := range g.Points {
			if p.Subject != subject || !roundRobin(p) || backends < 2 || int(sockets)%int(backends) != 0 ||
				g.Params[paramGenerators].number != 1 {
				continue
			}
			if p.Idle > 0 {
				uneven.add(100, true) // all that it could have had
			} else if p.Evenness.N > 0 {
				uneven.add(p.Evenness.Max, true)
			}
		}
	}
	return uneven
}

// dnsFigures are queries over backends, and what they cost.
func dnsFigures(s *section) []chart.Figure {
	colours := newPalette([]*section{s})
	all, _ := s.dnsSeries()
	var figures []chart.Figure
	for _, series := range all {
		figures = append(figures, series.chart(colours))
	}
	cost := &chart.Chart{Axis: "µs of balancer CPU per query", Kind: chart.Bars}
	if s.has(results.BalancerCPUUsPerRequest) {
		cost.Rows = eachPoint(s, medianRow(s, colours, results.BalancerCPUUsPerRequest))
	}
	return append(figures,
		chart.Figure{Title: "The balancer's own CPU time", Caption: "Less is better; kernel work included. " + whiskerCaption, Chart: cost},
		chart.Figure{Title: "Context switches",
			Caption: "Of the whole machine, a second. What is forwarded in the kernel wakes nobody on its way. " +
				whiskerCaption,
			Chart: &chart.Chart{Axis: "context switches/s", Kind: chart.Bars,
				Rows: eachPoint(s, medianRow(s, colours, results.ContextSwitchesPerS))}})
}

// chart draws a line a balancer over the numbers of backends.
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
