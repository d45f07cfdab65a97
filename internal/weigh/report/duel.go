// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/certainty"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// yardstick is what the subjects of a load are ranked by.
type yardstick struct {
	metric, title, noun string
	// more says that more is better.
	more bool
	// cost is the metric of the balancer's CPU time, per what costUnit names.
	cost, costUnit string
}

// yardstick returns what the load's subjects are ranked by; ok is false where a load is judged by more than one figure.
func (s *section) yardstick() (y yardstick, ok bool) {
	y.more = true
	y.metric, y.title, y.noun = s.rate()
	y.cost, y.costUnit = s.costMetric()
	switch {
	case s.isWire() && !s.isLadder() && s.Constant[paramWire].word != wireCapacity && !s.hasParam("beside"):
		y.metric, y.title, y.noun = s.wireRate()
		y.noun = nouns(y.noun) + "/s"
		y.cost, y.costUnit = results.BalancerCPUUsPerConnection, "µs"
	case s.isWire():
		return y, false
	case s.laddered():
		y.metric, y.title, y.noun, y.more = results.LatencyMsP99, "p99, ms", "p99", false
	case s.isPackets() || s.kind() != nil && !s.isDNS():
		return y, false
	}
	return y, s.has(y.metric)
}

// pick returns the subject's point that is best by the yardstick, or nil.
func (y yardstick) pick(g *group, subject string) *point {
	var best *point
	for _, p := range g.Points {
		if p.Subject != subject || !p.has(y.metric) {
			continue
		}
		if best == nil || (p.Stats[y.metric].Median > best.Stats[y.metric].Median) == y.more {
			best = p
		}
	}
	return best
}

// duel is how one subject stands to another over the points that both have.
type duel struct {
	of, to string
	certainty.Estimate
	// points are the pairs of points, repeats the most pairs that one of them has.
	points, repeats int
}

// duel pairs the repeats of two subjects by a metric, of their best points by the yardstick.
func (s *section) duel(y yardstick, of, to, metric string) duel {
	d := duel{of: of, to: to}
	var pairs []certainty.Pair
	for _, g := range s.Groups {
		a, b := y.pick(g, of), y.pick(g, to)
		if a == nil || b == nil || !a.has(metric) || !b.has(metric) {
			continue
		}
		d.points++
		here := pairsOf(a, b, metric)
		d.repeats = max(d.repeats, len(here))
		pairs = append(pairs, here...)
	}
	d.Estimate = certainty.Ratio(pairs)
	return d
}

// pairsOf are what two points measured in the same repeats.
func pairsOf(a, b *point, metric string) (pairs []certainty.Pair) {
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

// tied says whether two points cannot be told apart.
func tied(a, b *point, metric string) bool {
	pairs := pairsOf(a, b, metric)
	return !duel{Estimate: certainty.Ratio(pairs), repeats: len(pairs)}.told()
}

// sure says whether there is an interval. Points of a single repeat make none, however many they are: nothing says by
// how much another repeat would differ.
func (d duel) sure() bool { return d.Bounded() && d.repeats > 1 }

// told says whether the two are told apart. What rounds to 1.00 is no difference, however sure.
func (d duel) told() bool {
	return d.sure() && d.Differs() && wording.RatioText(d.Ratio) != wording.RatioText(1)
}

// interval formats the ratio with its interval: "1.92 (1.74–2.10)".
func (d duel) interval() string {
	if d.Pairs == 0 {
		return wording.Missing
	}
	return wording.RatioText(d.Ratio) + d.brackets()
}

// brackets formats the interval, to stand behind a ratio: " (1.74–2.10)", or nothing without one.
func (d duel) brackets() string {
	if !d.sure() {
		return ""
	}
	return " (" + wording.RatioText(d.Low) + "–" + wording.RatioText(d.High) + ")"
}

// repeatsToTell estimates how many repeats would tell the two apart.
func (d duel) repeatsToTell() int {
	return max(2, int(math.Ceil(float64(d.PairsToTell())/float64(max(d.points, 1)))))
}

// ranking is the subjects of a load in the order of a yardstick.
type ranking struct {
	yardstick
	// leader looks best of the balancers; rivals cannot be told apart from it, and beaten can.
	leader         string
	rivals, beaten []duel
	// reference is the subject that ratios are shown to; toReference is the leader's.
	reference   string
	toReference duel
}

// ranking ranks the load's balancers; ok is false where there is none, or nothing to hold one against.
func (s *section) ranking() (r ranking, ok bool) {
	if s.ranked == nil {
		r, ok = s.rank()
		s.ranked = &ranked{r, ok}
	}
	return s.ranked.ranking, s.ranked.ok
}

// ranked is a ranking that was made.
type ranked struct {
	ranking
	ok bool
}

func (s *section) rank() (r ranking, ok bool) {
	r.yardstick, ok = s.yardstick()
	if !ok {
		return r, false
	}
	balancers := slices.DeleteFunc(slices.Clone(s.Subjects), func(name string) bool {
		return slices.Contains(notBalancers, name) || !s.measured(name)
	})
	if len(balancers) == 0 { // A run may ask what the way to a balancer costs.
		balancers = slices.DeleteFunc(slices.Clone(s.Subjects), func(name string) bool {
			return name == s.Baseline || !s.measured(name)
		})
	}
	if len(balancers) == 0 {
		return r, false
	}
	r.leader = balancers[0]
	for _, name := range balancers[1:] {
		if d := s.duel(r.yardstick, name, r.leader, r.metric); d.Pairs > 0 && (d.Ratio > 1) == r.more {
			r.leader = name
		}
	}
	for _, name := range balancers {
		if name == r.leader {
			continue
		}
		if d := s.duel(r.yardstick, name, r.leader, r.metric); d.told() {
			r.beaten = append(r.beaten, d)
		} else if d.Pairs > 0 {
			r.rivals = append(r.rivals, d)
		}
	}
	r.reference = s.referenceOf(r)
	if r.reference == "" {
		return r, false
	}
	r.toReference = s.duel(r.yardstick, r.leader, r.reference, r.metric)
	return r, r.toReference.Pairs > 0
}

// referenceOf picks what the leader is held against: the proxy, or else the best balancer that is not of the leader's
// makers, or else the baseline, or else the next best.
func (s *section) referenceOf(r ranking) string {
	meets := func(name string) bool {
		return name != r.leader && s.measured(name) && s.duel(r.yardstick, r.leader, name, r.metric).Pairs > 0
	}
	if meets(proxySubject) {
		return proxySubject
	}
	others := slices.Concat(r.rivals, r.beaten)
	slices.SortStableFunc(others, func(a, b duel) int {
		if r.more {
			return cmp.Compare(b.Ratio, a.Ratio)
		}
		return cmp.Compare(a.Ratio, b.Ratio)
	})
	own := strings.HasPrefix(r.leader, ownPrefix)
	if i := slices.IndexFunc(others, func(d duel) bool { return strings.HasPrefix(d.of, ownPrefix) != own }); i >= 0 {
		return others[i].of
	}
	if meets(s.Baseline) {
		return s.Baseline
	}
	if len(others) == 0 {
		return ""
	}
	return others[0].of
}

// costMetric is what the balancer's CPU time is counted by under the load.
func (s *section) costMetric() (metric, unit string) {
	if s.isBulk() {
		return results.BalancerCPUMsPerGigabyte, "ms/GB"
	}
	return results.BalancerCPUUsPerRequest, "µs"
}
