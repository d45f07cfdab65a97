// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Summarize returns the median and range of values; N is 0 if there are none.
// The median of an even number of values is the mean of the middle two.
func Summarize(values []float64) Stat {
	if len(values) == 0 {
		return Stat{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		// Halved before the sum, which could overflow.
		median = v[mid-1]/2 + v[mid]/2
	}
	return Stat{Median: median, Min: v[0], Max: v[len(v)-1], N: len(v)}
}

// Overlaps reports whether the ranges of two stats have a value in common.
func (s Stat) Overlaps(o Stat) bool { return s.Min <= o.Max && o.Min <= s.Max }

// Aggregate sorts a run's trials into sections, one for each load, in the order of their first appearance. The first
// registered kind that recognizes a load reports it. An empty baseline stands for BaselineSubject, which most runs
// have.
func Aggregate(registered []Registration, trials []results.Trial, baseline string) []*Section {
	baseline = cmp.Or(baseline, BaselineSubject)
	var order []string
	byLoad := map[string][]results.Trial{}
	for _, t := range trials {
		if _, ok := byLoad[t.Load]; !ok {
			order = append(order, t.Load)
		}
		byLoad[t.Load] = append(byLoad[t.Load], t)
	}
	var sections []*Section
	for _, load := range order {
		sections = append(sections, newSection(registered, load, byLoad[load], baseline))
	}
	return sections
}

func newSection(registered []Registration, load string, trials []results.Trial, baseline string) *Section {
	s := &Section{Load: load, Baseline: baseline, Trials: trials, Subjects: sortedSubjects(trials, baseline)}
	shared, own := splitParams(trials)
	s.Own = own
	s.Constant = Params{}
	for _, name := range shared {
		if vs := Distinct(trials, name); len(vs) == 1 {
			s.Constant[name] = vs[0]
		} else {
			s.Varying = append(s.Varying, name)
		}
	}
	s.collect(shared)
	s.Kind, s.words = kindOf(s, registered), titleOf(s, registered)
	return s
}

// collect builds the groups and their points.
func (s *Section) collect(shared []string) {
	type bucket struct {
		group  Params
		trials []results.Trial
	}
	buckets := map[string]*bucket{}
	var keys []string
	for _, t := range s.Trials {
		all := ToParams(t.Params)
		key := all.Key() + "\x00" + t.Subject
		if buckets[key] == nil {
			buckets[key] = &bucket{group: all.Only(shared)}
			keys = append(keys, key)
		}
		buckets[key].trials = append(buckets[key].trials, t)
	}
	groups := map[string]*Group{}
	for _, key := range keys {
		b := buckets[key]
		gk := b.group.Key()
		if groups[gk] == nil {
			groups[gk] = &Group{Params: b.group}
			s.Groups = append(s.Groups, groups[gk])
		}
		p := NewPoint(b.trials)
		p.Label = s.Label(p, true)
		if p.Valid > 0 {
			groups[gk].Points = append(groups[gk].Points, p)
		} else {
			s.Invalid = append(s.Invalid, p)
		}
	}
	slices.SortStableFunc(s.Groups, func(a, b *Group) int { return a.Params.Compare(b.Params) })
	for _, g := range s.Groups {
		slices.SortStableFunc(g.Points, func(a, b *Point) int {
			return cmp.Or(
				cmp.Compare(slices.Index(s.Subjects, a.Subject), slices.Index(s.Subjects, b.Subject)),
				a.Params.Only(s.Own).Compare(b.Params.Only(s.Own)),
			)
		})
	}
}

// Label returns the subject with its own parameters. Without threads, it leaves out their number: the table has a
// column for that.
func (s *Section) Label(p *Point, threads bool) string {
	parts := []string{p.Subject}
	for _, name := range s.Own {
		v, ok := p.Params[name]
		if !ok || (!threads && name == paramThreads) {
			continue
		}
		parts = append(parts, Describe(name, v))
	}
	return strings.Join(parts, " · ")
}

// VariesWithin reports whether a parameter has several values among the trials of a subject.
func (s *Section) VariesWithin(subject, name string) bool {
	var of []results.Trial
	for _, t := range s.Trials {
		if t.Subject == subject {
			of = append(of, t)
		}
	}
	return len(Distinct(of, name)) > 1
}

// NewPoint sums up the repeats of one point. Only valid trials count.
func NewPoint(trials []results.Trial) *Point {
	p := &Point{
		Subject: trials[0].Subject,
		Params:  ToParams(trials[0].Params),
		Trials:  len(trials),
		Stats:   map[string]Stat{},
	}
	values := map[string][]float64{}
	var evenness []float64
	var parts []string
	var all []Shares
	for _, t := range trials {
		if !t.Valid {
			continue
		}
		p.Valid++
		p.valid = append(p.valid, t)
		for name, v := range t.Metrics {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				values[name] = append(values[name], v)
			}
		}
		if t.Saturated != "" {
			parts = append(parts, string(t.Saturated))
		}
		more, idle, ok := Unevenness(t.Backends)
		p.Idle = max(p.Idle, idle)
		if ok {
			evenness = append(evenness, more)
		}
		if counted, ok := NewShares(t.Backends); ok {
			all = append(all, counted)
		}
	}
	for name, v := range values {
		p.Stats[name] = Summarize(v)
	}
	p.Evenness = Summarize(evenness)
	p.Limits, p.Saturated = parts, Tally(parts, false)
	p.Shares = Typical(all)
	return p
}

