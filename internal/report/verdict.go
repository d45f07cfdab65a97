// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/results"
)

// pair is a contender's best point and what it is held against, where the
// load's parameters are the same.
type pair struct {
	contender, baseline, proxy *point
}

// contenders are the subjects that the verdict is about: our own, or, in a run
// without any, all but the baselines.
func (s *section) contenders() []string {
	var own, others []string
	for _, name := range s.Subjects {
		switch {
		case !s.measured(name):
		case strings.HasPrefix(name, ownPrefix):
			own = append(own, name)
		case name != baselineSubject && name != proxySubject && name != emptySubject && name != swapSubject:
			others = append(others, name)
		}
	}
	if len(own) > 0 {
		return own
	}
	return others
}

// pairs takes the contender's best point of every group.
func (s *section) pairs(contender string) []pair {
	rate, _, _ := s.rate()
	var ps []pair
	for _, g := range s.Groups {
		if c := g.best(contender, rate); c != nil {
			ps = append(ps, pair{c, g.best(baselineSubject, rate), g.best(proxySubject, rate)})
		}
	}
	return ps
}

// span is the range of a ratio over the groups.
type span struct {
	low, high float64
	n         int
}

func (s *span) add(r float64, ok bool) {
	if !ok {
		return
	}
	if s.n == 0 {
		s.low, s.high = r, r
	}
	s.low, s.high, s.n = min(s.low, r), max(s.high, r), s.n+1
}

// text formats the range with format, once if both ends look the same.
func (s span) text(format func(float64) string) string {
	low, high := format(s.low), format(s.high)
	if low == high {
		return low
	}
	return strings.TrimSuffix(low, " ×") + " to " + high
}

// spans are the ratios of a contender over all groups.
type spans struct {
	toBaseline, toProxy, cpu span
	// tied counts the groups where the ranges of contender and baseline overlap.
	tied int
}

func spansOf(ps []pair, rate string) spans {
	var sp spans
	for _, p := range ps {
		sp.toBaseline.add(ratioOf(p.contender, p.baseline, rate))
		sp.toProxy.add(ratioOf(p.contender, p.proxy, rate))
		if r, ok := ratioOf(p.contender, p.proxy, results.BalancerCPUUsPerRequest); ok && r > 0 {
			sp.cpu.add(r, true)
		}
		if p.baseline != nil && p.contender.Stats[rate].N > 1 && p.contender.Stats[rate].overlaps(p.baseline.Stats[rate]) {
			sp.tied++
		}
	}
	return sp
}

// verdict says in sentences what the figures of a load show.
func verdict(s *section) []string {
	if !slices.ContainsFunc(s.points(), func(p *point) bool { return p.Valid > 0 }) {
		return []string{fmt.Sprintf("%s: no valid trial, so nothing to judge; the reasons are listed below.", clean(s.Load))}
	}
	if s.isPackets() {
		return packetVerdict(s)
	}
	var sentences []string
	for _, name := range s.contenders() {
		if v := verdictOn(s, name); v != "" {
			sentences = append(sentences, clean(s.Load)+": "+v)
		}
	}
	if v := saturationVerdict(s); v != "" {
		sentences = append(sentences, clean(s.Load)+": "+v)
	}
	return sentences
}

func verdictOn(s *section, contender string) string {
	rate, _, noun := s.rate()
	ps := s.pairs(contender)
	if len(ps) == 0 {
		return ""
	}
	sp := spansOf(ps, rate)
	var served []string
	if sp.toProxy.n > 0 {
		served = append(served, fmt.Sprintf("%s %s's %s", sp.toProxy.text(times), proxySubject, noun))
	}
	if sp.toBaseline.n > 0 {
		served = append(served, fmt.Sprintf("%s %s's", sp.toBaseline.text(times), baselineSubject))
	}
	if len(served) == 0 {
		return fmt.Sprintf("%s served %s %s; neither %s nor %s was measured, so there is nothing to hold it against.",
			clean(contender), rangeOf(ps, rate), noun, baselineSubject, proxySubject)
	}
	text := fmt.Sprintf("%s served %s", clean(contender), strings.Join(served, " and "))
	if sp.tied > 0 && sp.tied == sp.toBaseline.n {
		text += fmt.Sprintf(" (no difference from %s beyond the spread)", baselineSubject)
	}
	if sp.cpu.n > 0 {
		text += fmt.Sprintf("; its CPU time per request is %s of %s's", strings.TrimSuffix(sp.cpu.text(fraction), " of"), proxySubject)
	}
	return text + overPoints(len(ps)) + "."
}

