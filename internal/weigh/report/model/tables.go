// SPDX-License-Identifier: Apache-2.0

package model

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

// rateMetrics are the metrics that can be a load's main figure, with its column's title. The first that was measured is
// used.
var rateMetrics = []RateMetric{
	{results.RequestsPerSecond, "Requests/s", "requests/s"},
	{results.ConnectionsPerSecond, "Connections/s", "connections/s"},
	{results.TransactionsPerSecond, "Transactions/s", "transactions/s"},
	{results.QueriesPerSecond, "Queries/s", "queries/s"},
	{results.PacketsPerSecond, "Packets/s", "packets/s"},
	{results.GigabitsPerSecond, "Gbit/s", "Gbit/s"},
}

// Rate returns the load's main figure: metric, title and noun.
func (s *Section) Rate() (metric, title, noun string) {
	for _, m := range rateMetrics {
		if s.Has(m.Name) {
			return m.Name, m.Title, m.Noun
		}
	}
	m := rateMetrics[0]
	return m.Name, m.Title, m.Noun
}

// shownMetrics are the metrics that the tables of a load have columns for; any other is shown in the table of other
// counts.
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

// LoadSheets are the tables of a load with clients and servers.
func LoadSheets(s *Section) []Sheet {
	return s.Shown(rateSheet(s), waitSheet(s), PartSheet(s), RestSheet(s))
}

// Shown leaves out tables that have only the columns of Rows.
func (s *Section) Shown(all ...Sheet) []Sheet {
	return slices.DeleteFunc(all, func(sh Sheet) bool { return sh.Empty() || len(sh.Columns) <= len(s.Rows()) })
}

// Rows are the columns that identify the rows of a table: the subject, and the columns of PlaceFields.
func (s *Section) Rows(always ...string) []Field {
	return append([]Field{SubjectField(s)}, PlaceFields(s, always...)...)
}

// SubjectField is the first column of every table.
func SubjectField(s *Section) Field {
	return TextField("Subject", func(p *Point) string { return p.Marked(wording.Clean(s.Label(p, false))) })
}

// LabelField is SubjectField with all of the subject's parameters.
func LabelField(s *Section) Field {
	return TextField("Subject", func(p *Point) string { return p.Marked(wording.Clean(s.Label(p, true))) })
}

// NameField is SubjectField without the subject's parameters.
func NameField() Field {
	return TextField("Subject", func(p *Point) string { return p.Marked(wording.Clean(p.Subject)) })
}

// TextField shows words about a point, if there are any.
func TextField(title string, words func(*Point) string) Field {
	return Field{Column: Column{Title: title}, Cell: func(_ *Group, p *Point, _ int) string {
		return cmp.Or(words(p), wording.Missing)
	}}
}

// Marked marks the label of a baseline that a table shows without a valid trial.
func (p *Point) Marked(label string) string {
	if p.Valid == 0 {
		return label + " (not measured)"
	}
	return label
}

// PlaceFields show a row's parameters: threads, and the load's parameters that vary. The parameters in always are shown
// even if they do not vary.
func PlaceFields(s *Section, always ...string) []Field {
	names := slices.Clone(s.Varying)
	for _, always := range always {
		if _, ok := s.Constant[always]; ok {
			names = append(names, always)
		}
	}
	slices.SortFunc(names, CompareNames)
	if slices.Contains(s.Own, paramThreads) {
		names = append([]string{paramThreads}, names...)
	}
	var fields []Field
	for _, name := range names {
		fields = append(fields, ParamField(s, name))
	}
	return fields
}

// ParamField shows a parameter.
func ParamField(s *Section, name string) Field {
	info, _ := lookup(name)
	return Field{
		Column: Column{Title: info.Title, Numeric: allNumeric(Distinct(s.Trials, name))},
		Cell: func(_ *Group, p *Point, _ int) string {
			v, ok := p.Params[name]
			if !ok {
				return wording.Missing
			}
			return v.Text(name)
		},
	}
}

// allNumeric ignores the empty value, which stands for a trial without the parameter.
func allNumeric(vs []Value) bool {
	return !slices.ContainsFunc(vs, func(v Value) bool { return !v.Numeric && v.Word != "" })
}

// MetricField shows a metric's median.
func MetricField(title, unit, metric string) Field {
	return Field{
		Column: Column{Title: title, Unit: unit, Numeric: true},
		Cell: func(_ *Group, p *Point, d int) string {
			if !p.Has(metric) {
				return wording.Missing
			}
			return wording.Decimal(p.Stats[metric].Median, d)
		},
		figure: func(p *Point) (float64, bool) { return p.Stats[metric].Median, p.Has(metric) },
	}
}

