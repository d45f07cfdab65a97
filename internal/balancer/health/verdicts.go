// SPDX-License-Identifier: Apache-2.0

package health

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// fullWeight is all of a backend's weight, in per cent.
const fullWeight = 100

// Changes signals when a verdict has another state, weight or drain: see Changed. A signal that
// is not taken stands for all that follow.
func (e *Engine) Changes() <-chan struct{} { return e.changes }

func (e *Engine) signal() {
	select {
	case e.changes <- struct{}{}:
	default:
	}
}

// Changed returns the verdicts of backends that are new or whose state, weight or drain has
// changed since the last call. Of a backend that is no longer watched it has none.
func (e *Engine) Changed() map[lb.BackendKey]Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	verdicts := make(map[lb.BackendKey]Verdict, len(e.changed))
	for key := range e.changed {
		if w := e.watches[key]; w != nil {
			verdicts[key] = e.verdict(w)
		}
	}
	clear(e.changed)
	return verdicts
}

// Verdicts returns all verdicts: to be shown, not for each change.
func (e *Engine) Verdicts() map[lb.BackendKey]Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	verdicts := make(map[lb.BackendKey]Verdict, len(e.watches))
	for key, w := range e.watches {
		verdicts[key] = e.verdict(w)
	}
	return verdicts
}

// Verdict returns the verdict on one backend, and whether it is watched.
func (e *Engine) Verdict(backend lb.BackendKey) (Verdict, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.watches[backend]
	if w == nil {
		return Verdict{}, false
	}
	return e.verdict(w), true
}

// updateVerdict makes the backend's verdict of its targets' states, and signals if it has changed. Targets that are
// new, because the configuration has another check, overturn no verdict before they have answers enough for one: a dead
// backend would get traffic by a reload. e.mu is held.
func (e *Engine) updateVerdict(w *watch) {
	state, report := w.combine()
	unconfirmed := slices.ContainsFunc(w.targets, func(t *target) bool { return t.uncheckedFor > 0 })
	if state == Unknown && (w.state == Healthy || w.state == Failing) {
		return
	}
	if state == w.state && report == w.selfReport && unconfirmed == w.unconfirmed {
		return
	}
	if state != w.state {
		w.since = time.Now()
		w.previous = ""
		if len(w.targets) == 1 && w.state == "" && !w.targets[0].since.IsZero() {
			w.since = w.targets[0].since
		}
	}
	w.state, w.selfReport, w.unconfirmed = state, report, unconfirmed
	e.changed[w.backend] = struct{}{}
	e.signal()
}

// combine returns the joint state of the targets: all must be healthy, or, with any, one. Of several weights that they
// report, the least holds. A backend that fails is finishing if each check that fails says so.
func (w *watch) combine() (State, selfReport) {
	count, finishing := map[State]int{}, 0
	report := selfReport{weight: fullWeight}
	for _, t := range w.targets {
		count[t.state]++
		if t.weight != fullWeight && (report.weight == fullWeight || t.weight < report.weight) {
			report.weight = t.weight
		}
		if t.reported.Known && (!report.reported.Known || t.reported.Value < report.reported.Value) {
			report.reported = t.reported
		}
		report.drain = report.drain || t.drain
		if t.state == Failing && t.finishing {
			finishing++
		}
	}
	switch {
	case count[Failing] > 0 && (!w.any || count[Failing] == len(w.targets)):
		report.finishing = finishing == count[Failing]
		return Failing, report
	case count[Healthy] > 0 && (w.any || count[Healthy] == len(w.targets)):
		return Healthy, report
	}
	return Unknown, report
}

func (e *Engine) verdict(w *watch) Verdict {
	v := Verdict{State: w.state, Since: w.since, Weight: w.weight, Reported: w.reported, Drain: w.drain,
		Finishing: w.finishing, Unconfirmed: w.unconfirmed, Checks: make([]Result, len(w.targets))}
	for i, t := range w.targets {
		v.Checks[i] = e.result(t)
	}
	v.Reason = w.reason()
	return v
}

// reason returns the reason of the target that counts most against the backend: one of the verdict's own state, else
// any that has something to say.
func (w *watch) reason() string {
	reason := w.previous
	for _, t := range w.targets {
		switch {
		case t.reason == "":
		case t.state == w.state:
			return t.reason
		case reason == "":
			reason = t.reason
		}
	}
	return reason
}

func (e *Engine) result(t *target) Result {
	r := Result{State: t.state, Passed: t.passed, Failed: t.failed, Last: t.last, Took: t.took, Answer: t.text,
		Reason: t.reason}
	if t.queueIndex >= 0 {
		r.Next = e.began.Add(t.next)
	}
	return r
}
