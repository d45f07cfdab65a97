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

// healthLogEvery is the period in which verdicts are logged line by line, at most loglines.Most of them; more are
// counted. Checks are spread over time, and so are their verdicts: a bound for each batch would not bound the lines
// about 10,000 backends that are lost at once.
const healthLogEvery = 10 * time.Second

// healthLog logs changes of the backends' health.
type healthLog struct {
	*core
	// told lines were logged in this while, and untold were not.
	told, untold int
	// selected are the sets of serving backends that were logged, but for primaries, which are usual.
	selected      map[lb.ServiceKey]view.Serving
	uncountedTask *loop.Task
}

// log logs a line, or counts it where there were too many of late; it is an event all the same.
func (h *healthLog) log(log func(string, ...any), about events.About, format string, args ...any) {
	if !h.uncountedTask.On() {
		h.uncountedTask.In(healthLogEvery)
	}
	if h.told == loglines.Most {
		h.untold++
		about.Unlogged = true
	} else {
		h.told++
	}
	log(fmt.Sprintf(format, args...), about.Attr())
}

// logUncounted logs how much was not logged.
func (h *healthLog) logUncounted() {
	if h.untold > 0 {
		h.opt.Log.Warn(fmt.Sprintf(
			"%d more changes of the backends' health in the last %s: `jeoul status` shows what is", h.untold,
			healthLogEvery))
	}
	h.told, h.untold = 0, 0
}

// diagnosis is a logged verdict on a backend, one for all services that have the same verdict on it.
type diagnosis struct {
	view.Endpoint
	now view.Verdict
}

// logVerdicts logs changes of the health of some backends, and which backends of their services take new flows now.
func (h *healthLog) logVerdicts(before *view.View, judged []view.Use) {
	uses, order := map[diagnosis][]view.Use{}, []diagnosis{}
	for _, at := range judged {
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
	for _, at := range judged {
		if !services[at.I] {
			services[at.I] = true
			h.logServing(at.I)
		}
	}
}

// logVerdict logs a change of the health of the backend whose uses these are.
func (h *healthLog) logVerdict(before *view.View, uses []view.Use) {
	at := uses[0]
	was, now := before.Verdict(at), h.view.Verdict(at)
	s, b := h.view.Service(at), h.view.Backend(at)
	whose, about := loglines.Who(s, b), loglines.AboutBackend(events.KindHealth, s, b)
	switch more := len(uses) - 1; {
	case more == 1:
		whose += " (and of one more service)"
	case more > 1:
		whose += fmt.Sprintf(" (and of %d more services)", more)
	}
	switch {
	case now.State == lb.Failing && was.State != lb.Failing:
		h.log(h.opt.Log.Warn, about, "%s is unhealthy: it %s", whose, view.ReasonOf(now))
	case now.State == lb.Healthy && was.State == lb.Failing:
		h.log(h.opt.Log.Info, about, "%s is healthy again, after %s", whose,
			now.Since.Sub(was.Since).Round(100*time.Millisecond))
	}
	switch {
	case now.Drain && !was.Drain:
		h.log(h.opt.Log.Info, about, "%s asks for no new flow, by its agent", whose)
	case was.Drain && !now.Drain:
		h.log(h.opt.Log.Info, about, "%s asks for new flows again, by its agent", whose)
	}
	if was.State != "" && was.Share != now.Share {
		h.log(h.opt.Log.Info, about, "%s asks for %d%% of its weight, by its agent", whose, now.Share)
	}
}

// logAllServing logs of which services other backends take new flows than the log has it.
func (h *healthLog) logAllServing() {
	for i := range h.view.Selected {
		h.logServing(i)
	}
	maps.DeleteFunc(h.selected, func(key lb.ServiceKey, _ view.Serving) bool {
		_, there := h.view.Keyed[key]
		return !there
	})
}

// logServing says which backends of service i take new flows, where that is new.
func (h *healthLog) logServing(i int) {
	s, now := h.view.Config.Services[i], h.view.Selected[i]
	was := h.selected[s.Key()]
	if was == now.Serving {
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

// logStarts logs which backends begin slowly.
func (h *healthLog) logStarts(before, now *view.View) {
	for i := range now.Starts {
		s := now.Config.Services[i]
		for j, is := range now.Starts[i] {
			if is.Slowing() && before.StartOf(now.KeyOf(view.Use{I: i, J: j})).Began != is.Began {
				h.log(h.opt.Log.Info, loglines.AboutBackend(events.KindHealth, s, s.Backends[j]),
					"%s begins with %d%% of its weight, and has all of it in %s", loglines.Who(s, s.Backends[j]), is.Share,
					(s.SlowStart - now.Now.Sub(is.Began)).Round(time.Millisecond))
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
		whose, lasted := loglines.Who(at.Service, at.Backend), time.Since(change.Since).Round(time.Second)
		about := loglines.AboutBackend(events.KindHealth, at.Service, at.Backend)
		switch change.Kind {
		case outliers.Ejected:
			h.log(h.opt.Log.Warn, about, "%s is ejected for %s: it %s", whose, change.Until.Sub(change.Since),
				change.Reason)
		case outliers.Returned:
			h.log(h.opt.Log.Info, about, "%s is let back, after %s", whose, lasted)
		case outliers.ReturnedEarly:
			h.log(h.opt.Log.Warn, about, "%s is let back after %s, before its time: no other backend serves",
				whose, lasted)
		case outliers.Superseded:
			h.log(h.opt.Log.Info, about,
				"%s is no longer ejected, after %s: an operation, its checks or its path keep new flows from it",
				whose, lasted)
		case outliers.Spared:
			h.log(h.opt.Log.Warn, about, "%s %s, and is not ejected: %s", whose, change.Reason, change.Why)
		}
	}
}
