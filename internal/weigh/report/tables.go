// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// rateMetrics are the metrics that can be a load's main figure, with its
// column's title. The first that was measured is the one.
var rateMetrics = []struct{ Name, Title, Noun string }{
	{results.RequestsPerSecond, "Requests/s", "requests/s"},
	{results.ConnectionsPerSecond, "Connections/s", "connections/s"},
	{results.TransactionsPerSecond, "Transactions/s", "transactions/s"},
	{results.QueriesPerSecond, "Queries/s", "queries/s"},
	{results.PacketsPerSecond, "Packets/s", "packets/s"},
	{results.GigabitsPerSecond, "Gbit/s", "Gbit/s"},
}

// rate returns the load's main figure: metric, title and noun.
func (s *section) rate() (metric, title, noun string) {
	for _, m := range rateMetrics {
		if s.has(m.Name) {
			return m.Name, m.Title, m.Noun
		}
	}
	m := rateMetrics[0]
	return m.Name, m.Title, m.Noun
}

// shownMetrics are those that the tables of a load have columns for; any
// other is shown in the table of what else was counted.
var shownMetrics = []string{
	results.RequestsPerSecond, results.OfferedPerSecond, results.Requests, results.Failed,
	results.GigabitsPerSecond, results.Retransmits, results.BalancerCPUMsPerGigabyte,
	results.LatencyMsMin, results.LatencyMsMean, results.LatencyMsP50, results.LatencyMsP90,
	results.LatencyMsP99, results.LatencyMsMax,
	results.BalancerCPUUsPerRequest, results.ClientCPUUsPerRequest,
	results.BackendCPUUsPerRequest, results.SwitchCPUUsPerRequest,
	results.BalancerCPUCores, results.ClientCPUCores, results.BackendCPUCores,
	results.SwitchCPUCores, results.IdleCPUCores, results.BalancerHostCPUCores, results.BalancerHostCPUUsPerRequest,
	results.NsPerPacket, results.NsNetOfEmpty, results.RatioToEmpty,
}

// loadSheets are the tables of a load with clients and servers.
func loadSheets(s *section) []sheet {
	var sheets []sheet
	for _, sh := range []sheet{rateSheet(s), waitSheet(s), partSheet(s), restSheet(s)} {
		if !sh.empty() && len(sh.Columns) > 1+len(placeFields(s)) {
			sheets = append(sheets, sh)
		}
	}
	return sheets
}

// subjectField is the first column of every table.
func subjectField(s *section) field {
	return field{
		column: column{Title: "Subject"},
		cell:   func(_ *group, p *point, _ int) string { return p.marked(wording.Clean(s.label(p, false))) },
	}
}

// marked tells a baseline that stands in a table without a valid trial.
func (p *point) marked(label string) string {
	if p.Valid == 0 {
		return label + " (not measured)"
	}
	return label
}

// placeFields tell a row's parameters: threads, and the load's that vary. The
// parameters in always are there even if they do not.
func placeFields(s *section, always ...string) []field {
	names := slices.Clone(s.Varying)
	for _, always := range always {
		if _, ok := s.Constant[always]; ok {
			names = append(names, always)
		}
	}
	slices.SortFunc(names, compareNames)
	if slices.Contains(s.Own, paramThreads) {
		names = append([]string{paramThreads}, names...)
	}
	var fields []field
	for _, name := range names {
		fields = append(fields, paramField(s, name))
	}
	return fields
}

func paramField(s *section, name string) field {
	info, _ := lookup(name)
	return field{
		column: column{Title: info.Title, Numeric: allNumeric(distinct(s.trials, name))},
		cell: func(_ *group, p *point, _ int) string {
			v, ok := p.Params[name]
			if !ok {
				return wording.Missing
			}
			return v.text(name)
		},
	}
}