// latencyField shows a percentile with the decimals that the median needs, so that all percentiles of a row agree.
func latencyField(title, metric string) Field {
	f := MetricField(title, "ms", metric)
	f.figure = MetricField("", "", results.LatencyMsP50).figure
	return f
}

// Fixed gives a field a number of decimals that does not depend on its figures.
func Fixed(f Field, decimals int) Field {
	of := f.Cell
	f.Cell = func(g *Group, p *Point, _ int) string { return of(g, p, decimals) }
	return f
}

// SpreadField shows the range of a metric over the repeats.
func SpreadField(title, metric string) Field {
	return Field{
		Column: Column{Title: title, Numeric: true},
		Cell: func(_ *Group, p *Point, d int) string {
			s := p.Stats[metric]
			if s.N < 2 {
				return wording.Missing
			}
			return wording.Decimal(s.Min, d) + "–" + wording.Decimal(s.Max, d)
		},
		figure: func(p *Point) (float64, bool) { return p.Stats[metric].Median, p.Has(metric) },
	}
}

// RatioField shows the ratio of a metric to that of another subject's best point in the same group.
func RatioField(title, metric, against, rate string) Field {
	return NumberField(title, "", wording.RatioText, func(g *Group, p *Point) (float64, bool) {
		return RatioOf(p, g.Best(against, rate), metric)
	})
}

// NumberField shows a figure of a point, formatted by words.
func NumberField(title, unit string, words func(float64) string, of func(*Group, *Point) (float64, bool)) Field {
	return Field{Column: Column{Title: title, Unit: unit, Numeric: true}, Cell: func(g *Group, p *Point, _ int) string {
		if v, ok := of(g, p); ok {
			return words(v)
		}
		return wording.Missing
	}}
}

// MedianField shows a metric's median, formatted by words.
func MedianField(title, unit, metric string, words func(float64) string) Field {
	return NumberField(title, unit, words, func(_ *Group, p *Point) (float64, bool) {
		return p.Stats[metric].Median, p.Has(metric)
	})
}

// SaturatedField names the part that was the limit.
func SaturatedField() Field {
	return TextField("Saturated", func(p *Point) string { return p.Saturated })
}

// RepeatsField shows the number of valid repeats of the medians.
func RepeatsField() Field {
	return Field{
		Column: Column{Title: "Repeats", Numeric: true},
		Cell: func(_ *Group, p *Point, _ int) string {
			if p.Valid < p.Trials {
				return fmt.Sprintf("%d of %d", p.Valid, p.Trials)
			}
			return fmt.Sprint(p.Valid)
		},
	}
}

// rateSheet is the document's table, with the columns that it lacked.
func rateSheet(s *Section) Sheet {
	metric, title, noun := s.Rate()
	return Sheet{
		Title: "Throughput and cost",
		Lead:  "Medians over the valid repeats. Latency as clients saw it; the balancer's CPU time includes its kernel work.",
		Notes: BaselineNotes(s, noun),
	}.Of(s, s.Rows(ParamConcurrency, ParamFileBytes), []Field{
		MetricField("Requests", "", results.Requests),
		MetricField(title, "", metric),
		RatioField("× "+s.Baseline, metric, s.Baseline, metric),
		RatioField("× "+ProxySubject, metric, ProxySubject, metric),
		MetricField("Mean latency", "ms", results.LatencyMsMean),
		MetricField("Balancer CPU", "µs/request", results.BalancerCPUUsPerRequest),
		MetricField("Failed", "", results.Failed),
		SaturatedField(),
		RepeatsField(),
	})
}

// BaselineNotes name the baseline of the ratios, and the loads without one.
func BaselineNotes(s *Section, noun string) []string {
	var notes []string
	switch {
	case !s.Measured(s.Baseline):
		notes = append(notes,
			fmt.Sprintf("The baseline %s has no valid trial under this load, so nothing is held against it.",
				s.Baseline))
	case s.Baseline == BaselineSubject:
		notes = append(notes, fmt.Sprintf("× %s: against the same load without a balancer.", s.Baseline))
	default:
		notes = append(notes, fmt.Sprintf("× %s: against the same load through %s.", s.Baseline, s.Baseline))
	}
	if s.Measured(ProxySubject) {
		note := fmt.Sprintf("× %s: against %s", ProxySubject, ProxySubject)
		if s.VariesWithin(ProxySubject, paramThreads) {
			note += fmt.Sprintf(" with the number of threads that gave it the most %s at the same point", noun)
		}
		notes = append(notes, note+".")
	}
	return notes
}

// Measured reports whether the subject has a valid trial.
func (s *Section) Measured(subject string) bool {
	return slices.ContainsFunc(s.Points(), func(p *Point) bool { return p.Subject == subject })
}

