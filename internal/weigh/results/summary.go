// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// summary is the form in which a file holds a run whose Summarised is set: points in place of trials, and texts and
// servers once.
type summary struct {
	Texts   []string `json:"texts"`
	Servers []server `json:"servers,omitempty"`
	Points  []point  `json:"points"`
}

// server names a backend.
type server struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// point is all repeats of one subject under one load with one set of parameters. Lists have an element for each of
// Repeats; one element stands for all, where they are equal.
type point struct {
	Subject   string         `json:"subject"`
	Load      string         `json:"load"`
	Params    map[string]any `json:"params"`
	Repeats   []int          `json:"repeats"`
	Valid     []bool         `json:"valid"`
	Saturated []Part         `json:"saturated"`
	// Notes are positions in the summary's texts.
	Notes [][]int `json:"notes,omitempty"`
	// Metrics have null where a repeat lacks the metric.
	Metrics map[string][]*float64 `json:"metrics"`
	// Servers are positions in the summary's servers; the lists after them have an element for each, in each repeat.
	Servers     []int      `json:"servers,omitempty"`
	Connections [][]uint64 `json:"connections,omitempty"`
	// Queries and CPUPercent are absent where all are 0.
	Queries    [][]uint64  `json:"queries,omitempty"`
	CPUPercent [][]float64 `json:"cpu_percent,omitempty"`
}

// digits is the number of significant digits that a summary keeps of a figure that is no whole number.
const digits = 6

// WriteSummary writes the parts of a run that reports show, as a results file of a quarter of the size or less: without
// samples, without notes that only one valid trial has, and with six digits of figures that are no whole numbers.
func (r *Run) WriteSummary(w io.Writer) error {
	if err := r.Validate(); err != nil {
		return fmt.Errorf("writing a summary: %w", err)
	}
	head := *r
	head.Trials, head.Summarised = nil, true
	whole, err := json.Marshal(struct {
		*Run
		*summary
	}{&head, r.summarise()})
	if err != nil {
		return fmt.Errorf("writing a summary: %w", err)
	}
	// One point per line, so that a diff shows a change of one point as such.
	whole = bytes.ReplaceAll(whole, []byte(`{"subject":`), []byte("\n{\"subject\":"))
	if _, err := w.Write(append(whole, '\n')); err != nil {
		return fmt.Errorf("writing a summary: %w", err)
	}
	return nil
}

// WriteCompressedSummary writes a summary compressed by gzip: a fifth of its size, and the same bytes each time.
func (r *Run) WriteCompressedSummary(w io.Writer) error {
	zipper, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := r.WriteSummary(zipper); err != nil {
		return err
	}
	if err := zipper.Close(); err != nil {
		return fmt.Errorf("writing a summary: %w", err)
	}
	return nil
}

// summarise collects the repeats of points, in the order of the points' first trials.
func (r *Run) summarise() *summary {
	s, said := &summary{}, map[string]int{}
	for _, t := range r.Trials {
		for _, note := range t.Notes {
			said[note]++
		}
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		servers := s.serversOf(t)
		at := slices.IndexFunc(s.Points, func(p point) bool { return p.of(t, servers) })
		if at < 0 {
			at = len(s.Points)
			s.Points = append(s.Points, point{Subject: t.Subject, Load: t.Load, Params: t.Params, Servers: servers,
				Metrics: map[string][]*float64{}})
		}
		notes := []int{}
		for _, note := range t.Notes {
			if !t.Valid || said[note] > 1 {
				notes = append(notes, indexIn(&s.Texts, note))
			}
		}
		s.Points[at].add(t, notes)
	}
	for i := range s.Points {
		s.Points[i].shorten()
	}
	return s
}

// shorten leaves one element of lists whose elements are equal, and removes lists of zeros.
func (p *point) shorten() {
	p.Valid, p.Saturated, p.Notes = oneForAll(p.Valid), oneForAll(p.Saturated), oneForAll(p.Notes)
	for name, values := range p.Metrics {
		p.Metrics[name] = oneForAll(values)
	}
	p.Connections, p.Queries, p.CPUPercent = oneForAll(p.Connections), oneForAll(p.Queries), oneForAll(p.CPUPercent)
	if len(p.Queries) == 1 && !slices.ContainsFunc(p.Queries[0], func(n uint64) bool { return n != 0 }) {
		p.Queries = nil
	}
	if len(p.CPUPercent) == 1 && !slices.ContainsFunc(p.CPUPercent[0], func(n float64) bool { return n != 0 }) {
		p.CPUPercent = nil
	}
}

// oneForAll returns only the first element if all are equal to it.
func oneForAll[T any](list []T) []T {
	if len(list) > 1 && !slices.ContainsFunc(list[1:], func(v T) bool { return !reflect.DeepEqual(v, list[0]) }) {
		return list[:1]
	}
	return list
}

// lengthen undoes shorten for n repeats.
func (p *point) lengthen() {
	n := len(p.Repeats)
	p.Valid, p.Saturated, p.Notes = forEach(p.Valid, n), forEach(p.Saturated, n), forEach(p.Notes, n)
	for name, values := range p.Metrics {
		p.Metrics[name] = forEach(values, n)
	}
	if len(p.Servers) == 0 {
		return
	}
	if p.Queries == nil {
		p.Queries = [][]uint64{make([]uint64, len(p.Servers))}
	}
	if p.CPUPercent == nil {
		p.CPUPercent = [][]float64{make([]float64, len(p.Servers))}
	}
	p.Connections, p.Queries, p.CPUPercent = forEach(p.Connections, n), forEach(p.Queries, n), forEach(p.CPUPercent, n)
}

