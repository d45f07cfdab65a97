// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/certainty"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Yardstick returns the figure that the load's subjects are ranked by; ok is false where a load is judged by more than
// one figure, or lacks that figure.
func (s *Section) Yardstick() (y Yardstick, ok bool) {
	if s.Kind.Yardstick == nil {
		return y, false
	}
	y = s.Kind.Yardstick(s)
	return y, s.Has(y.Metric)
}

// ByRate ranks the subjects of a load by its rate.
func ByRate(s *Section) Yardstick {
	y := Yardstick{More: true, Cost: results.BalancerCPUUsPerRequest, CostUnit: "µs"}
	y.Metric, y.Title, y.Noun = s.Rate()
	return y
}

// Pick returns the subject's point that is best by the yardstick, or nil.
func (y Yardstick) Pick(g *Group, subject string) *Point {
	var best *Point
	for _, p := range g.Points {
		if p.Subject != subject || !p.Has(y.Metric) {
			continue
		}
		if best == nil || (p.Stats[y.Metric].Median > best.Stats[y.Metric].Median) == y.More {
			best = p
		}
	}
	return best
}

// Compare pairs the repeats of two subjects by a metric, of their best points by the yardstick.
func (s *Section) Compare(y Yardstick, of, to, metric string) Comparison {
	d := Comparison{Of: of, To: to}
	var pairs []certainty.Pair
	for _, g := range s.Groups {
		a, b := y.Pick(g, of), y.Pick(g, to)
		if a == nil || b == nil || !a.Has(metric) || !b.Has(metric) {
			continue
		}
		d.Points++
		here := pairsOf(a, b, metric)
		d.Repeats = max(d.Repeats, len(here))
		pairs = append(pairs, here...)
	}
	d.Estimate = certainty.Ratio(pairs)
	return d
}

// pairsOf are the measurements of two points in the same repeats.
func pairsOf(a, b *Point, metric string) (pairs []certainty.Pair) {
	at := map[int]float64{}
	for _, t := range b.valid {
		at[t.Repeat] = t.Metrics[metric]
	}
	for _, t := range a.valid {
		if v, ok := at[t.Repeat]; ok {
			pairs = append(pairs, certainty.Pair{Of: t.Metrics[metric], To: v})
		}
	}
	return pairs
}

// Level estimates the mean of a metric over points from the repeats that all of them have.
func Level(points []*Point, metric string) Comparison {
	sums, counts := map[int]float64{}, map[int]int{}
	for _, p := range points {
		for _, t := range p.valid {
			if v, ok := t.Metrics[metric]; ok {
				sums[t.Repeat] += v
				counts[t.Repeat]++
			}
		}
	}
	var pairs []certainty.Pair
	for _, repeat := range slices.Sorted(maps.Keys(sums)) {
		if counts[repeat] == len(points) {
			pairs = append(pairs, certainty.Pair{Of: sums[repeat] / float64(len(points)), To: 1})
		}
	}
	return Comparison{Estimate: certainty.Ratio(pairs), Points: 1, Repeats: len(pairs)}
}

// LevelText formats an estimate of a level, with its interval where there is one: "15.8 (15.1–16.5)".
func (d Comparison) LevelText(format func(float64) string) string {
	switch {
	case d.Pairs == 0:
		return wording.Missing
	case !d.Sure():
		return format(d.Ratio)
	}
	return format(d.Ratio) + " (" + format(d.Low) + "–" + format(d.High) + ")"
}

// Tied reports whether two points cannot be told apart.
func Tied(a, b *Point, metric string) bool {
	pairs := pairsOf(a, b, metric)
	return !Comparison{Estimate: certainty.Ratio(pairs), Repeats: len(pairs)}.Significant()
}

// Sure reports whether there is an interval. Points of a single repeat have none, however many they are: nothing shows
// by how much another repeat would differ.
func (d Comparison) Sure() bool { return d.Bounded() && d.Repeats > 1 }

