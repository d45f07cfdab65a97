// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/certainty"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// subjectParams are the parameters that belong to a subject and not to its load: points that differ only in these can
// be compared with each other.
var subjectParams = []string{"threads", "scheduler", "splice", "upper", "lower", "hook"}

// evidencePoint is a point, and the source that has it.
type evidencePoint struct {
	source *Source
	point  *Point
}

func (f evidencePoint) figure(metric string) Figure { return f.source.figure(f.point, metric) }

// rate returns the name of the metric of which more is better.
func (f evidencePoint) rate() string {
	at := slices.IndexFunc(rates, func(name string) bool { _, ok := f.point.Metrics[name]; return ok })
	if at < 0 {
		return ""
	}
	return rates[at]
}

// find returns the points that match, in the order of the sources.
func (e *Evidence) find(match func(*Point) bool) []evidencePoint {
	var all []evidencePoint
	for i := range e.Sources {
		for j := range e.Sources[i].Points {
			if match(&e.Sources[i].Points[j]) {
				all = append(all, evidencePoint{&e.Sources[i], &e.Sources[i].Points[j]})
			}
		}
	}
	return all
}

// most returns the point of a subject under a load that has the highest rate in the first source with such points, or
// nil. Of several schedulers, the requested one counts if it was measured.
func (e *Evidence) most(load, subject string, scheduler lb.Scheduler) *evidencePoint {
	all := e.find(func(p *Point) bool { return p.Load == load && p.Subject == subject })
	if scheduled := slices.DeleteFunc(slices.Clone(all),
		func(f evidencePoint) bool { return f.point.Params["scheduler"] != string(scheduler) }); len(scheduled) > 0 {
		all = scheduled
	}
	var best *evidencePoint
	for i := range all {
		f := &all[i]
		if f.rate() == "" || best != nil && f.source != best.source {
			continue
		}
		if best == nil || f.point.Repeats > best.point.Repeats ||
			f.point.Repeats == best.point.Repeats &&
				f.point.Metrics[f.rate()].Median > best.point.Metrics[f.rate()].Median {
			best = f
		}
	}
	return best
}

// beside returns the best point of a subject in the same run under the same load and parameters, or nil.
func (f evidencePoint) beside(subject string) *evidencePoint {
	metric := f.rate()
	var best *evidencePoint
	for i := range f.source.Points {
		p := &f.source.Points[i]
		if p.Load != f.point.Load || p.Subject != subject || !sameLoad(p.Params, f.point.Params) {
			continue
		}
		if best == nil || p.Metrics[metric].Median > best.point.Metrics[metric].Median {
			best = &evidencePoint{f.source, p}
		}
	}
	return best
}

// sameLoad reports whether parameters differ only in a subject's own.
func sameLoad(a, b map[string]any) bool {
	differs := func(a, b map[string]any) bool {
		for name, value := range a {
			if !slices.Contains(subjectParams, name) && fmt.Sprint(value) != fmt.Sprint(b[name]) {
				return true
			}
		}
		return false
	}
	return !differs(a, b) && !differs(b, a)
}

// against describes how a point's rate compares with another's of the same run, and how certain that is.
func (f evidencePoint) against(other evidencePoint) string {
	var pairs []certainty.Pair
	for repeat, rate := range f.point.Rates {
		if to, ok := other.point.Rates[repeat]; ok {
			pairs = append(pairs, certainty.Pair{Of: rate, To: to})
		}
	}
	e := certainty.Ratio(pairs)
	name := other.point.Subject
	switch {
	case e.Differs():
		return fmt.Sprintf("%.2f × %s (%.2f to %.2f)", e.Ratio, name, e.Low, e.High)
	case e.Bounded():
		return fmt.Sprintf("cannot be told apart from %s (%.2f to %.2f ×)", name, e.Low, e.High)
	}
	return fmt.Sprintf("%.2f × %s, by %d repeats, and fewer than %d do not say how sure that is", e.Ratio, name,
		e.Pairs, certainty.Fewest)
}

// firstFigure returns the figure of a metric of the first point that matches all parameters, or nil.
func (e *Evidence) firstFigure(load, subject, metric string, params map[string]any) *Figure {
	all := e.find(func(p *Point) bool {
		if _, ok := p.Metrics[metric]; !ok || p.Load != load || subject != "" && p.Subject != subject {
			return false
		}
		for name, value := range params {
			if fmt.Sprint(p.Params[name]) != fmt.Sprint(value) {
				return false
			}
		}
		return true
	})
	if len(all) == 0 {
		return nil
	}
	f := all[0].figure(metric)
	return &f
}

// packetCost returns the cost of a packet, net of the harness, over IPv4 and TCP with the most flows that were
// measured.
func (e *Evidence) packetCost(mode lb.Mode, scheduler lb.Scheduler, kind, direction string) *Figure {
	return ownFirst(e, func(e *Evidence) *Figure { return e.packetCostIn(mode, scheduler, kind, direction) })
}

func (e *Evidence) packetCostIn(mode lb.Mode, scheduler lb.Scheduler, kind, direction string) *Figure {
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		subject := fmt.Sprintf("jeoul-%s-%s", mode, hook)
		all := e.find(func(p *Point) bool {
			_, counted := p.Metrics[results.NsNetOfEmpty]
			sameDirection := p.Params["direction"] == direction || p.Params["direction"] == nil && direction == "request"
			return counted && p.Subject == subject && p.Params["packets"] == kind && sameDirection
		})
		var best *evidencePoint
		for i := range all {
			if all[i].point.Params["scheduler"] == string(scheduler) && (best == nil || flows(all[i]) > flows(*best)) {
				best = &all[i]
			}
		}
		// Full NAT remembers each flow with any scheduler, and a reply is matched to its flow by the table.
		for i := 0; best == nil && i < len(all) && (mode == lb.FullNAT || direction == "reply"); i++ {
			best = &all[i]
		}
		if best != nil {
			f := best.figure(results.NsNetOfEmpty)
			return &f
		}
	}
	return nil
}

// flows returns the number of flows of a point's packets.
func flows(f evidencePoint) float64 {
	n, _ := f.point.Params["flows"].(float64)
	return n
}