// served returns the number of requests of a backend: its queries, or its connections if it has no queries.
func served(b results.Backend) uint64 {
	if b.Queries > 0 {
		return b.Queries
	}
	return b.Connections
}

// Unevenness returns by how many per cent the connections of the busiest backend exceed those of the idlest, and how
// many backends had none. ok is false without counted backends, and where one was idle: no percentage expresses that.
func Unevenness(backends []results.Backend) (percent float64, idle int, ok bool) {
	if len(backends) == 0 {
		return 0, 0, false
	}
	least, most := served(backends[0]), served(backends[0])
	for _, b := range backends {
		least, most = min(least, served(b)), max(most, served(b))
		if served(b) == 0 {
			idle++
		}
	}
	if most == 0 {
		return 0, 0, false
	}
	if least == 0 {
		return 0, idle, false
	}
	return (float64(most)/float64(least) - 1) * 100, 0, true
}

// Shares are the shares of the backends in one trial.
type Shares struct {
	// of holds each backend's connections relative to an equal share.
	of         []float64
	unevenness float64
}

// NewShares returns a trial's shares; ok is false where nothing was counted.
func NewShares(backends []results.Backend) (s Shares, ok bool) {
	var total float64
	for _, b := range backends {
		total += float64(served(b))
	}
	if total == 0 {
		return s, false
	}
	mean := total / float64(len(backends))
	for _, b := range backends {
		s.of = append(s.of, float64(served(b))/mean)
	}
	s.unevenness = slices.Max(s.of) - slices.Min(s.of)
	return s, true
}

// Typical returns the shares of the trial in the middle when ordered by
// unevenness; of two in the middle, the less even one.
func Typical(all []Shares) []float64 {
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b Shares) int { return cmp.Compare(a.unevenness, b.unevenness) })
	return all[len(all)/2].of
}

// Tally joins the distinct words, the most frequent first: "balancer", or
// "client, none", or with counts "client 2, none 1".
func Tally(words []string, withCounts bool) string {
	counts := map[string]int{}
	var order []string
	for _, w := range words {
		w = wording.Clean(w)
		if counts[w] == 0 {
			order = append(order, w)
		}
		counts[w]++
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	if !withCounts {
		return strings.Join(order, ", ")
	}
	for i, w := range order {
		order[i] = fmt.Sprintf("%s %d", w, counts[w])
	}
	return strings.Join(order, ", ")
}

// sortedSubjects lists the baselines first, then others, then our own, each
// in order of first appearance.
func sortedSubjects(trials []results.Trial, baseline string) []string {
	var subjects []string
	for _, t := range trials {
		if !slices.Contains(subjects, t.Subject) {
			subjects = append(subjects, t.Subject)
		}
	}
	rank := func(s string) int {
		switch {
		case s == BaselineSubject || s == baseline || s == EmptySubject:
			return 0
		case s == swapSubject:
			return 1
		case !strings.HasPrefix(s, OwnPrefix):
			return 2
		}
		return 3
	}
	slices.SortStableFunc(subjects, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return subjects
}

// Ratio returns a/b; ok is false where that has no meaning.
func Ratio(a, b float64) (r float64, ok bool) {
	if b <= 0 {
		return 0, false
	}
	r = a / b
	return r, !math.IsInf(r, 0) && !math.IsNaN(r)
}

// RatioOf returns the ratio of the medians of metric of a to b, either of
// which may be nil or lack the metric.
func RatioOf(a, b *Point, metric string) (r float64, ok bool) {
	if a == nil || b == nil || !a.Has(metric) || !b.Has(metric) {
		return 0, false
	}
	return Ratio(a.Stats[metric].Median, b.Stats[metric].Median)
}

// RoundRobin reports whether a point's balancer takes the servers in turn.
func RoundRobin(p *Point) bool { return p.Params[ParamScheduler].Word == "rr" }

// Remembers reports whether a point's scheduler remembers every flow.
func Remembers(p *Point) bool { return lb.Scheduler(p.Params[ParamScheduler].Word).Remembers() }
