// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// packetCost is what packets of one kind cost a subject in one of its variants.
type packetCost struct {
	subject, variant string
	// few and many are the ranges of net costs with the fewest and the most
	// flows, growth that of their ratios.
	few, many, growth   span
	fewFlows, manyFlows value
	hook                value
	foreign             bool
}

// name returns the subject with its variant.
func (c packetCost) name() string {
	switch {
	case c.foreign:
		return wording.Clean(c.subject) + " · not its own"
	case c.variant == "":
		return wording.Clean(c.subject)
	}
	return wording.Clean(c.subject) + " · " + c.variant
}

// packetCosts sums up the contenders' costs, packets that are not the
// balancer's apart from the others. Schedulers are compared elsewhere.
func packetCosts(s *section) []*packetCost {
	var costs []*packetCost
	for _, p := range s.bySubject().points() {
		if !p.has(results.NsNetOfEmpty) || !slices.Contains(s.contenders(), p.Subject) {
			continue
		}
		if _, compared := p.Params[paramConfigured]; compared || ofScheduler(p) {
			continue
		}
		foreign := p.Params[paramPackets].word == foreignPackets
		variant := ""
		if !foreign {
			variant = p.Params.only(s.variants(p)).text()
		}
		i := slices.IndexFunc(costs, func(c *packetCost) bool {
			return c.subject == p.Subject && c.variant == variant && c.foreign == foreign
		})
		if i < 0 {
			i = len(costs)
			costs = append(costs, &packetCost{subject: p.Subject, variant: variant, foreign: foreign,
				hook: p.Params[paramHook]})
		}
		costs[i].add(s, p)
	}
	return costs
}

// variants names the parameters whose values are different things to forward,
// and not the same one under other packets.
func (s *section) variants(p *point) []string {
	var names []string
	if s.variesWithin(p.Subject, paramDirection) {
		names = append(names, paramDirection)
	}
	if tracked(p) {
		// A new flow costs an entry in a table.
		names = append(names, paramPackets)
	}
	return names
}

// tracked says whether the balancer remembers the flows of a point.
func tracked(p *point) bool {
	return remembers(p) || modeOf(p) == fullNATMode
}

// modeOf returns the mode in the name of one of our subjects, jeoul-MODE-HOOK.
func modeOf(p *point) string {
	mode, _, _ := strings.Cut(strings.TrimPrefix(p.Subject, ownPrefix), "-")
	return mode
}

// add counts a point in.
func (c *packetCost) add(s *section, p *point) {
	flows := distinct(s.trials, paramFlows)
	c.fewFlows, c.manyFlows = flows[0], flows[len(flows)-1]
	at := p.Params[paramFlows]
	net := p.Stats[results.NsNetOfEmpty].Median
	if at == c.fewFlows {
		c.few.add(net, true)
	}
	if at == c.manyFlows {
		c.many.add(net, true)
		if one := s.oneFlow(p); one != p {
			c.growth.add(ratioOf(p, one, results.NsNetOfEmpty))
		}
	}
}

// withFlows says with how many flows, where that was a parameter.
func withFlows(v value) string {
	if !v.numeric {
		return ""
	}
	return " with " + describe(paramFlows, v)
}

func nanoseconds(v float64) string { return wording.Decimal(v, 1) }

// packetVerdict says which targets hold, and what the data plane costs.
func packetVerdict(s *section) []string {
	return slices.Concat(targetVerdict(s), costVerdict(s), schedulerVerdict(s), configuredVerdict(s))
}

// costVerdict has a sentence a hook, with all that was measured in it.
func costVerdict(s *section) []string {
	var sentences []string
	costs := packetCosts(s)
	for _, g := range s.bySubject().Groups {
		var parts []string
		for _, c := range costs {
			if text := c.text(); text != "" && c.hook == g.Params[paramHook] {
				parts = append(parts, text)
			}
		}
		if len(parts) > 0 {
			sentences = append(sentences, fmt.Sprintf("A packet%s costs, net of an empty program%s: %s.",
				inHook(g), costs[0].columns(), strings.Join(parts, "; ")))
		}
	}
	return sentences
}

// columns says what the figures of text are.
func (c packetCost) columns() string {
	if c.fewFlows == c.manyFlows {
		return withFlows(c.fewFlows)
	}
	return withFlows(c.fewFlows) + " →" + strings.TrimPrefix(withFlows(c.manyFlows), " with")
}

// text says what packets cost with the fewest flows and with the most.
func (c packetCost) text() string {
	var costs []string
	for _, of := range []span{c.few, c.many} {
		if of.n > 0 {
			costs = append(costs, of.text(nanoseconds))
		}
	}
	if len(costs) == 0 {
		return ""
	}
	name := strings.TrimPrefix(c.name(), ownPrefix)
	name = strings.Replace(name, "-"+wording.Clean(c.hook.word), "", 1)
	return name + " " + strings.Join(slices.Compact(costs), " → ") + " ns"
}
