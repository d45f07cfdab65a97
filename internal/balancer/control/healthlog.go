// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"maps"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
)

// healthLogInterval is the period in which at most loglines.MaxLines changes of verdicts are logged; more are counted.
// Checks are spread over time, and so are their verdicts: a limit for each batch would not limit the lines about 10,000
// backends that fail together.
const healthLogInterval = 10 * time.Second

// healthLog logs changes of the backends' health.
type healthLog struct {
	*core
	// logged and suppressed count the lines of this period that were logged, and those that were not.
	logged, suppressed int
	// selected are the sets of serving backends as logged last, without services that use their primaries, the normal
	// case.
	selected      map[lb.ServiceKey]view.Serving
	uncountedTask *loop.Task
}

// log logs a line, or only counts it once the period has MaxLines; either way it becomes an event.
func (h *healthLog) log(log func(string, ...any), about events.About, format string, args ...any) {
	if !h.uncountedTask.Scheduled() {
		h.uncountedTask.Schedule(healthLogInterval)
	}
	if h.logged == loglines.MaxLines {
		h.suppressed++
		about.Unlogged = true
	} else {
		h.logged++
	}
	log(fmt.Sprintf(format, args...), about.Attr())
}

// logUncounted logs how many lines of the period were suppressed.
func (h *healthLog) logUncounted() {
	if h.suppressed > 0 {
		h.opt.Log.Warn(fmt.Sprintf(
			"%d more changes of the backends' health in the last %s: `jeoul status` shows the present state", h.suppressed,
			healthLogInterval))
	}
	h.logged, h.suppressed = 0, 0
}

// diagnosis is a verdict on an endpoint, which is logged once for all services that have it.
type diagnosis struct {
	view.Endpoint
	now view.Verdict
}

// logVerdicts logs changes of the verdicts on some backends, and which backends of their services take new flows now.
func (h *healthLog) logVerdicts(before *view.View, changed []view.Use) {
	uses, order := map[diagnosis][]view.Use{}, []diagnosis{}
	for _, at := range changed {
		d := diagnosis{view.EndpointOf(h.view.Service(at), h.view.Backend(at)), h.view.Verdict(at)}
		d.now.Since = time.Time{}
		if len(uses[d]) == 0 {
			order = append(order, d)
		}
		uses[d] = append(uses[d], at)
	}
	for _, d := range order {
		h.logVerdict(before, uses[d])
	}
	services := map[int]bool{}
	for _, at := range changed {
		if !services[at.I] {
			services[at.I] = true
			h.logServing(at.I)
		}
	}
}

// logVerdict logs a change of the verdict on the backend that has these uses.
func (h *healthLog) logVerdict(before *view.View, uses []view.Use) {
	at := uses[0]
	previous, now := before.Verdict(at), h.view.Verdict(at)
	s, b := h.view.Service(at), h.view.Backend(at)
	name, about := loglines.BackendText(s, b), loglines.AboutBackend(events.KindHealth, s, b)
	switch more := len(uses) - 1; {
	case more == 1:
		name += " (and of one more service)"
	case more > 1:
		name += fmt.Sprintf(" (and of %d more services)", more)
	}
	switch {
	case now.State == lb.Failing && previous.State != lb.Failing:
		h.log(h.opt.Log.Warn, about, "%s is unhealthy: it %s", name, view.ReasonOf(now))
	case now.State == lb.Healthy && previous.State == lb.Failing:
		h.log(h.opt.Log.Info, about, "%s is healthy again, after %s", name,
			now.Since.Sub(previous.Since).Round(100*time.Millisecond))
	}
	switch {
	case now.Drain && !previous.Drain:
		h.log(h.opt.Log.Info, about, "%s asks for no new flow, by its agent", name)
	case previous.Drain && !now.Drain:
		h.log(h.opt.Log.Info, about, "%s asks for new flows again, by its agent", name)
	}
	if previous.State != "" && previous.Share != now.Share {
		h.log(h.opt.Log.Info, about, "%s asks for %d%% of its weight, by its agent", name, now.Share)
	}
	// Where the configuration follows what the backend reports, as with Kubernetes, that it agrees says nothing new.
	if r := now.Reported; previous.Reported != r && r.Known && r.Value != b.Weight {
		h.log(h.opt.Log.Info, about, "%s reports the weight %d", name, r.Value)
	}
}

// logAllServing logs, for each service, which backends take new flows, if that has changed since it was logged.
func (h *healthLog) logAllServing() {
	for i := range h.view.Selected {
		h.logServing(i)
	}
	maps.DeleteFunc(h.selected, func(key lb.ServiceKey, _ view.Serving) bool {
		_, ok := h.view.Keyed[key]
		return !ok
	})
}

// logServing logs which backends of service i take new flows, if that has changed since it was logged.
func (h *healthLog) logServing(i int) {
	s, now := h.view.Config.Services[i], h.view.Selected[i]
	previous := h.selected[s.Key()]
	if previous == now.Serving {
		return
	}
	if h.selected == nil {
		h.selected = map[lb.ServiceKey]view.Serving{}
	}
	h.selected[s.Key()] = now.Serving
	log := h.opt.Log.Warn
	if now.Serving == view.Primaries {
		delete(h.selected, s.Key())
		log = h.opt.Log.Info
	}
	h.log(log, events.About{Kind: events.KindHealth, Service: s.Name}, "service %s: %s", s.Name, now.Text(s))
}

// logStarts logs the slow starts that begin.
func (h *healthLog) logStarts(before, now *view.View) {
	for i := range now.Starts {
		s := now.Config.Services[i]
		for j, start := range now.Starts[i] {
			if start.InSlowStart() && before.StartOf(now.KeyOf(view.Use{I: i, J: j})).Began != start.Began {
				h.log(h.opt.Log.Info, loglines.AboutBackend(events.KindHealth, s, s.Backends[j]),
					"%s begins with %d%% of its weight, and has all of it in %s", loglines.BackendText(s, s.Backends[j]), start.Share,
					(s.SlowStart - now.Now.Sub(start.Began)).Round(time.Millisecond))
			}
		}
	}
}

// logEjections logs changes of ejections.
func (h *healthLog) logEjections(changes []outliers.Change) {
	for _, change := range changes {
		at := h.view.Find(change.Key)
		if at == nil {
			continue
		}
		name, lasted := loglines.BackendText(at.Service, at.Backend), time.Since(change.Since).Round(time.Second)
		about := loglines.AboutBackend(events.KindHealth, at.Service, at.Backend)
		switch change.Kind {
		case outliers.Ejected:
			h.log(h.opt.Log.Warn, about, "%s is ejected for %s: it %s", name, change.Until.Sub(change.Since),
				change.Reason)
		case outliers.Returned:
			h.log(h.opt.Log.Info, about, "%s is readmitted, after %s", name, lasted)
		case outliers.ReturnedEarly:
			h.log(h.opt.Log.Warn, about, "%s is readmitted early, after %s: no other backend serves",
				name, lasted)
		case outliers.Superseded:
			h.log(h.opt.Log.Info, about,
				"%s is no longer ejected, after %s: an operation, its checks or its path keep new flows from it",
				name, lasted)
		case outliers.Spared:
			h.log(h.opt.Log.Warn, about, "%s %s, and is not ejected: %s", name, change.Reason, change.Why)
		}
	}
}
