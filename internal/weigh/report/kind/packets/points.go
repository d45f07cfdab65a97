// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// adjustSubject makes room for a header in front of a packet, and does nothing else. Its cost includes the harness's
// work to undo that for the next packet.
const adjustSubject = "adjust"

// inHook names a group's hook in a title.
func inHook(g *model.Group) string {
	if hook, ok := g.Params[model.ParamHook]; ok {
		return " in " + strings.ToUpper(hook.Text(model.ParamHook))
	}
	return ""
}

// netOfAdjust returns the cost of a tunnel's packet minus that of the room for its header; ok is false for other
// packets.
func netOfAdjust(s *model.Section, p *model.Point) (net float64, ok bool) {
	if _, tunnel := p.Params[model.ParamOuter]; !tunnel || !p.Has(results.NsNetOfEmpty) {
		return 0, false
	}
	for _, q := range s.Points() {
		if q.Subject == adjustSubject && q.Params[model.ParamHook] == p.Params[model.ParamHook] &&
			q.Params[model.ParamFlows] == p.Params[model.ParamFlows] && q.Has(results.NsNetOfEmpty) {
			return p.Stats[results.NsNetOfEmpty].Median - q.Stats[results.NsNetOfEmpty].Median, true
		}
	}
	return 0, false
}

// ofFlows returns the point that differs from p at most in its number of flows, or nil.
func ofFlows(s *model.Section, p *model.Point, flows model.Value) *model.Point {
	for _, q := range s.Points() {
		if q.Subject == p.Subject && q.Params[model.ParamFlows] == flows && sameKind(p, q) {
			return q
		}
	}
	return nil
}

// oneFlow returns the point that differs from p at most in having one flow.
func oneFlow(s *model.Section, p *model.Point) *model.Point {
	return ofFlows(s, p, model.Value{Number: 1, Numeric: true})
}

// fewestFlows returns the point that differs from p at most in having the fewest flows.
func fewestFlows(s *model.Section, p *model.Point) *model.Point {
	return ofFlows(s, p, model.Distinct(s.Trials, model.ParamFlows)[0])
}

// mostFlows returns the point that differs from p at most in having the most flows.
func mostFlows(s *model.Section, p *model.Point) *model.Point {
	flows := model.Distinct(s.Trials, model.ParamFlows)
	return ofFlows(s, p, flows[len(flows)-1])
}

// bySubject regroups a section: one group for each hook, in the order in which hooks were measured first, with each
// subject's points together.
func bySubject(s *model.Section) *model.Section {
	r := *s
	r.Groups = nil
	byHook := map[model.Value]*model.Group{}
	for _, t := range s.Trials {
		hook := model.ToParams(t.Params)[model.ParamHook]
		if byHook[hook] == nil {
			byHook[hook] = &model.Group{Params: model.ToParams(t.Params).Only([]string{model.ParamHook})}
			r.Groups = append(r.Groups, byHook[hook])
		}
	}
	for _, p := range s.Points() {
		g := byHook[p.Params[model.ParamHook]]
		g.Points = append(g.Points, p)
	}
	for _, g := range r.Groups {
		slices.SortStableFunc(g.Points, func(a, b *model.Point) int {
			return cmp.Or(
				cmp.Compare(slices.Index(s.Subjects, a.Subject), slices.Index(s.Subjects, b.Subject)),
				a.Params.Compare(b.Params),
			)
		})
	}
	return &r
}

// tracked reports whether the balancer remembers the flows of a point.
func tracked(p *model.Point) bool {
	return model.Remembers(p) || modeOf(p) == fullNATMode
}

// modeOf returns the mode in the name of one of our subjects, jeoul-MODE-HOOK.
func modeOf(p *model.Point) string {
	mode, _, _ := strings.Cut(strings.TrimPrefix(p.Subject, model.OwnPrefix), "-")
	return mode
}

// withFlows names the number of flows, where that was a parameter.
func withFlows(v model.Value) string {
	if !v.Numeric {
		return ""
	}
	return " with " + model.Describe(model.ParamFlows, v)
}

func nanoseconds(v float64) string { return wording.Decimal(v, 1) }

// ofScheduler reports whether a point is about a scheduler other than Maglev, which all modes have, or about a change.
// Such points are shown in the tables of the schedulers.
func ofScheduler(p *model.Point) bool {
	_, changing := p.Params[model.ParamChange]
	scheduler := p.Params[model.ParamScheduler].Word
	return changing || scheduler != "" && scheduler != string(lb.Maglev)
}

const fullNATMode = "fullnat"

// sameKind reports whether two points differ at most in their flows.
func sameKind(p, q *model.Point) bool {
	a, b := maps.Clone(p.Params), maps.Clone(q.Params)
	delete(a, model.ParamFlows)
	delete(b, model.ParamFlows)
	return a.Key() == b.Key()
}
