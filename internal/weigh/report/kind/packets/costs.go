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

// packetCost is the cost of packets of one kind for a subject in one of its variants.
type packetCost struct {
	subject, variant string
	// few and many are the ranges of net costs with the fewest and the most flows; growth is the range of their ratios.
	few, many, growth model.Span
	// fewest and most are the points of few and many.
	fewest, most        []*model.Point
	fewFlows, manyFlows model.Value
	hook                model.Value
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

// packetCosts sums up the contenders' costs, with foreign packets separate from the others. Schedulers are compared
// elsewhere.
func packetCosts(s *model.Section) []*packetCost {
	var costs []*packetCost
	for _, p := range bySubject(s).Points() {
		if !p.Has(results.NsNetOfEmpty) || !slices.Contains(s.Contenders(), p.Subject) {
			continue
		}
		if _, compared := p.Params[model.ParamConfigured]; compared || ofScheduler(p) {
			continue
		}
		foreign := p.Params[model.ParamPackets].Word == model.ForeignPackets
		variant := ""
		if !foreign {
			variant = p.Params.Only(variants(s, p)).Text()
		}
		i := slices.IndexFunc(costs, func(c *packetCost) bool {
			return c.subject == p.Subject && c.variant == variant && c.foreign == foreign
		})
		if i < 0 {
			i = len(costs)
			costs = append(costs, &packetCost{subject: p.Subject, variant: variant, foreign: foreign,
				hook: p.Params[model.ParamHook]})
		}
		costs[i].add(s, p)
	}
	return costs
}

// variants names the parameters whose values select another kind of forwarding, and not only other packets.
func variants(s *model.Section, p *model.Point) []string {
	var names []string
	if s.VariesWithin(p.Subject, model.ParamDirection) {
		names = append(names, model.ParamDirection)
	}
	if tracked(p) {
		// A new flow costs an entry in a table.
		names = append(names, model.ParamPackets)
	}
	return names
}

// add includes a point.
func (c *packetCost) add(s *model.Section, p *model.Point) {
	flows := model.Distinct(s.Trials, model.ParamFlows)
	c.fewFlows, c.manyFlows = flows[0], flows[len(flows)-1]
	at := p.Params[model.ParamFlows]
	net := p.Stats[results.NsNetOfEmpty].Median
	if at == c.fewFlows {
		c.few.Add(net, true)
		c.fewest = append(c.fewest, p)
	}
	if at == c.manyFlows {
		c.many.Add(net, true)
		c.most = append(c.most, p)
		if one := oneFlow(s, p); one != p {
			c.growth.Add(model.RatioOf(p, one, results.NsNetOfEmpty))
		}
	}
}

// packetVerdict states which targets hold, and the cost of the data plane.
func packetVerdict(s *model.Section) []string {
	return slices.Concat(targetVerdict(s), costVerdict(s), schedulerVerdict(s), configuredVerdict(s))
}

// costVerdict returns a sentence for each hook, with all that was measured in it.
func costVerdict(s *model.Section) []string {
	var sentences []string
	costs := packetCosts(s)
	for _, g := range bySubject(s).Groups {
		var parts []string
		for _, c := range costs {
			if text := c.text(); text != "" && c.hook == g.Params[model.ParamHook] {
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

// columns names the figures of text.
func (c packetCost) columns() string {
	if c.fewFlows == c.manyFlows {
		return withFlows(c.fewFlows)
	}
	return withFlows(c.fewFlows) + " →" + strings.TrimPrefix(withFlows(c.manyFlows), " with")
}

// text gives the cost of packets with the fewest flows and with the most.
func (c packetCost) text() string {
	var costs []string
	for _, of := range []model.Span{c.few, c.many} {
		if of.N > 0 {
			costs = append(costs, of.Text(nanoseconds))
		}
	}
	if len(costs) == 0 {
		return ""
	}
	name := strings.TrimPrefix(c.name(), model.OwnPrefix)
	name = strings.Replace(name, "-"+wording.Clean(c.hook.Word), "", 1)
	return name + " " + strings.Join(slices.Compact(costs), " → ") + " ns"
}
