// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"maps"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
)

// What health checks find is logged line by line, up to loglines.Most lines each healthLogEvery; beyond
// that it is counted. Checks are spread over time, and so are their verdicts: a tale for each
// batch would not bound what 10,000 backends have to say that are lost at once.
const healthLogEvery = 10 * time.Second

// healthLog logs what is new of the backends' health.
type healthLog struct {
	*core
	// told lines were logged in this while, and untold were not.
	told, untold int
	// selected are those that were logged, but for primaries, which are usual.
	selected      map[lb.ServiceKey]serving
	uncountedTask *loop.Task
}

// say logs a line, or counts it where there were too many of late; it is an event all the same.
func (h *healthLog) say(log func(string, ...any), about events.About, format string, args ...any) {
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

// diagnosis is what is logged of a backend, once for all services for which it is the same.
type diagnosis struct {
	endpoint
	now verdict
}

// logVerdicts says what is new about the health of some backends, and which backends of their
// services take new flows now.
func (h *healthLog) logVerdicts(before *view, judged []use) {
	uses, order := map[diagnosis][]use{}, []diagnosis{}
	for _, at := range judged {
		d := diagnosis{endpointOf(h.view.service(at), h.view.backend(at)), h.view.verdict(at)}
		d.now.since = time.Time{}
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
		if !services[at.i] {
			services[at.i] = true
			h.logServing(at.i)
		}
	}
}

// logVerdict says what is new about the health of a backend that these uses are of.
func (h *healthLog) logVerdict(before *view, uses []use) {
	at := uses[0]
	was, now := before.verdict(at), h.view.verdict(at)
	whose, about := who(h.view.service(at), h.view.backend(at)), aboutBackend(events.KindHealth, h.view.service(at),
		h.view.backend(at))
	switch more := len(uses) - 1; {
	case more == 1:
		whose += " (and of one more service)"
	case more > 1:
		whose += fmt.Sprintf(" (and of %d more services)", more)
	}
	switch {
	case now.state == lb.Failing && was.state != lb.Failing:
		h.say(h.opt.Log.Warn, about, "%s is unhealthy: it %s", whose, reasonOf(now))
	case now.state == lb.Healthy && was.state == lb.Failing:
		h.say(h.opt.Log.Info, about, "%s is healthy again, after %s", whose,
			now.since.Sub(was.since).Round(100*time.Millisecond))
	}
	switch {
	case now.drain && !was.drain:
		h.say(h.opt.Log.Info, about, "%s asks for no new flow, by its agent", whose)
	case was.drain && !now.drain:
		h.say(h.opt.Log.Info, about, "%s asks for new flows again, by its agent", whose)
	}
	if was.state != "" && was.weight != now.weight {
		h.say(h.opt.Log.Info, about, "%s asks for %d%% of its weight, by its agent", whose, now.weight)
	}
}

// logAllServing logs of which services other backends take new flows than the log has it.
func (h *healthLog) logAllServing() {
	for i := range h.view.selected {
		h.logServing(i)
	}
	maps.DeleteFunc(h.selected, func(key lb.ServiceKey, _ serving) bool {
		_, there := h.view.keyed[key]
		return !there
	})
}

// logServing says which backends of service i take new flows, where that is new.
func (h *healthLog) logServing(i int) {
	s, now := h.view.cfg.Services[i], h.view.selected[i]
	was := h.selected[s.Key()]
	if was == now.serving {
		return
	}
	if h.selected == nil {
		h.selected = map[lb.ServiceKey]serving{}
	}
	h.selected[s.Key()] = now.serving
	log := h.opt.Log.Warn
	if now.serving == primaries {
		delete(h.selected, s.Key())
		log = h.opt.Log.Info
	}
	h.say(log, events.About{Kind: events.KindHealth, Service: s.Name}, "service %s: %s", s.Name, now.text(s))
}

// text says which backends of a service take new flows.
func (p selection) text(s lb.Service) string {
	switch p.serving {
	case backups:
		if p.healthy == 0 {
			return "no backend takes new flows, and no backup either"
		}
		return "its backups take new flows, for no other backend does"
	case panicked:
		return fmt.Sprintf("%d of %d backends are healthy, which is less than panic, %d%%: new flows go to all of them",
			p.healthy, p.wanted, s.Checks.Panic)
	}
	return fmt.Sprintf("new flows go to healthy backends only again: %d of %d", p.healthy, p.wanted)
}

// logStarts logs which backends begin slowly.
func (h *healthLog) logStarts(before, now *view) {
	for i := range now.starts {
		s := now.cfg.Services[i]
		for j, is := range now.starts[i] {
			if is.slowing() && before.startOf(now.keyOf(use{i, j})).began != is.began {
				h.say(h.opt.Log.Info, aboutBackend(events.KindHealth, s, s.Backends[j]),
					"%s begins with %d%% of its weight, and has all of it in %s", who(s, s.Backends[j]), is.share,
					(s.SlowStart - now.now.Sub(is.began)).Round(time.Millisecond))
			}
		}
	}
}

// logEjections logs what is new of ejections.
func (h *healthLog) logEjections(changes []outliers.Change) {
	for _, change := range changes {
		at := h.view.find(change.Key)
		if at == nil {
			continue
		}
		whose, lasted := who(at.service, at.backend), time.Since(change.Since).Round(time.Second)
		about := aboutBackend(events.KindHealth, at.service, at.backend)
		switch change.Kind {
		case outliers.Ejected:
			h.say(h.opt.Log.Warn, about, "%s is ejected for %s: it %s", whose, change.Until.Sub(change.Since),
				change.Reason)
		case outliers.LetBack:
			h.say(h.opt.Log.Info, about, "%s is let back, after %s", whose, lasted)
		case outliers.Needed:
			h.say(h.opt.Log.Warn, about, "%s is let back after %s, before its time: no other backend serves",
				whose, lasted)
		case outliers.Outranked:
			h.say(h.opt.Log.Info, about,
				"%s is no longer ejected, after %s: an operation, its checks or its path keep new flows from it",
				whose, lasted)
		case outliers.Spared:
			h.say(h.opt.Log.Warn, about, "%s %s, and is not ejected: %s", whose, change.Reason, change.Why)
		}
	}
}