// waitSheet shows the clients' latency, and how far the figures can be trusted.
func waitSheet(s *Section) Sheet {
	rate, _, noun := s.Rate()
	var notes []string
	if slices.ContainsFunc(s.Points(), func(p *Point) bool { return p.Evenness.N > 0 || p.Idle > 0 }) {
		notes = []string{"Busiest over idlest: how many more connections the busiest backend had than the idlest."}
	}
	return Sheet{
		Title: "Latency, spread and evenness",
		Lead:  "Percentiles of the clients' latency; spreads are the lowest and the highest repeat.",
		Notes: notes,
	}.Of(s, s.Rows(), []Field{
		latencyField("p50", results.LatencyMsP50),
		latencyField("p90", results.LatencyMsP90),
		latencyField("p99", results.LatencyMsP99),
		latencyField("Max", results.LatencyMsMax),
		SpreadField("Spread of "+noun, rate),
		SpreadField("Spread of CPU", results.BalancerCPUUsPerRequest),
		NumberField("CPU × "+ProxySubject, "", wording.Fraction, func(g *Group, p *Point) (float64, bool) {
			r, ok := RatioOf(p, g.Best(ProxySubject, rate), results.BalancerCPUUsPerRequest)
			return r, ok && r > 0
		}),
		Field{Column: Column{Title: "Busiest over idlest", Numeric: true}, Cell: EvennessCell},
	})
}

// EvennessCell shows how evenly a point used its backends.
func EvennessCell(_ *Group, p *Point, _ int) string {
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

// PartSheet shows which parts used the machine's CPU time.
func PartSheet(s *Section) Sheet {
	if !s.hasParts() {
		return Sheet{}
	}
	fields := s.Rows()
	for _, part := range cpuParts {
		fields = append(fields, Fixed(MetricField(part.Name, "cores", part.Cores), 2))
	}
	fields = append(fields, Fixed(MetricField("Idle", "cores", results.IdleCPUCores), 2))
	for _, part := range cpuParts {
		fields = append(fields, MetricField(part.Name, "µs/request", part.PerRequest))
	}
	return Sheet{
		Title:     "CPU by part",
		Lead:      "Cores that each part kept busy over the trial, and its CPU time for each request.",
		Secondary: true,
	}.Of(s, fields)
}

// hasParts reports whether the CPU time of more than the balancer was read.
func (s *Section) hasParts() bool {
	return slices.ContainsFunc(cpuParts, func(part cpuPart) bool {
		return part.PerRequest != results.BalancerCPUUsPerRequest && (s.Has(part.PerRequest) || s.Has(part.Cores))
	})
}

// RestSheet shows every metric that has no column elsewhere: neither shownMetrics nor shown has it.
func RestSheet(s *Section, shown ...string) Sheet {
	rate, _, _ := s.Rate()
	var names []string
	for _, p := range s.Points() {
		for name := range p.Stats {
			if name != rate && !slices.Contains(shownMetrics, name) && !slices.Contains(shown, name) &&
				!slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	fields := s.Rows()
	for _, name := range names {
		fields = append(fields, MetricField(metricTitle(name), "", name))
	}
	return Sheet{Title: "What else was counted", Lead: "Medians over the valid repeats.", Secondary: true}.Of(s, fields)
}

// LeftOut shows the metrics with a figure that none of the tables has.
func (s *Section) LeftOut(sheets []Sheet) Sheet {
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
	for _, p := range s.Points() {
		for name, st := range p.Stats {
			if !missed[name] && !figureShown(shown, st.Median) {
				missed[name] = true
			}
		}
	}
	if len(missed) == 0 {
		return Sheet{}
	}
	fields := append([]Field{LabelField(s)}, PlaceFields(s)...)
	for _, name := range slices.Sorted(maps.Keys(missed)) {
		fields = append(fields, MetricField(wording.Clean(name), "", name))
	}
	return Sheet{Title: "What no other table has", Lead: "Medians over the valid repeats, by the names of results.json.",
		Secondary: true}.Of(s, fields)
}

// figureText makes a number of a table parsable.
var figureText = strings.NewReplacer(",", "", "−", "-")

// figureShown reports whether a figure is among others, rounded as some table rounds.
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

// Sheets returns the load's tables: those of its kind, and one with every metric that they leave out.
func (s *Section) Sheets() []Sheet {
	all := s.Kind.Sheets(s)
	if rest := s.LeftOut(all); !rest.Empty() {
		all = append(all, rest)
	}
	return all
}

// MegabytesField shows bytes in millions.
func MegabytesField(title, metric string) Field {
	return MedianField(title, "MB", metric, func(v float64) string { return wording.Decimal(v/1e6, 1) })
}
