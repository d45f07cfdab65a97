// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"maps"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Plan lists the trials of a form in the order in which they run: all points once, then all a second time, and so on (A
// B C A B C), so that slow changes of the machine affect all subjects equally. A point that the limits do not allow, or
// whose programs are absent, is listed once, at the front, with its skip reason.
func Plan(form Form, limits probe.Limits, absent Absent) []Trial {
	var impossible, trials []Trial
	points := form.points()
	most := 0
	for _, point := range points {
		most = max(most, point.Repeats)
		if skipReason := point.skipReason(limits, absent); skipReason != "" {
			impossible = append(impossible, Trial{Point: point, Repeat: 1, SkipReason: skipReason})
		}
	}
	for repeat := 1; repeat <= most; repeat++ {
		for _, point := range points {
			if repeat <= point.Repeats && point.skipReason(limits, absent) == "" {
				trials = append(trials, Trial{Point: point, Repeat: repeat})
			}
		}
	}
	return append(impossible, trials...)
}

// points lists every subject with every set of its parameters, under every load at every concurrency.
func (f Form) points() []Point {
	var points []Point
	// Outermost: points with the same profile follow each other.
	for _, tuned := range f.tunings() {
		for _, p := range f.untunedPoints() {
			p.Tune = tuned
			points = append(points, p)
		}
	}
	return points
}

func (f Form) untunedPoints() []Point {
	var points []Point
	for _, s := range f.Subjects {
		known, ok := subjects.Find(s.Name)
		if !ok {
			continue // ParseSuite rejects such names
		}
		for _, params := range combinations(s.Params) {
			for _, l := range f.Loads {
				points = append(points, f.pointsOf(known, params, l)...)
			}
		}
	}
	return points
}

func (f Form) pointsOf(s subject.Subject, params subject.Params, l Load) []Point {
	// ParseSuite rejects unknown kinds.
	experiment, _ := findExperiment(l.Kind)
	var points []Point
	if e, ok := experiment.(expanding); ok {
		for _, of := range e.Expand(l) {
			points = append(points, Point{
				Subject: s, Params: params, Load: l.Name, Experiment: experiment, By: of.By, Form: f,
				Repeats: f.repeats(l), Concurrency: of.Concurrency, Duration: l.Duration, Offloads: l.Offloads,
			})
		}
	}
	for _, concurrency := range l.Concurrency {
		points = append(points, Point{
			Subject: s, Params: params, Load: l.Name, Experiment: experiment, By: l, Form: f,
			Repeats:     f.repeats(l),
			Concurrency: concurrency, Requests: l.requests(concurrency), Duration: l.Duration,
			Pinned: l.Pinned, Offloads: l.Offloads,
		})
	}
	return points
}

// requests returns the number of requests of all clients together; 0 if time ends the load.
func (l Load) requests(concurrency int) int {
	if l.RequestsEach > 0 {
		return max(l.RequestsEach*concurrency, l.MinRequests)
	}
	return l.Requests
}

// combinations returns all combinations of one value from each list. The last parameter, by name, changes fastest.
func combinations(lists map[string][]any) []subject.Params {
	all := []subject.Params{{}}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		var longer []subject.Params
		for _, params := range all {
			for _, value := range lists[name] {
				with := maps.Clone(params)
				with[name] = value
				longer = append(longer, with)
			}
		}
		all = longer
	}
	return all
}

// skipReason names the limit that keeps the machine from carrying the point; empty if there is none.
func (p Point) skipReason(limits probe.Limits, absent Absent) string {
	generator := ""
	if g := p.By.generator(); g != nil {
		generator = g.Name
	}
	return cmp.Or(absent.Subjects[p.Subject.Name()], absent.Kinds[p.By.Kind], absent.Generators[generator],
		p.remoteSkipReason(), p.Experiment.SkipReason(p, limits))
}

// params returns all parameters of the point, for the results.
func (p Point) params() map[string]any {
	all := map[string]any{
		"backends": p.Form.Lab.Servers,
		"clients":  p.Participants(),
	}
	if p.Form.Lab.Balancers > 0 {
		maps.Copy(all, p.Form.Lab.severalParams())
	}
	if p.Tune != "" {
		all[paramTuned] = p.Tune
	}
	if from := p.from(); from != "" {
		all[paramFrom] = from
	}
	maps.Copy(all, p.Experiment.Params(p))
	maps.Copy(all, p.Params)
	if p.Offloads && !p.Form.Remote {
		all["offloads"] = YesNo(true)
	}
	return all
}

// Alone reports whether the point has a single connection, with all work on one core.
func (p Point) Alone() bool {
	e, ok := p.Experiment.(tying)
	return ok && e.Alone(p)
}

// spec returns the laboratory that the form needs.
func (f Form) spec() lab.Spec {
	spec := lab.Spec{Clients: f.Lab.Clients, Servers: f.Lab.Servers, Containers: f.Lab.Containers,
		Balancers: f.Lab.Balancers, KernelSettings: len(f.Tune) > 0}
	for _, e := range implementing[demanding](f.experiments()) {
		e.Demand(f, &spec)
	}
	return spec
}