// overPoints says over how many points a range goes.
func overPoints(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (over %d points)", n)
}

// rangeOf returns the range of medians of metric over the contenders.
func rangeOf(ps []pair, metric string) string {
	var sp span
	for _, p := range ps {
		sp.add(p.contender.Stats[metric].Median, true)
	}
	return sp.text(func(v float64) string { return decimal(v, 0) })
}

// saturationVerdict says for each subject what limited it.
func saturationVerdict(s *section) string {
	var parts []string
	for _, name := range s.Subjects {
		var words []string
		for _, p := range s.points() {
			if p.Subject == name && p.Saturated != "" {
				words = append(words, p.Saturated)
			}
		}
		slices.Sort(words)
		words = slices.Compact(words)
		if len(words) > 0 {
			parts = append(parts, clean(name)+" "+strings.Join(words, " / "))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "the saturated part was: " + strings.Join(parts, "; ") + "."
}

// packetVerdict says what the data plane costs.
func packetVerdict(s *section) []string {
	var sentences []string
	for _, name := range s.contenders() {
		var net, growth span
		for _, p := range s.points() {
			if p.Subject != name || !p.has(results.NsNetOfEmpty) {
				continue
			}
			net.add(p.Stats[results.NsNetOfEmpty].Median, true)
			if one := s.oneFlow(p); one != p {
				growth.add(ratioOf(p, one, results.NsNetOfEmpty))
			}
		}
		if net.n == 0 {
			continue
		}
		text := fmt.Sprintf("%s costs %s ns a packet net of an empty program%s",
			clean(name), net.text(func(v float64) string { return decimal(v, 1) }), overPoints(net.n))
		if growth.n > 0 {
			text += fmt.Sprintf("; with more flows it costs %s its one-flow figure", growth.text(times))
		}
		sentences = append(sentences, text+".")
	}
	return sentences
}

// cards are the verdicts of a load in figures.
func cards(s *section, colours *palette) []card {
	var out []card
	for _, name := range s.contenders() {
		c := card{Subject: clean(name), Load: clean(s.Load), ink: colours.subject(name)}
		if s.isPackets() {
			c.Figures = packetFigures(s, name)
		} else {
			c.Figures = loadFigures(s, name)
		}
		if len(c.Figures) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func loadFigures(s *section, name string) []figureText {
	rate, _, noun := s.rate()
	sp := spansOf(s.pairs(name), rate)
	var f []figureText
	if sp.toProxy.n > 0 {
		f = append(f, figureText{sp.toProxy.text(times), noun + " of " + proxySubject})
	}
	if sp.toBaseline.n > 0 {
		f = append(f, figureText{sp.toBaseline.text(times), noun + " of " + baselineSubject})
	}
	if sp.cpu.n > 0 {
		f = append(f, figureText{sp.cpu.text(fraction), "balancer CPU per request of " + proxySubject})
	}
	return f
}

func packetFigures(s *section, name string) []figureText {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range s.points() {
		if p.Subject == name && p.has(results.NsNetOfEmpty) {
			v := p.Stats[results.NsNetOfEmpty].Median
			low, high = min(low, v), max(high, v)
		}
	}
	if math.IsInf(low, 0) {
		return nil
	}
	return []figureText{{span{low, high, 1}.text(func(v float64) string { return decimal(v, 1) }) + " ns", "a packet, net of an empty program"}}
}
