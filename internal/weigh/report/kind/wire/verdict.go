// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// wireTargets are how many times another's rate ours has to be, in the mode whose
// packets have the hops of the bare forwarder.
var wireTargets = []struct {
	subject string
	times   float64
}{{model.BareSubject, 0.85}, {model.IptablesSubject, 2}, {model.ProxyTCPSubject, 20}}

// wireTargetPrefix begins the names of the subjects that they are about.
const wireTargetPrefix = model.OwnPrefix + "l2dsr-xdp"

// wireJudged is a target with its figures, in words.
type wireJudged struct {
	text  string
	holds bool
}

// wireJudgement says which hold and which are missed.
func wireJudgement(s *model.Section, all []wireJudged) []string {
	var held, missed, sentences []string
	for _, j := range all {
		if j.holds {
			held = append(held, j.text)
		} else {
			missed = append(missed, j.text)
		}
	}
	if len(held) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s: targets that hold: %s.", s.Title(), strings.Join(held, "; ")))
	}
	if len(missed) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s: targets that are missed: %s.", s.Title(),
			strings.Join(missed, "; ")))
	}
	return sentences
}

// wirePeakVerdict tells the rates, and holds ours against the targets.
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
	return append(sentences, wireJudgement(s, peakTargets(s, metric))...)
}

// peakTargets holds our best with the least hops against the others' best.
func peakTargets(s *model.Section, metric string) []wireJudged {
	var all []wireJudged
	for _, g := range s.Groups {
		ours := g.Best(wireTargetPrefix, metric)
		for _, target := range wireTargets {
			r, ok := model.RatioOf(ours, g.Best(target.subject, metric), metric)
			if !ok {
				continue
			}
			all = append(all, wireJudged{
				text: fmt.Sprintf("%s at least %s × %s (%s)", wording.Clean(ours.Label), wording.RatioText(target.times),
					target.subject, wording.Times(r)),
				holds: r >= target.times,
			})
		}
	}
	return all
}

// ladderVerdict says how far each got, and holds ours that take servers in turn against
// the target of evenness.
func ladderVerdict(s *model.Section) []string {
	var words []string
	var all []wireJudged
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
			all = append(all, wireJudged{
				text: fmt.Sprintf("%s evenly, within %d %% at every step (at worst %s %%)", wording.Clean(label), evenBound,
					wording.Decimal(c.uneven, 2)),
				holds: c.uneven <= evenBound,
			})
		}
	}
	return append([]string{fmt.Sprintf("%s: rates that each carried without loss: %s.", s.Title(),
		strings.Join(words, "; "))}, wireJudgement(s, all)...)
}

// capacityVerdict says how many connections each held. Ours must hold all that they are asked for, and those that
// choose by a hash remember none of them.
func capacityVerdict(s *model.Section) []string {
	var words []string
	var all []wireJudged
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
		holds := alive.Min >= asked.Max
		if p.Params[model.ParamScheduler].Word == "maglev" {
			holds = holds && p.Stats[results.RememberedMax].Max == 0
		}
		all = append(all, wireJudged{"held and proven by " + text, holds})
	}
	var sentences []string
	if len(words) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s: connections alive in the end: %s.", s.Title(),
			strings.Join(words, "; ")))
	}
	return append(sentences, wireJudgement(s, all)...)
}

// besideVerdict: the traffic beside a flood must lose nothing through ours.
func besideVerdict(s *model.Section) []string {
	var words []string
	var all []wireJudged
	for _, p := range s.Points() {
		lost := p.Stats[results.Failed]
		text := fmt.Sprintf("%s lost %s of %s", wording.Clean(p.Label), wording.Decimal(lost.Max, 0),
			wording.Decimal(p.Stats[results.WireBegun].Median, 0))
		if p.Has(results.FloodSentPerSecond) {
			text += fmt.Sprintf(" beside %s SYNs/s", wording.Decimal(p.Stats[results.FloodSentPerSecond].Median, 0))
		}
		if strings.HasPrefix(p.Subject, model.OwnPrefix) {
			all = append(all, wireJudged{text, lost.N > 0 && lost.Max == 0})
		} else {
			words = append(words, text)
		}
	}
	sentences := wireJudgement(s, all)
	if len(words) > 0 {
		sentences = append(sentences, fmt.Sprintf("%s, the others: %s.", s.Title(), strings.Join(words, "; ")))
	}
	return sentences
}