// allNumeric ignores the empty value, which stands for a trial without one.
func allNumeric(vs []value) bool {
	return !slices.ContainsFunc(vs, func(v value) bool { return !v.numeric && v.word != "" })
}

// metricField shows a metric's median.
func metricField(title, unit, metric string) field {
	return field{
		column: column{Title: title, Unit: unit, Numeric: true},
		cell: func(_ *group, p *point, d int) string {
			if !p.has(metric) {
				return wording.Missing
			}
			return wording.Decimal(p.Stats[metric].Median, d)
		},
		figure: func(p *point) (float64, bool) { return p.Stats[metric].Median, p.has(metric) },
	}
}

// latencyField shows a percentile with the decimals that the median needs, so
// that all of a row's agree.
func latencyField(title, metric string) field {
	f := metricField(title, "ms", metric)
	f.figure = metricField("", "", results.LatencyMsP50).figure
	return f
}

// fixed gives a field a number of decimals that does not depend on its figures.
func fixed(f field, decimals int) field {
	of := f.cell
	f.cell = func(g *group, p *point, _ int) string { return of(g, p, decimals) }
	return f
}

// spreadField shows the range of a metric over the repeats.
func spreadField(title, metric string) field {
	return field{
		column: column{Title: title, Numeric: true},
		cell: func(_ *group, p *point, d int) string {
			s := p.Stats[metric]
			if s.N < 2 {
				return wording.Missing
			}
			return wording.Decimal(s.Min, d) + "–" + wording.Decimal(s.Max, d)
		},
		figure: func(p *point) (float64, bool) { return p.Stats[metric].Median, p.has(metric) },
	}
}

// ratioField holds a metric against the best point of another subject in the
// same group.
func ratioField(title, metric, against, rate string) field {
	return field{
		column: column{Title: title, Numeric: true},
		cell: func(g *group, p *point, _ int) string {
			r, ok := ratioOf(p, g.best(against, rate), metric)
			if !ok {
				return wording.Missing
			}
			return wording.RatioText(r)
		},
	}
}

// saturatedField says which part was the limit.
func saturatedField() field {
	return field{column: column{Title: "Saturated"}, cell: func(_ *group, p *point, _ int) string {
		return cmp.Or(p.Saturated, wording.Missing)
	}}
}

// repeatsField shows how many valid repeats the medians stand on.
func repeatsField() field {
	return field{
		column: column{Title: "Repeats", Numeric: true},
		cell: func(_ *group, p *point, _ int) string {
			if p.Valid < p.Trials {
				return fmt.Sprintf("%d of %d", p.Valid, p.Trials)
			}
			return fmt.Sprint(p.Valid)
		},
	}
}

// rateSheet is the document's table, with what it lacked.
func rateSheet(s *section) sheet {
	metric, title, noun := s.rate()
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s, paramConcurrency, paramFileBytes)...)
	fields = append(fields,
		metricField("Requests", "", results.Requests),
		metricField(title, "", metric),
		ratioField("× "+s.Baseline, metric, s.Baseline, metric),
		ratioField("× "+proxySubject, metric, proxySubject, metric),
		metricField("Mean latency", "ms", results.LatencyMsMean),
		metricField("Balancer CPU", "µs/request", results.BalancerCPUUsPerRequest),
		metricField("Failed", "", results.Failed),
		saturatedField(),
		repeatsField(),
	)
	sh := sheet{
		Title: "Throughput and cost",
		Lead:  "Medians over the valid repeats. Latency as clients saw it; the balancer's CPU time includes its kernel work.",
		Notes: baselineNotes(s, noun),
	}
	sh.fill(s, fields)
	return sh
}

