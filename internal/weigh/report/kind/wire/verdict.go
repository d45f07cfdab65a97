// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// wireTargets are the least ratios of our rate to that of another subject, in the mode whose packets have the hops of
// the bare forwarder.
var wireTargets = []struct {
	subject string
	times   float64
}{{model.BareSubject, 0.85}, {model.IptablesSubject, 2}, {model.ProxyTCPSubject, 20}}

// wireTargetPrefix begins the names of the subjects that the targets apply to.
const wireTargetPrefix = model.OwnPrefix + "l2dsr-xdp"

// wireTargetSentences states which targets hold and which are missed.
func wireTargetSentences(s *model.Section, all []model.TargetResult) []string {
	sentences := model.TargetSentences(all, "")
	for i, words := range sentences {
		sentences[i] = s.Title() + ": t" + strings.TrimPrefix(words, "T")
	}
	return sentences
}

// wirePeakVerdict gives the rates, and compares ours with the targets.
func wirePeakVerdict(s *model.Section) []string {
	metric, _, noun := wireRate(s)
	var words []string
	for _, g := range s.Groups {
		for _, p := range g.Points {
			if p.Has(metric) {
				words = append(words, fmt.Sprintf("%s %s", wording.Clean(p.Label), wording.Decimal(p.Stats[metric].Median, 0)))
			}
		}
	}
	sentences := []string{fmt.Sprintf("%s, %s a second: %s.", s.Title(), nouns(noun), strings.Join(words, ", "))}
	if noun != "connection" {
		return sentences
	}
	return append(sentences, wireTargetSentences(s, peakTargets(s, metric))...)
}

// peakTargets compares our best rate with the fewest hops with the best rates of the others.
func peakTargets(s *model.Section, metric string) []model.TargetResult {
	var all []model.TargetResult
	for _, g := range s.Groups {
		ours := g.Best(wireTargetPrefix, metric)
		for _, target := range wireTargets {
			r, ok := model.RatioOf(ours, g.Best(target.subject, metric), metric)
			if !ok {
				continue
			}
			all = append(all, model.TargetResult{
				Words: fmt.Sprintf("%s at least %s × %s (%s)", wording.Clean(ours.Label), wording.RatioText(target.times),
					target.subject, wording.Times(r)),
				Holds: r >= target.times,
			})
		}
	}
	return all
}

// ladderVerdict states how far each subject got, and compares the evenness of our round-robin subjects with the target.
func ladderVerdict(s *model.Section) []string {
	var words []string
	var all []model.TargetResult
	for _, label := range labels(s) {
		c := climb(s, label)
		switch {
		case c.lossless == 0:
			words = append(words, fmt.Sprintf("%s lost some at every rate (at most %s/s)", wording.Clean(label),
				wording.Decimal(c.peak, 0)))
		case c.whole:
			words = append(words, fmt.Sprintf("%s all of them (%s/s)", wording.Clean(label), wording.Decimal(c.lossless, 0)))
		default:
			words = append(words, fmt.Sprintf("%s up to %s/s (at most %s/s)", wording.Clean(label), wording.Decimal(c.lossless, 0),
				wording.Decimal(c.peak, 0)))
		}
		if c.robin && strings.HasPrefix(c.subject, model.OwnPrefix) {
			all = append(all, evenTarget(c))
		}
	}
	return append([]string{fmt.Sprintf("%s: rates that each carried without loss: %s.", s.Title(),
		strings.Join(words, "; "))}, wireTargetSentences(s, all)...)
}

// evenTarget compares a subject's evenness with the target, which it misses in a step in which nothing came through.
func evenTarget(c ladderClimb) model.TargetResult {
	words := fmt.Sprintf("%s evenly, within %d %% at every step (at worst %s %%", wording.Clean(c.label), evenBound,
		wording.Decimal(c.uneven, 2))
	if c.none > 0 {
		words += fmt.Sprintf("; steps with none: %d", c.none)
	}
	return model.TargetResult{Words: words + ")", Holds: c.none == 0 && c.uneven <= evenBound}
}

// brokenDown returns a missed target for each point of ours without a valid trial: nothing came through.
func brokenDown(s *model.Section) []model.TargetResult {
	var all []model.TargetResult
	for _, p := range s.Invalid {
		if strings.HasPrefix(p.Subject, model.OwnPrefix) {
			all = append(all, model.TargetResult{Words: p.InvalidText()})
		}
	}
	return all
}

// capacityVerdict gives the number of connections that each subject held. Our subjects must hold all connections that
// they are asked for, and those that select by a hash must remember none.
func capacityVerdict(s *model.Section) []string {
	var words []string
	var all []model.TargetResult
	for _, p := range s.Points() {
		asked, alive := p.Stats[results.WireBegun], p.Stats[results.WireCompleted]
		text := fmt.Sprintf("%s %s of %s", wording.Clean(p.Label), wording.Decimal(alive.Min, 0), wording.Decimal(asked.Max, 0))
		if p.Has(results.RememberedMax) {
			text += fmt.Sprintf(" (%s remembered)", wording.Decimal(p.Stats[results.RememberedMax].Max, 0))
		}
		if !strings.HasPrefix(p.Subject, model.OwnPrefix) {
			words = append(words, text)
			continue
		}
		holds := p.AllValid() && alive.Min >= asked.Max
		if p.Params[model.ParamScheduler].Word == "maglev" {
			holds = holds && p.Stats[results.RememberedMax].Max == 0
		}
		all = append(all, model.TargetResult{Words: "held and proven by " + text + p.InvalidRemark(), Holds: holds})
	}
	all = append(all, brokenDown(s)...)
	var sentences []string
	if len(words) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s: connections alive in the end: %s.", s.Title(),
			strings.Join(words, "; ")))
	}
	return append(sentences, wireTargetSentences(s, all)...)
}

// besideVerdict states whether the traffic beside a flood lost something: through our subjects it must lose nothing.
func besideVerdict(s *model.Section) []string {
	var words []string
	var all []model.TargetResult
	for _, p := range s.Points() {
		lost := p.Stats[results.Failed]
		text := fmt.Sprintf("%s lost %s of %s", wording.Clean(p.Label), wording.Decimal(lost.Max, 0),
			wording.Decimal(p.Stats[results.WireBegun].Median, 0))
		if p.Has(results.FloodSentPerSecond) {
			text += fmt.Sprintf(" beside %s SYNs/s", wording.Decimal(p.Stats[results.FloodSentPerSecond].Median, 0))
		}
		if strings.HasPrefix(p.Subject, model.OwnPrefix) {
			all = append(all, model.TargetResult{Words: text + p.InvalidRemark(),
				Holds: p.AllValid() && lost.N > 0 && lost.Max == 0})
		} else {
			words = append(words, text)
		}
	}
	sentences := wireTargetSentences(s, append(all, brokenDown(s)...))
	if len(words) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s, the others: %s.", s.Title(), strings.Join(words, "; ")))
	}
	return sentences
}
