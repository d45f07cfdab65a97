// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// targets bound the cost of a packet of a known flow in a mode, in nanoseconds net of an empty program, when there is
// one flow.
var targets = []struct {
	Mode        string
	Nanoseconds float64
}{{"l2dsr", 35}, {"dscp", 35}, {"nat", 60}, {"ipip", 60}, {fullNATMode, 90}}

// targetGrowth is the greatest ratio of the cost with the most flows to the cost with one flow, where the balancer
// remembers none.
const targetGrowth = 1.5

// targetVerdict states for each hook which targets hold and which are missed.
func targetVerdict(s *model.Section) []string {
	var sentences []string
	for _, g := range bySubject(s).Groups {
		hook := wording.Clean(strings.ToUpper(g.Params[model.ParamHook].Word))
		sentences = append(sentences, model.TargetSentences(
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

// aimedAt reports whether a target applies to a point's figure: packets of known flows that no scheduler has to
// remember, while nothing changes.
func aimedAt(p *model.Point, mode string) bool {
	_, compared := p.Params[model.ParamConfigured]
	_, changing := p.Params[model.ParamChange]
	return !compared && !changing && strings.HasPrefix(p.Subject, model.OwnPrefix) && modeOf(p) == mode &&
		p.Params[model.ParamPackets].Word == model.KnownPackets && !model.Remembers(p) &&
		p.Has(results.NsNetOfEmpty)
}

// costTargets compares a hook's figures with one flow with the targets. Replies are separate from requests, because the
// kernel looks up the route of a reply.
func costTargets(s *model.Section, g *model.Group) []model.TargetResult {
	var all []model.TargetResult
	for _, target := range targets {
		for _, replies := range []bool{false, true} {
			j := model.TargetResult{What: target.Mode, Bound: wording.Decimal(target.Nanoseconds, 0) + " ns",
				Format: nanoseconds}
			if replies {
				j.What += " replies"
			}
			var adjusted model.Span
			for _, p := range g.Points {
				if !aimedAt(p, target.Mode) || oneFlow(s, p) != p ||
					replies != (p.Params[model.ParamDirection].Word == model.ReplyDirection) {
					continue
				}
				j.Figures.Add(p.Stats[results.NsNetOfEmpty].Median, true)
				adjusted.Add(netOfAdjust(s, p))
			}
			if adjusted.N > 0 {
				j.Beside = ", " + adjusted.Text(nanoseconds) + " net of " + adjustSubject
			}
			j.Holds = j.Figures.High <= target.Nanoseconds
			if j.Figures.N > 0 {
				all = append(all, j)
			}
		}
	}
	return all
}

// growthTargets compares a hook's figures with the most flows with those with one flow, mode by mode.
func growthTargets(s *model.Section, g *model.Group) []model.TargetResult {
	flows := model.Distinct(s.Trials, model.ParamFlows)
	most := flows[len(flows)-1]
	var modes []string
	growth := map[string]*model.Span{}
	for _, p := range g.Points {
		mode := modeOf(p)
		if !aimedAt(p, mode) || tracked(p) || p.Params[model.ParamFlows] != most || oneFlow(s, p) == p {
			continue
		}
		if growth[mode] == nil {
			growth[mode] = &model.Span{}
			modes = append(modes, mode)
		}
		growth[mode].Add(model.RatioOf(p, oneFlow(s, p), results.NsNetOfEmpty))
	}
	modes = slices.DeleteFunc(modes, func(mode string) bool { return growth[mode].N == 0 })
	var all []model.TargetResult
	for _, mode := range modes {
		all = append(all, model.TargetResult{
			What:    fmt.Sprintf("%s%s", wording.Clean(mode), withFlows(most)),
			Bound:   wording.Decimal(targetGrowth, 1) + " × one flow",
			Figures: *growth[mode], Format: wording.Times, Holds: growth[mode].High <= targetGrowth,
		})
	}
	return all
}

// configuredVerdict gives the cost of a packet under configurations that differ in their other contents.
func configuredVerdict(s *model.Section) []string {
	var sentences []string
	for _, g := range bySubject(s).Groups {
		var parts []string
		subject := ""
		for _, p := range g.Points {
			configured, ok := p.Params[model.ParamConfigured]
			if !ok || !p.Has(results.NsNetOfEmpty) || fewestFlows(s, p) != p {
				continue
			}
			subject = wording.Clean(p.Subject)
			parts = append(parts, fmt.Sprintf("%s ns with %s configured",
				nanoseconds(p.Stats[results.NsNetOfEmpty].Median), model.Describe(model.ParamConfigured, configured)))
		}
		if len(parts) > 1 {
			sentences = append(sentences, fmt.Sprintf("What else is configured: %s forwards the same packets for %s.",
				subject, wording.List(parts)))
		}
	}
	return sentences
}