// baselineNotes say what the ratios are taken to, and where there is nothing
// to take them to.
func baselineNotes(s *section, noun string) []string {
	var notes []string
	switch {
	case !s.measured(s.Baseline):
		notes = append(notes,
			fmt.Sprintf("The baseline %s has no valid trial under this load, so nothing is held against it.",
				s.Baseline))
	case s.Baseline == baselineSubject:
		notes = append(notes, fmt.Sprintf("× %s: against the same load without a balancer.", s.Baseline))
	default:
		notes = append(notes, fmt.Sprintf("× %s: against the same load through %s.", s.Baseline, s.Baseline))
	}
	if s.measured(proxySubject) {
		note := fmt.Sprintf("× %s: against %s", proxySubject, proxySubject)
		if s.variesWithin(proxySubject, paramThreads) {
			note += fmt.Sprintf(" with the number of threads that gave it the most %s at the same point", noun)
		}
		notes = append(notes, note+".")
	}
	return notes
}

// measured says whether the subject has a valid trial.
func (s *section) measured(subject string) bool {
	return slices.ContainsFunc(s.points(), func(p *point) bool { return p.Subject == subject })
}

// waitSheet shows the clients' latency, and how far the figures can be trusted.
func waitSheet(s *section) sheet {
	rate, _, noun := s.rate()
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s)...)
	fields = append(fields,
		latencyField("p50", results.LatencyMsP50),
		latencyField("p90", results.LatencyMsP90),
		latencyField("p99", results.LatencyMsP99),
		latencyField("Max", results.LatencyMsMax),
		spreadField("Spread of "+noun, rate),
		spreadField("Spread of CPU", results.BalancerCPUUsPerRequest),
		field{column: column{Title: "CPU × " + proxySubject, Numeric: true},
			cell: func(g *group, p *point, _ int) string {
				r, ok := ratioOf(p, g.best(proxySubject, rate), results.BalancerCPUUsPerRequest)
				if !ok || r <= 0 {
					return wording.Missing
				}
				return wording.Fraction(r)
			}},
		field{column: column{Title: "Busiest over idlest", Numeric: true}, cell: evennessCell},
	)
	sh := sheet{
		Title: "Latency, spread and evenness",
		Lead:  "Percentiles of the clients' latency; spreads are the lowest and the highest repeat.",
	}
	if slices.ContainsFunc(s.points(), func(p *point) bool { return p.Evenness.N > 0 || p.Idle > 0 }) {
		sh.Notes = append(sh.Notes,
			"Busiest over idlest: how many more connections the busiest backend had than the idlest.")
	}
	sh.fill(s, fields)
	return sh
}

func evennessCell(_ *group, p *point, _ int) string {
	switch {
	case p.Idle > 0:
		return fmt.Sprintf("%d idle", p.Idle)
	case p.Evenness.N == 0:
		return wording.Missing
	}
	return wording.PercentMore(p.Evenness.Median)
}

// cpuPart names a part, and the metrics of its CPU use.
type cpuPart struct{ Name, Cores, PerRequest string }

// cpuParts are the parts whose CPU time is read, in the order of a request.
var cpuParts = []cpuPart{
	{"Clients", results.ClientCPUCores, results.ClientCPUUsPerRequest},
	{"Switch", results.SwitchCPUCores, results.SwitchCPUUsPerRequest},
	{"Balancer", results.BalancerCPUCores, results.BalancerCPUUsPerRequest},
	{"Balancer's host", results.BalancerHostCPUCores, results.BalancerHostCPUUsPerRequest},
	{"Backends", results.BackendCPUCores, results.BackendCPUUsPerRequest},
}

// partSheet shows who used the machine.
func partSheet(s *section) sheet {
	if !s.hasParts() {
		return sheet{}
	}
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s)...)
	for _, part := range cpuParts {
		fields = append(fields, fixed(metricField(part.Name, "cores", part.Cores), 2))
	}
	fields = append(fields, fixed(metricField("Idle", "cores", results.IdleCPUCores), 2))
	for _, part := range cpuParts {
		fields = append(fields, metricField(part.Name, "µs/request", part.PerRequest))
	}
	sh := sheet{
		Title: "CPU by part",
		Lead:  "Cores that each part kept busy over the trial, and its CPU time for each request.",
		Aside: true,
	}
	sh.fill(s, fields)
	return sh
}

