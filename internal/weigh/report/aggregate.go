// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// The subjects that others are held against.
const (
	// baselineSubject is a run without any balancer, which others are held against
	// if the run names no other.
	baselineSubject = "direct"
	// proxySubject is the proxy that the document measured.
	proxySubject = "haproxy-http"
	// emptySubject is the data plane's baseline: a program that does nothing.
	emptySubject = "empty"
	// swapSubject is the least that a program which sends a packet back can do.
	swapSubject = "macswap"
	// ownPrefix begins the names of our own subjects.
	ownPrefix = "jeoul-"
)

// stat sums up one metric of a point over its valid trials.
type stat struct {
	Median, Min, Max float64
	N                int
}

// summarize returns the median and range of values; N is 0 if there are none.
// The median of an even number of values is the mean of the middle two.
func summarize(values []float64) stat {
	if len(values) == 0 {
		return stat{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		// Halved before the sum, which could overflow.
		median = v[mid-1]/2 + v[mid]/2
	}
	return stat{Median: median, Min: v[0], Max: v[len(v)-1], N: len(v)}
}

// overlaps says whether the ranges of two stats have a value in common.
func (s stat) overlaps(o stat) bool { return s.Min <= o.Max && o.Min <= s.Max }

// point is one subject under one load with one set of parameters, over all
// its repeats.
type point struct {
	Subject string
	Params  params
	// Label names the subject and its own parameters.
	Label string
	// Trials counts all repeats, Valid those that may be quoted.
	Trials, Valid int
	Stats         map[string]stat
	// valid are those trials.
	valid []results.Trial
	// Saturated sums up saturated, which has a word for each valid trial.
	Saturated string
	saturated []string
	// Evenness is how many per cent more connections the busiest backend had
	// than the idlest; N is 0 where backends were not counted or one was idle.
	Evenness stat
	// Idle is the largest number of backends that served nothing in a trial.
	Idle int
	// Shares holds each backend's connections relative to an equal share
	// (1 is exactly that), in the valid trial of median unevenness.
	Shares []float64
}

// has says whether the point's valid trials have metric.
func (p *point) has(metric string) bool { return p.Stats[metric].N > 0 }

// group holds the points that share the load's parameters, and so can be
// compared with each other.
type group struct {
	Params params
	Points []*point
}

// best returns the subject's point with the highest median of metric, or nil.
func (g *group) best(subject, metric string) *point {
	var best *point
	for _, p := range g.Points {
		if p.Subject != subject || !p.has(metric) {
			continue
		}
		if best == nil || p.Stats[metric].Median > best.Stats[metric].Median {
			best = p
		}
	}
	return best
}

// section is everything that was measured under one load.
type section struct {
	Load string
	// Baseline is the subject that the others are held against.
	Baseline string
	// Subjects in the order of the tables.
	Subjects []string
	Groups   []*group
	// Constant holds the load's parameters that never change.
	Constant params
	// Varying names the load's parameters that do, Own those of the subjects.
	Varying, Own []string
	trials       []results.Trial
	// ranked is nil until it was asked for.
	ranked *ranked
}

// points returns the points of all groups, in the order of the tables.
func (s *section) points() []*point {
	var all []*point
	for _, g := range s.Groups {
		all = append(all, g.Points...)
	}
	return all
}

// has says whether any valid trial under the load has metric.
func (s *section) has(metric string) bool {
	return slices.ContainsFunc(s.points(), func(p *point) bool { return p.has(metric) })
}

// aggregate sorts a run's trials into sections, one a load, in order of their
// first appearance. An empty baseline is that of most runs.
func aggregate(trials []results.Trial, baseline string) []*section {
	baseline = cmp.Or(baseline, baselineSubject)
	var order []string
	byLoad := map[string][]results.Trial{}
	for _, t := range trials {
		if _, ok := byLoad[t.Load]; !ok {
			order = append(order, t.Load)
		}
		byLoad[t.Load] = append(byLoad[t.Load], t)
	}
	var sections []*section
	for _, load := range order {
		sections = append(sections, newSection(load, byLoad[load], baseline))
	}
	return sections
}

func newSection(load string, trials []results.Trial, baseline string) *section {
	s := &section{Load: load, Baseline: baseline, trials: trials, Subjects: sortedSubjects(trials, baseline)}
	shared, own := splitParams(trials)
	s.Own = own
	s.Constant = params{}
	for _, name := range shared {
		if vs := distinct(trials, name); len(vs) == 1 {
			s.Constant[name] = vs[0]
		} else {
			s.Varying = append(s.Varying, name)
		}
	}
	s.collect(shared)
	return s
}

// collect builds the groups and their points.
func (s *section) collect(shared []string) {
	type bucket struct {
		group  params
		trials []results.Trial
	}
	buckets := map[string]*bucket{}
	var keys []string
	for _, t := range s.trials {
		all := toParams(t.Params)
		key := all.key() + "\x00" + t.Subject
		if buckets[key] == nil {
			buckets[key] = &bucket{group: all.only(shared)}
			keys = append(keys, key)
		}
		buckets[key].trials = append(buckets[key].trials, t)
	}
	groups := map[string]*group{}
	for _, key := range keys {
		b := buckets[key]
		gk := b.group.key()
		if groups[gk] == nil {
			groups[gk] = &group{Params: b.group}
			s.Groups = append(s.Groups, groups[gk])
		}
		if p := newPoint(b.trials); p.Valid > 0 {
			p.Label = s.label(p, true)
			groups[gk].Points = append(groups[gk].Points, p)
		}
	}
	slices.SortStableFunc(s.Groups, func(a, b *group) int { return a.Params.compare(b.Params) })
	for _, g := range s.Groups {
		slices.SortStableFunc(g.Points, func(a, b *point) int {
			return cmp.Or(
				cmp.Compare(slices.Index(s.Subjects, a.Subject), slices.Index(s.Subjects, b.Subject)),
				a.Params.only(s.Own).compare(b.Params.only(s.Own)),
			)
		})
	}
}

// label returns the subject with its own parameters. Where a table has a
// column for threads, they need not be there too.
func (s *section) label(p *point, threads bool) string {
	parts := []string{p.Subject}
	for _, name := range s.Own {
		v, ok := p.Params[name]
		if !ok || (!threads && name == paramThreads) {
			continue
		}
		parts = append(parts, describe(name, v))
	}
	return strings.Join(parts, " · ")
}

func (s *section) variesWithin(subject, name string) bool {
	var of []results.Trial
	for _, t := range s.trials {
		if t.Subject == subject {
			of = append(of, t)
		}
	}
	return len(distinct(of, name)) > 1
}

// newPoint sums up the repeats of one point. Only valid trials count.
func newPoint(trials []results.Trial) *point {
	p := &point{
		Subject: trials[0].Subject,
		Params:  toParams(trials[0].Params),
		Trials:  len(trials),
		Stats:   map[string]stat{},
	}
	values := map[string][]float64{}
	var evenness []float64
	var parts []string
	var all []shares
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
		more, idle, ok := unevenness(t.Backends)
		p.Idle = max(p.Idle, idle)
		if ok {
			evenness = append(evenness, more)
		}
		if counted, ok := newShares(t.Backends); ok {
			all = append(all, counted)
		}
	}
	for name, v := range values {
		p.Stats[name] = summarize(v)
	}
	p.Evenness = summarize(evenness)
	p.saturated, p.Saturated = parts, tally(parts, false)
	p.Shares = typical(all)
	return p
}

