// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Evidence holds the measurements, in the order in which they are searched.
type Evidence struct {
	Sources []Source `json:"sources"`
	// own is the number of sources, from the first, that are searched for anything of use before the others are.
	own int
}

// Source is a results file.
type Source struct {
	// File is the file's path; Machine is where it was measured.
	File    string    `json:"file"`
	Machine string    `json:"machine"`
	Started time.Time `json:"started"`
	// Command is the command line that made the file.
	Command string  `json:"command,omitempty"`
	Points  []Point `json:"points"`
}

// Point is one subject under one load with one set of parameters, over its valid repeats.
type Point struct {
	Load    string         `json:"load"`
	Subject string         `json:"subject"`
	Params  map[string]any `json:"params,omitempty"`
	Repeats int            `json:"repeats"`
	// Saturated is the part that limited most of the repeats.
	Saturated results.Part     `json:"saturated"`
	Metrics   map[string]Range `json:"metrics"`
	// Rates are the values, by repeat, of the metric of which more is better; the repeats of two points make pairs.
	Rates map[int]float64 `json:"rates,omitempty"`
}

// Range is the median of a metric over the repeats, and the lowest and the highest of them.
type Range struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

//go:embed evidence.json
var embedded []byte

var decodeEmbedded = sync.OnceValues(func() (*Evidence, error) {
	var e Evidence
	if err := json.Unmarshal(embedded, &e); err != nil {
		return nil, fmt.Errorf("reading the embedded evidence: %w", err)
	}
	return &e, nil
})

// Embedded returns the evidence of the runs that are committed beside the documentation.
func Embedded() (*Evidence, error) { return decodeEmbedded() }

// Encode writes evidence in its embedded form: one line per point, so that a diff shows a change of one point as such.
func (e *Evidence) Encode() ([]byte, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("writing evidence: %w", err)
	}
	data = bytes.ReplaceAll(data, []byte(`{"load":`), []byte("\n{\"load\":"))
	return append(bytes.ReplaceAll(data, []byte(`{"file":`), []byte("\n{\"file\":")), '\n'), nil
}

// Before returns evidence in which sources are searched before e's.
func (e *Evidence) Before(sources ...Source) *Evidence {
	return &Evidence{Sources: append(slices.Clone(sources), e.Sources...), own: len(sources) + e.own}
}

// ownFirst returns the result of a search in a user's own sources, and if there is none, in the others: a figure of the
// user's machine says more than one of another machine that fits better.
func ownFirst[T any](e *Evidence, search func(*Evidence) *T) *T {
	if at := search(&Evidence{Sources: e.Sources[:e.own]}); at != nil {
		return at
	}
	return search(&Evidence{Sources: e.Sources[e.own:]})
}

// metrics are the metrics that advice is based on.
var metrics = append(slices.Clone(rates), results.BalancerCPUUsPerRequest, results.BalancerCPUMsPerGigabyte,
	results.NsNetOfEmpty,
	results.Broken, results.Connections, results.DeviationPercentMax, results.BytesPerFlow)

// rates are the metrics of which more is better; a trial has one of them.
var rates = []string{results.RequestsPerSecond, results.ConnectionsPerSecond, results.TransactionsPerSecond,
	results.QueriesPerSecond, results.GigabitsPerSecond}

// SourceOf summarises the trials of a run that keep accepts; nil accepts all. Without a valid trial the source has no
// points.
func SourceOf(file string, run *results.Run, keep func(*results.Trial) bool) Source {
	s := Source{File: file, Started: run.Started, Command: run.Command,
		Machine: fmt.Sprintf("%s, %d cores, Linux %s", run.Environment.CPU, run.Environment.Cores,
			run.Environment.Kernel)}
	var all []*gathered
	for i := range run.Trials {
		t := &run.Trials[i]
		if !t.Valid || keep != nil && !keep(t) {
			continue
		}
		at := slices.IndexFunc(all, func(g *gathered) bool { return g.of(t) })
		if at < 0 {
			at, all = len(all), append(all, &gathered{first: t, limits: map[results.Part]int{},
				rates: map[int]float64{}, values: map[string][]float64{}})
		}
		all[at].add(t)
	}
	for _, g := range all {
		s.Points = append(s.Points, g.point())
	}
	return s
}

// gathered holds the repeats of a point.
type gathered struct {
	first   *results.Trial
	repeats int
	limits  map[results.Part]int
	values  map[string][]float64
	rates   map[int]float64
}

func (g *gathered) of(t *results.Trial) bool {
	return g.first.Load == t.Load && g.first.Subject == t.Subject && reflect.DeepEqual(g.first.Params, t.Params)
}

func (g *gathered) add(t *results.Trial) {
	g.repeats++
	g.limits[t.Saturated]++
	for _, name := range metrics {
		if value, ok := t.Metrics[name]; ok {
			g.values[name] = append(g.values[name], value)
			if slices.Contains(rates, name) {
				g.rates[t.Repeat] = rounded(value)
			}
		}
	}
}

func (g *gathered) point() Point {
	p := Point{Load: g.first.Load, Subject: g.first.Subject, Params: g.first.Params, Repeats: g.repeats,
		Rates: g.rates, Metrics: map[string]Range{}}
	for _, part := range slices.Sorted(maps.Keys(g.limits)) {
		if p.Saturated == "" || g.limits[part] > g.limits[p.Saturated] {
			p.Saturated = part
		}
	}
	for name, values := range g.values {
		slices.Sort(values)
		p.Metrics[name] = Range{Median: rounded(median(values)), Low: rounded(values[0]),
			High: rounded(values[len(values)-1])}
	}
	return p
}

// median returns the middle of sorted values, or the mean of the two in the middle.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// rounded keeps as many digits as repeats agree in at best.
func rounded(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// figure returns the figure of a point's metric.
func (s *Source) figure(p *Point, metric string) Figure {
	return Figure{File: s.File, Load: p.Load, Subject: p.Subject, Params: p.Params, Metric: metric,
		Range: p.Metrics[metric], Repeats: p.Repeats}
}

// Figure is a measured figure, and its place in the results.
type Figure struct {
	File    string         `json:"file"`
	Load    string         `json:"load"`
	Subject string         `json:"subject"`
	Params  map[string]any `json:"params,omitempty"`
	Metric  string         `json:"metric"`
	Range
	Repeats int `json:"repeats"`
}

// String returns the figure in one line: file, trial, metric, median, and the spread of its repeats.
func (f Figure) String() string {
	var params []string
	for _, name := range slices.Sorted(maps.Keys(f.Params)) {
		value := f.Params[name]
		if n, ok := value.(float64); ok {
			value = strconv.FormatFloat(n, 'f', -1, 64)
		}
		params = append(params, fmt.Sprintf("%s %v", name, value))
	}
	text := fmt.Sprintf("%s: %s, %s", f.File, f.Load, f.Subject)
	if len(params) > 0 {
		text += " (" + strings.Join(params, ", ") + ")"
	}
	text += fmt.Sprintf(", %s %s", f.Metric, number(f.Median))
	if f.Repeats > 1 {
		text += fmt.Sprintf(" (%s to %s, %d repeats)", number(f.Low), number(f.High), f.Repeats)
	}
	return text
}

// number writes a figure with as many digits as help a reader.
func number(v float64) string {
	if v >= 100 || v == float64(int64(v)) {
		return grouped(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// grouped writes a whole number with a comma after each thousand.
func grouped(v float64) string {
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