// hasParts says whether the CPU time of more than the balancer was read.
func (s *section) hasParts() bool {
	return slices.ContainsFunc(cpuParts, func(part cpuPart) bool {
		return part.PerRequest != results.BalancerCPUUsPerRequest && (s.has(part.PerRequest) || s.has(part.Cores))
	})
}

// restSheet shows every metric that has no column elsewhere, be it by shownMetrics or
// by what the caller says.
func restSheet(s *section, shown ...string) sheet {
	rate, _, _ := s.rate()
	var names []string
	for _, p := range s.points() {
		for name := range p.Stats {
			if name != rate && !slices.Contains(shownMetrics, name) && !slices.Contains(shown, name) &&
				!slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s)...)
	for _, name := range names {
		fields = append(fields, metricField(metricTitle(name), "", name))
	}
	sh := sheet{Title: "What else was counted", Lead: "Medians over the valid repeats.", Aside: true}
	sh.fill(s, fields)
	return sh
}

// leftOut shows the metrics of which some figure is in none of the tables.
func (s *section) leftOut(sheets []sheet) sheet {
	shown := map[float64]bool{}
	for _, sh := range sheets {
		for _, g := range sh.Groups {
			for _, l := range g {
				for _, c := range l.Cells {
					for _, word := range strings.FieldsFunc(c, func(r rune) bool {
						return strings.ContainsRune(" –()/→+%×", r)
					}) {
						if v, err := strconv.ParseFloat(figureText.Replace(word), 64); err == nil {
							shown[v] = true
						}
					}
				}
			}
		}
	}
	missed := map[string]bool{}
	for _, p := range s.points() {
		for name, st := range p.Stats {
			if !missed[name] && !figureShown(shown, st.Median) {
				missed[name] = true
			}
		}
	}
	if len(missed) == 0 {
		return sheet{}
	}
	fields := append([]field{{column: column{Title: "Subject"}, cell: func(_ *group, p *point, _ int) string {
		return p.marked(wording.Clean(s.label(p, true)))
	}}},
		placeFields(s)...)
	for _, name := range slices.Sorted(maps.Keys(missed)) {
		fields = append(fields, metricField(wording.Clean(name), "", name))
	}
	sh := sheet{Title: "What no other table has", Lead: "Medians over the valid repeats, by the names of results.json.",
		Aside: true}
	sh.fill(s, fields)
	return sh
}

// figureText makes a number of a table one that can be parsed.
var figureText = strings.NewReplacer(",", "", "−", "-")

// figureShown says whether a figure is among others, rounded as some table rounds.
func figureShown(shown map[float64]bool, v float64) bool {
	is := func(format byte, digits int) bool {
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, format, digits, 64), 64)
		return err == nil && shown[rounded]
	}
	return is('f', 0) || is('f', 1) || is('f', 2) || is('f', 3) || is('g', 2) || is('g', 3)
}

func metricTitle(name string) string {
	t := wording.Clean(strings.ReplaceAll(name, "_", " "))
	t = strings.ReplaceAll(t, " per second", "/s")
	if t == "" {
		return wording.Missing
	}
	return strings.ToUpper(t[:1]) + t[1:]
}

// sheets are the load's tables: those of its kind, and one with every metric that they leave out.
func (s *section) sheets() []sheet {
	all := s.kindSheets()
	if rest := s.leftOut(all); !rest.empty() {
		all = append(all, rest)
	}
	return all
}

func (s *section) kindSheets() []sheet {
	switch kind := s.kind(); {
	case kind != nil:
		return kind.sheets(s)
	case s.isPackets():
		return packetSheets(s)
	case s.transacts():
		return transactSheets(s)
	case s.isBulk():
		return bulkSheets(s)
	}
	return loadSheets(s)
}