// served is what a backend got: queries, or else connections.
func served(b results.Backend) uint64 {
	if b.Queries > 0 {
		return b.Queries
	}
	return b.Connections
}

// unevenness returns by how many per cent the busiest backend had more
// connections than the idlest, and how many had none. ok is false without
// counted backends, and where one was idle: no percentage says that.
func unevenness(backends []results.Backend) (percent float64, idle int, ok bool) {
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

// shares are the backends of one trial.
type shares struct {
	// of holds each backend's connections relative to an equal share.
	of         []float64
	unevenness float64
}

// newShares returns a trial's shares; ok is false where nothing was counted.
func newShares(backends []results.Backend) (s shares, ok bool) {
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

// typical returns the shares of the trial in the middle when ordered by
// unevenness; of two in the middle, the less even one.
func typical(all []shares) []float64 {
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b shares) int { return cmp.Compare(a.unevenness, b.unevenness) })
	return all[len(all)/2].of
}

// tally joins the distinct words, the most frequent first: "balancer", or
// "client, none", or with counts "client 2, none 1".
func tally(words []string, withCounts bool) string {
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
		case s == baselineSubject || s == baseline || s == emptySubject:
			return 0
		case s == swapSubject:
			return 1
		case !strings.HasPrefix(s, ownPrefix):
			return 2
		}
		return 3
	}
	slices.SortStableFunc(subjects, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return subjects
}

// ratio returns a/b; ok is false where that has no meaning.
func ratio(a, b float64) (r float64, ok bool) {
	if b <= 0 {
		return 0, false
	}
	r = a / b
	return r, !math.IsInf(r, 0) && !math.IsNaN(r)
}

// ratioOf returns the ratio of the medians of metric of a to b, either of
// which may be nil or lack the metric.
func ratioOf(a, b *point, metric string) (r float64, ok bool) {
	if a == nil || b == nil || !a.has(metric) || !b.has(metric) {
		return 0, false
	}
	return ratio(a.Stats[metric].Median, b.Stats[metric].Median)
}

// notBalancers are the subjects that no service can be given to: they are the
// measure of the others.
var notBalancers = []string{baselineSubject, "routed", "bare", "bare-tc", emptySubject, swapSubject}
