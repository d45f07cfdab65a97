// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const fullNATMode = "fullnat"

// targets are what a packet of a known flow may cost in a mode, in nanoseconds
// net of an empty program, when there is one flow.
var targets = []struct {
	Mode        string
	Nanoseconds float64
}{{"l2dsr", 35}, {"dscp", 35}, {"nat", 60}, {"ipip", 60}, {fullNATMode, 90}}

// targetGrowth is how many times that it may be with the most flows, where the
// balancer remembers none.
const targetGrowth = 1.5

// judged is a target, and the figures that are held against it.
type judged struct {
	what, bound string
	figures     span
	format      func(float64) string
	holds       bool
	// least says that the bound is one from below.
	least bool
	// adjusted are the figures less what making room costs anyway.
	adjusted span
}

func (j judged) text() string {
	figures := strings.TrimSuffix(j.figures.text(j.format), " ×")
	if j.adjusted.n > 0 {
		figures += ", " + j.adjusted.text(nanoseconds) + " net of " + adjustSubject
	}
	sign := "≤"
	if j.least {
		sign = "≥"
	}
	return fmt.Sprintf("%s %s %s (%s)", j.what, sign, j.bound, figures)
}

// targetVerdict says, hook by hook, which targets hold and which are missed.
func targetVerdict(s *section) []string {
	var sentences []string
	for _, g := range s.bySubject().Groups {
		hook := wording.Clean(strings.ToUpper(g.Params[paramHook].word))
		sentences = append(sentences, judgement(
			slices.Concat(costTargets(s, g), growthTargets(s, g), schedulerTargets(s, g)), prefixed(" in ", hook))...)
	}
	return sentences
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// aimedAt says whether a point's figure is one that a target is about: packets
// of known flows that no scheduler has to remember, while nothing changes.
func aimedAt(p *point, mode string) bool {
	_, compared := p.Params[paramConfigured]
	_, changing := p.Params[paramChange]
	return !compared && !changing && strings.HasPrefix(p.Subject, ownPrefix) && modeOf(p) == mode &&
		p.Params[paramPackets].word == knownPackets && !remembers(p) &&
		p.has(results.NsNetOfEmpty)
}

// costTargets holds a hook's figures with one flow against the targets, replies
// apart from requests: their way out is the kernel's to find.
func costTargets(s *section, g *group) []judged {
	var all []judged
	for _, target := range targets {
		for _, replies := range []bool{false, true} {
			j := judged{what: target.Mode, bound: wording.Decimal(target.Nanoseconds, 0) + " ns", format: nanoseconds}
			if replies {
				j.what += " replies"
			}
			for _, p := range g.Points {
				if !aimedAt(p, target.Mode) || s.oneFlow(p) != p ||
					replies != (p.Params[paramDirection].word == replyDirection) {
					continue
				}
				j.figures.add(p.Stats[results.NsNetOfEmpty].Median, true)
				j.adjusted.add(s.netOfAdjust(p))
			}
			j.holds = j.figures.high <= target.Nanoseconds
			if j.figures.n > 0 {
				all = append(all, j)
			}
		}
	}
	return all
}

// growthTargets holds a hook's figures with the most flows against those with
// one, mode by mode.
func growthTargets(s *section, g *group) []judged {
	flows := distinct(s.trials, paramFlows)
	most := flows[len(flows)-1]
	var modes []string
	growth := map[string]*span{}
	for _, p := range g.Points {
		mode := modeOf(p)
		if !aimedAt(p, mode) || tracked(p) || p.Params[paramFlows] != most || s.oneFlow(p) == p {
			continue
		}
		if growth[mode] == nil {
			growth[mode] = &span{}
			modes = append(modes, mode)
		}
		growth[mode].add(ratioOf(p, s.oneFlow(p), results.NsNetOfEmpty))
	}
	modes = slices.DeleteFunc(modes, func(mode string) bool { return growth[mode].n == 0 })
	var all []judged
	for _, mode := range modes {
		all = append(all, judged{
			what:    fmt.Sprintf("%s%s", wording.Clean(mode), withFlows(most)),
			bound:   wording.Decimal(targetGrowth, 1) + " × one flow",
			figures: *growth[mode], format: wording.Times, holds: growth[mode].high <= targetGrowth,
		})
	}
	return all
}

// configuredVerdict says what a packet costs under configurations that differ
// in what they hold besides.
func configuredVerdict(s *section) []string {
	var sentences []string
	for _, g := range s.bySubject().Groups {
		var parts []string
		subject := ""
		for _, p := range g.Points {
			configured, ok := p.Params[paramConfigured]
			if !ok || !p.has(results.NsNetOfEmpty) || s.fewestFlows(p) != p {
				continue
			}
			subject = wording.Clean(p.Subject)
			parts = append(parts, fmt.Sprintf("%s ns with %s configured",
				nanoseconds(p.Stats[results.NsNetOfEmpty].Median), describe(paramConfigured, configured)))
		}
		if len(parts) > 1 {
			sentences = append(sentences, fmt.Sprintf("What else is configured: %s forwards the same packets for %s.",
				subject, wording.List(parts)))
		}
	}
	return sentences
}
