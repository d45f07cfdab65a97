// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// pair is a contender's best point and what it is held against, where the
// load's parameters are the same.
type pair struct {
	contender, baseline, proxy *point
}

// contenders are the subjects that the verdict is about: our own, or, in a run
// without any, all but the baselines, or else the proxy.
func (s *section) contenders() []string {
	var own, others []string
	for _, name := range s.Subjects {
		switch {
		case !s.measured(name):
		case strings.HasPrefix(name, ownPrefix):
			own = append(own, name)
		case name != baselineSubject && name != s.Baseline && name != proxySubject && name != emptySubject && name != swapSubject:
			others = append(others, name)
		}
	}
	switch {
	case len(own) > 0:
		return own
	case len(others) == 0 && s.measured(proxySubject):
		return []string{proxySubject}
	}
	return others
}

// pairs takes the contender's best point of every group.
func (s *section) pairs(contender string) []pair {
	rate, _, _ := s.rate()
	var ps []pair
	for _, g := range s.Groups {
		if c := g.best(contender, rate); c != nil {
			ps = append(ps, pair{c, g.best(s.Baseline, rate), g.best(proxySubject, rate)})
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
	return strings.TrimSuffix(low, " ×") + "–" + high
}

// tie says so where the repeats overlap in all groups.
func (s span) tie(groups int) string {
	if s.n == 0 || groups < s.n {
		return ""
	}
	return " (within the spread)"
}

// spans are the ratios of a contender over all groups.
type spans struct {
	toBaseline, toProxy, cpu span
	// baselineTied and proxyTied count the groups where the repeats overlap.
	baselineTied, proxyTied int
}

func spansOf(ps []pair, rate string) spans {
	var sp spans
	for _, p := range ps {
		sp.toBaseline.add(ratioOf(p.contender, p.baseline, rate))
		sp.toProxy.add(ratioOf(p.contender, p.proxy, rate))
		if r, ok := ratioOf(p.contender, p.proxy, results.BalancerCPUUsPerRequest); ok && r > 0 {
			sp.cpu.add(r, true)
		}
		sp.baselineTied += b2i(tied(p.contender, p.baseline, rate))
		sp.proxyTied += b2i(tied(p.contender, p.proxy, rate))
	}
	return sp
}

// tied says whether the repeats of two points overlap.
func tied(a, b *point, metric string) bool {
	return b != nil && a.Stats[metric].N > 1 && b.Stats[metric].N > 1 && a.Stats[metric].overlaps(b.Stats[metric])
}

// verdict says in sentences what the figures of a load show.
func verdict(s *section) []string {
	if !slices.ContainsFunc(s.points(), func(p *point) bool { return p.Valid > 0 }) {
		return []string{fmt.Sprintf("%s: no valid trial, so nothing to judge; the reasons are listed below.", s.title())}
	}
	if kind := s.kind(); kind != nil {
		return kind.verdict(s)
	}
	if s.isPackets() {
		return packetVerdict(s)
	}
	if s.laddered() {
		return append(arrivalVerdict(s), prefixedSaturation(s)...)
	}
	var sentences []string
	for _, name := range s.contenders() {
		if v := verdictOn(s, name); v != "" {
			sentences = append(sentences, s.title()+": "+v)
		}
	}
	for _, v := range floorVerdict(s) {
		sentences = append(sentences, s.title()+": "+v)
	}
	if v := saturationVerdict(s); v != "" {
		sentences = append(sentences, s.title()+": "+v)
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
	if contender == proxySubject {
		sp.toProxy, sp.cpu = span{}, span{}
	}
	var served []string
	add := func(to span, ties int, subject string) {
		if to.n == 0 {
			return
		}
		what := "that"
		if len(served) == 0 {
			what = "the " + noun
		}
		served = append(served, fmt.Sprintf("%s %s of %s%s", to.text(times), what, s.chosen(ps, subject), to.tie(ties)))
	}
	add(sp.toProxy, sp.proxyTied, proxySubject)
	add(sp.toBaseline, sp.baselineTied, s.Baseline)
	if len(served) == 0 {
		return fmt.Sprintf("%s served %s %s; neither %s nor %s was measured, so there is nothing to hold it against.",
			s.chosen(ps, contender), rangeOf(ps, rate), noun, s.Baseline, proxySubject)
	}
	text := fmt.Sprintf("%s served %s", s.chosen(ps, contender), strings.Join(served, " and "))
	if sp.cpu.n > 0 {
		text += fmt.Sprintf("; its CPU time per request is %s of %s's", sp.cpu.text(fraction), proxySubject)
	}
	return text + overPoints(len(ps)) + "."
}

// chosen names the subject, and which of its variants the pairs took.
func (s *section) chosen(ps []pair, subject string) string {
	name := clean(subject)
	var varying []string
	for _, own := range s.Own {
		if s.variesWithin(subject, own) {
			varying = append(varying, own)
		}
	}
	if len(varying) == 0 {
		return name
	}
	if len(ps) == 1 {
		if p := ps[0].of(subject); p != nil {
			return fmt.Sprintf("%s (%s, its best)", name, p.Params.only(varying).text())
		}
	}
	var variants []string
	for _, p := range s.points() {
		if v := p.Params.only(varying).text(); p.Subject == subject && !slices.Contains(variants, v) {
			variants = append(variants, v)
		}
	}
	if len(variants) < 2 {
		return name
	}
	return fmt.Sprintf("%s (best of %s)", name, list(variants))
}

// of returns the pair's point of a subject, or nil.
func (p pair) of(subject string) *point {
	for _, q := range []*point{p.contender, p.baseline, p.proxy} {
		if q != nil && q.Subject == subject {
			return q
		}
	}
	return nil
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
			if p.Subject == name {
				words = append(words, p.saturated...)
			}
		}
		if len(words) > 0 {
			parts = append(parts, clean(name)+" "+tally(words, true))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	_, _, noun := s.rate()
	return "what was saturated, by trials: " + strings.Join(parts, "; ") +
		". Only where that is the balancer, its " + noun + " are its ceiling."
}

// cards are the verdicts of a load in figures.
func cards(s *section, colours *palette) []card {
	if s.kind() != nil {
		return nil
	}
	if s.isPackets() {
		return packetCards(s, colours)
	}
	var out []card
	for _, name := range s.contenders() {
		c := card{Subject: clean(name), Load: s.title(), ink: colours.subject(name)}
		c.Figures = loadFigures(s, name)
		if len(c.Figures) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func loadFigures(s *section, name string) []figureText {
	rate, _, noun := s.rate()
	sp := spansOf(s.pairs(name), rate)
	if name == proxySubject {
		sp.toProxy, sp.cpu = span{}, span{}
	}
	var f []figureText
	if sp.toProxy.n > 0 {
		f = append(f, figureText{sp.toProxy.text(times), noun + " of " + proxySubject + sp.toProxy.tie(sp.proxyTied)})
	}
	if sp.toBaseline.n > 0 {
		f = append(f, figureText{sp.toBaseline.text(times), noun + " of " + s.Baseline + sp.toBaseline.tie(sp.baselineTied)})
	}
	if sp.cpu.n > 0 {
		f = append(f, figureText{sp.cpu.text(fraction), "balancer CPU per request of " + proxySubject})
	}
	return f
}