// forEach repeats a list of one element n times.
func forEach[T any](list []T, n int) []T {
	if len(list) == 1 {
		return slices.Repeat(list, n)
	}
	return list
}

// indexIn returns the index of a value in a list, and appends the value if it is new.
func indexIn[T comparable](list *[]T, value T) int {
	at := slices.Index(*list, value)
	if at < 0 {
		at, *list = len(*list), append(*list, value)
	}
	return at
}

func (s *summary) serversOf(t *Trial) (servers []int) {
	for _, b := range t.Backends {
		servers = append(servers, indexIn(&s.Servers, server{b.Name, b.Address}))
	}
	return servers
}

// of reports whether a trial is a repeat of the point.
func (p *point) of(t *Trial, servers []int) bool {
	return p.Load == t.Load && p.Subject == t.Subject && slices.Equal(p.Servers, servers) &&
		reflect.DeepEqual(p.Params, t.Params)
}

func (p *point) add(t *Trial, notes []int) {
	for name := range t.Metrics {
		if p.Metrics[name] == nil {
			p.Metrics[name] = make([]*float64, len(p.Repeats))
		}
	}
	for name := range p.Metrics {
		var value *float64
		if v, ok := t.Metrics[name]; ok {
			value = new(short(v))
		}
		p.Metrics[name] = append(p.Metrics[name], value)
	}
	p.Repeats, p.Valid = append(p.Repeats, t.Repeat), append(p.Valid, t.Valid)
	p.Saturated, p.Notes = append(p.Saturated, t.Saturated), append(p.Notes, notes)
	if len(t.Backends) == 0 {
		return
	}
	connections, queries, cpu := []uint64{}, []uint64{}, []float64{}
	for _, b := range t.Backends {
		connections, queries, cpu = append(connections, b.Connections), append(queries, b.Queries),
			append(cpu, short(b.CPUPercent))
	}
	p.Connections = append(p.Connections, connections)
	p.Queries, p.CPUPercent = append(p.Queries, queries), append(p.CPUPercent, cpu)
}

// short keeps whole numbers, and the first digits of others.
func short(v float64) float64 {
	if v == math.Trunc(v) {
		return v
	}
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// trials returns the trials that a summary represents. Its error names the point and the field.
func (s *summary) trials() ([]Trial, error) {
	var all []Trial
	for i := range s.Points {
		trials, err := s.Points[i].trials(s)
		if err != nil {
			return nil, invalid("points[%d] (%s, %s): %v", i, s.Points[i].Subject, s.Points[i].Load, err)
		}
		all = append(all, trials...)
	}
	return all, nil
}

func (p *point) trials(s *summary) ([]Trial, error) {
	p.lengthen()
	if err := p.check(s); err != nil {
		return nil, err
	}
	trials := make([]Trial, len(p.Repeats))
	for i, repeat := range p.Repeats {
		t := Trial{Subject: p.Subject, Load: p.Load, Params: p.Params, Repeat: repeat, Valid: p.Valid[i],
			Saturated: p.Saturated[i], Notes: []string{}, Metrics: map[string]float64{}}
		for name, values := range p.Metrics {
			if values[i] != nil {
				t.Metrics[name] = *values[i]
			}
		}
		for _, at := range p.Notes[i] {
			t.Notes = append(t.Notes, s.Texts[at])
		}
		for j, at := range p.Servers {
			t.Backends = append(t.Backends, Backend{Name: s.Servers[at].Name, Address: s.Servers[at].Address,
				Connections: p.Connections[i][j], Queries: p.Queries[i][j], CPUPercent: p.CPUPercent[i][j]})
		}
		trials[i] = t
	}
	return trials, nil
}

// check returns an error that names a list of the wrong length, or with an index out of range.
func (p *point) check(s *summary) error {
	n := len(p.Repeats)
	lengths := map[string]int{"valid": len(p.Valid), "saturated": len(p.Saturated), "notes": len(p.Notes)}
	for name, values := range p.Metrics {
		lengths["metrics."+name] = len(values)
	}
	if len(p.Servers) > 0 {
		lengths["connections"], lengths["queries"], lengths["cpu_percent"] = len(p.Connections), len(p.Queries),
			len(p.CPUPercent)
	}
	for name, length := range lengths {
		if length != n {
			return fmt.Errorf("%s has %d elements, and there are %d repeats", name, length, n)
		}
	}
	outside := func(at []int, length int) bool {
		return slices.ContainsFunc(at, func(i int) bool { return i < 0 || i >= length })
	}
	if outside(p.Servers, len(s.Servers)) {
		return fmt.Errorf("servers names one that is not there")
	}
	for i := range n {
		if outside(p.Notes[i], len(s.Texts)) {
			return fmt.Errorf("notes names a text that is not there")
		}
		if k := len(p.Servers); k > 0 && (len(p.Connections[i]) != k || len(p.Queries[i]) != k ||
			len(p.CPUPercent[i]) != k) {
			return fmt.Errorf("connections, queries and cpu_percent must have an element for each of %d servers", k)
		}
	}
	return nil
}