// Significant reports whether the two subjects differ by more than the spread. A ratio that rounds to 1.00 is no
// difference, however sure.
func (d Comparison) Significant() bool {
	return d.Sure() && d.Differs() && wording.RatioText(d.Ratio) != wording.RatioText(1)
}

// Interval formats the ratio with its interval: "1.92 (1.74–2.10)".
func (d Comparison) Interval() string {
	if d.Pairs == 0 {
		return wording.Missing
	}
	return wording.RatioText(d.Ratio) + d.Brackets()
}

// Brackets formats the interval, to stand behind a ratio: " (1.74–2.10)", or nothing without one.
func (d Comparison) Brackets() string {
	if !d.Sure() {
		return ""
	}
	return " (" + wording.RatioText(d.Low) + "–" + wording.RatioText(d.High) + ")"
}

// RepeatsNeeded estimates how many repeats would tell the two apart.
func (d Comparison) RepeatsNeeded() int { return d.RepeatsOf(d.PairsNeeded()) }

// RepeatsOf returns how many repeats, two at least, have so many pairs.
func (d Comparison) RepeatsOf(pairs int) int {
	return max(2, int(math.Ceil(float64(pairs)/float64(max(d.Points, 1)))))
}

// Ranking ranks the load's balancers; ok is false if there are none, or nothing to compare them with.
func (s *Section) Ranking() (r Ranking, ok bool) {
	if s.ranked == nil {
		r, ok = s.rank()
		s.ranked = &ranked{r, ok}
	}
	return s.ranked.Ranking, s.ranked.ok
}

func (s *Section) rank() (r Ranking, ok bool) {
	r.Yardstick, ok = s.Yardstick()
	if !ok {
		return r, false
	}
	balancers := slices.DeleteFunc(slices.Clone(s.Subjects), func(name string) bool {
		return slices.Contains(NotBalancers, name) || !s.Measured(name)
	})
	if len(balancers) == 0 { // A run may measure the cost of the path to a balancer.
		balancers = slices.DeleteFunc(slices.Clone(s.Subjects), func(name string) bool {
			return name == s.Baseline || !s.Measured(name)
		})
	}
	if len(balancers) == 0 {
		return r, false
	}
	r.leader = balancers[0]
	for _, name := range balancers[1:] {
		if d := s.Compare(r.Yardstick, name, r.leader, r.Metric); d.Pairs > 0 && (d.Ratio > 1) == r.More {
			r.leader = name
		}
	}
	for _, name := range balancers {
		if name == r.leader {
			continue
		}
		if d := s.Compare(r.Yardstick, name, r.leader, r.Metric); d.Significant() {
			r.Worse = append(r.Worse, d)
		} else if d.Pairs > 0 {
			r.Tied = append(r.Tied, d)
		}
	}
	r.Reference = s.referenceOf(r)
	if r.Reference == "" {
		return r, false
	}
	r.ToReference = s.Compare(r.Yardstick, r.leader, r.Reference, r.Metric)
	return r, r.ToReference.Pairs > 0
}

// referenceOf returns the subject that the leader is compared with: the proxy, otherwise the best balancer of another
// maker, otherwise the baseline, otherwise the next best.
func (s *Section) referenceOf(r Ranking) string {
	meets := func(name string) bool {
		return name != r.leader && s.Measured(name) && s.Compare(r.Yardstick, r.leader, name, r.Metric).Pairs > 0
	}
	if meets(ProxySubject) {
		return ProxySubject
	}
	others := slices.Concat(r.Tied, r.Worse)
	slices.SortStableFunc(others, func(a, b Comparison) int {
		if r.More {
			return cmp.Compare(b.Ratio, a.Ratio)
		}
		return cmp.Compare(a.Ratio, b.Ratio)
	})
	own := strings.HasPrefix(r.leader, OwnPrefix)
	otherKind := func(d Comparison) bool { return strings.HasPrefix(d.Of, OwnPrefix) != own }
	if i := slices.IndexFunc(others, otherKind); i >= 0 {
		return others[i].Of
	}
	if meets(s.Baseline) {
		return s.Baseline
	}
	if len(others) == 0 {
		return ""
	}
	return others[0].Of
}
