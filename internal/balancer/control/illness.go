// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"maps"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// What health checks find is logged line by line, up to mostTold lines each illnessEvery; beyond
// that it is counted. Checks are spread over time, and so are their verdicts: a tale for each
// batch would not bound what 10,000 backends have to say that are lost at once.
const illnessEvery = 10 * time.Second

// illnesses is what was logged of the backends' health.
type illnesses struct {
	told, untold int
	// selected are those that were logged, but for primaries, which are usual.
	selected map[lb.ServiceKey]serving
}

// sayHealth logs a line, or counts it where there were too many of late; it is an event all the same.
func (c *Controller) sayHealth(log func(string, ...any), about events.About, format string, args ...any) {
	if !c.tasks.illness.On() {
		c.tasks.illness.In(illnessEvery)
	}
	if c.ill.told == mostTold {
		c.ill.untold++
		about.Unlogged = true
	} else {
		c.ill.told++
	}
	log(fmt.Sprintf(format, args...), about.Attr())
}

// tellUntold logs how much was not logged.
func (c *Controller) tellUntold() {
	if c.ill.untold > 0 {
		c.opt.Log.Warn(fmt.Sprintf("%d more changes of the backends' health in the last %s: `jeoul status` shows what is", c.ill.untold, illnessEvery))
	}
	c.ill.told, c.ill.untold = 0, 0
}

// diagnosis is what is logged of a backend, once for all services for which it is the same.
type diagnosis struct {
	endpoint
	now verdict
}

// tellHealth says what is new about the health of some backends, and which backends of their
// services take new flows now.
func (c *Controller) tellHealth(before *view, judged []use) {
	uses, order := map[diagnosis][]use{}, []diagnosis{}
	for _, at := range judged {
		d := diagnosis{endpointOf(c.view.service(at), c.view.backend(at)), c.view.verdict(at)}
		d.now.since = time.Time{}
		if len(uses[d]) == 0 {
			order = append(order, d)
		}
		uses[d] = append(uses[d], at)
	}
	for _, d := range order {
		c.tellVerdict(before, uses[d])
	}
	services := map[int]bool{}
	for _, at := range judged {
		if !services[at.i] {
			services[at.i] = true
			c.tellServing(at.i)
		}
	}
}

// tellVerdict says what is new about the health of a backend that these uses are of.
func (c *Controller) tellVerdict(before *view, uses []use) {
	at := uses[0]
	was, now := before.verdict(at), c.view.verdict(at)
	whose, about := who(c.view.service(at), c.view.backend(at)), aboutBackend(events.KindHealth, c.view.service(at), c.view.backend(at))
	switch more := len(uses) - 1; {
	case more == 1:
		whose += " (and of one more service)"
	case more > 1:
		whose += fmt.Sprintf(" (and of %d more services)", more)
	}
	switch {
	case now.state == lb.Failing && was.state != lb.Failing:
		c.sayHealth(c.opt.Log.Warn, about, "%s is unhealthy: it %s", whose, reasonOf(now))
	case now.state == lb.Healthy && was.state == lb.Failing:
		c.sayHealth(c.opt.Log.Info, about, "%s is healthy again, after %s", whose, now.since.Sub(was.since).Round(100*time.Millisecond))
	}
	switch {
	case now.drain && !was.drain:
		c.sayHealth(c.opt.Log.Info, about, "%s asks for no new flow, by its agent", whose)
	case was.drain && !now.drain:
		c.sayHealth(c.opt.Log.Info, about, "%s asks for new flows again, by its agent", whose)
	}
	if was.state != "" && was.weight != now.weight {
		c.sayHealth(c.opt.Log.Info, about, "%s asks for %d%% of its weight, by its agent", whose, now.weight)
	}
}

// aboutBackend is what an event of a backend is about.
func aboutBackend(kind events.Kind, s lb.Service, b lb.Backend) events.About {
	return events.About{Kind: kind, Service: s.Name, Backend: b.Name}
}

// reasonOf says of a backend that fails why it does.
func reasonOf(v verdict) string {
	if v.reason == "" {
		return "fails its health checks"
	}
	return v.reason
}

// tellAllServing logs of which services other backends take new flows than the log has it.
func (c *Controller) tellAllServing() {
	for i := range c.view.selected {
		c.tellServing(i)
	}
	maps.DeleteFunc(c.ill.selected, func(key lb.ServiceKey, _ serving) bool { _, there := c.view.keyed[key]; return !there })
}

// tellServing says which backends of service i take new flows, where that is new.
func (c *Controller) tellServing(i int) {
	s, now := c.view.cfg.Services[i], c.view.selected[i]
	was := c.ill.selected[s.Key()]
	if was == now.serving {
		return
	}
	if c.ill.selected == nil {
		c.ill.selected = map[lb.ServiceKey]serving{}
	}
	c.ill.selected[s.Key()] = now.serving
	log := c.opt.Log.Warn
	if now.serving == primaries {
		delete(c.ill.selected, s.Key())
		log = c.opt.Log.Info
	}
	c.sayHealth(log, events.About{Kind: events.KindHealth, Service: s.Name}, "service %s: %s", s.Name, now.text(s))
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
		return fmt.Sprintf("%d of %d backends are healthy, which is less than panic, %d%%: new flows go to all of them", p.healthy, p.wanted, s.Checks.Panic)
	}
	return fmt.Sprintf("new flows go to healthy backends only again: %d of %d", p.healthy, p.wanted)
}
