// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/events"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/ops"
	"github.com/jeoul/jeoul/internal/yamlfile"
)

// carried is what becomes of the operations with another configuration.
type carried struct {
	overlays map[lb.BackendKey]overlay
	history  []operation
	// notes are for the log.
	notes []string
}

// carry takes the operations over to another configuration. Where it says
// something new about the same part of a backend, it counts; a backend that is gone
// takes its operations with it.
func (c *Controller) carry(l *layout) carried {
	result := carried{overlays: map[lb.BackendKey]overlay{}}
	for key, o := range c.view.overlays {
		was, at := c.view.find(key), l.find(key)
		if at == nil {
			result.notes = append(result.notes, fmt.Sprintf("%s is no longer %s, and what operations had changed of it ends", was, whereFrom(was.backend)))
			continue
		}
		if o.drain != nil && was.backend.Draining != at.backend.Draining {
			o.drain = nil
			result.notes = append(result.notes, fmt.Sprintf("the configuration has changed `drain` of %s, and counts; the operation on it ends", at))
		}
		if o.weight != nil && was.backend.Weight != at.backend.Weight {
			o.weight = nil
			result.notes = append(result.notes, fmt.Sprintf("the configuration has changed the weight of %s to %d, and counts; the operation on it ends", at, at.backend.Weight))
		}
		if o.forced != nil && !at.service.Judged() {
			o.forced = nil // nothing is left that it could outrank
		}
		lay(result.overlays, key, o)
	}
	slices.Sort(result.notes)
	result.history = c.carryHistory(l)
	return result
}

// carryHistory marks what cannot be taken back after a change of the configuration.
func (c *Controller) carryHistory(l *layout) []operation {
	history := slices.Clone(c.history)
	for i := range history {
		op := &history[i]
		op.changes = slices.Clone(op.changes)
		for k := range op.changes {
			change := &op.changes[k]
			if change.lost == "" {
				change.lost = lostBy(op.verb, c.view.find(change.key), l.find(change.key))
			}
		}
	}
	return history
}

// lostBy says why a change of a backend's part cannot be taken back where the
// backend was one thing in the configuration and is another; empty if it can.
func lostBy(verb ops.Verb, was, is *found) string {
	when := time.Now().Format(time.DateTime)
	switch {
	case is == nil && was != nil && was.backend.Origin != "":
		return fmt.Sprintf("at %s the backend was no longer %s", when, whereFrom(was.backend))
	case is == nil:
		return fmt.Sprintf("the reload of %s took the backend out of the configuration", when)
	case verb == ops.Weight && was.backend.Weight != is.backend.Weight:
		return fmt.Sprintf("the reload of %s changed its weight to %d", when, is.backend.Weight)
	case verb != ops.Weight && was.backend.Draining != is.backend.Draining:
		return fmt.Sprintf("the reload of %s changed its `drain` to %t", when, is.backend.Draining)
	}
	return ""
}

// whereFrom says where a backend is, or was found.
func whereFrom(b lb.Backend) string {
	if b.Origin == "" {
		return "in the configuration"
	}
	return fmt.Sprintf("found (%s)", b.Origin)
}

// settleOperations is called when what was carried is in force.
func (c *Controller) settleOperations(by carried) {
	c.mu.Lock()
	c.history = by.history
	c.mu.Unlock()
	for _, note := range by.notes {
		c.opt.Log.Warn(note)
	}
	c.armDeadline()
}

// checkTakers finds services that have no backend that may take flows because of
// operations: what is left in the configuration is drained.
func (v *view) checkTakers() error {
	var problems yamlfile.Problems
	for i, s := range v.cfg.Services {
		if v.laid[s.Key()] == 0 || s.Discovery.On() { // others may be found
			continue
		}
		if !v.lets(i) && slices.ContainsFunc(s.Backends, lb.Backend.TakesFlows) {
			problems = append(problems, v.cfg.At(config.ServiceField(i, "backends"),
				"with what operations have changed, none would take new flows%s; enable one (`jeoul backend list`), or keep another", v.others(i)))
		}
	}
	return problems.Err()
}

// expire takes backends out of their services whose deadline has passed.
func (c *Controller) expire() error {
	now := time.Now()
	var due []lb.BackendKey
	for key, o := range c.view.overlays {
		if o.due(now) {
			due = append(due, key)
		}
	}
	if len(due) == 0 {
		return nil
	}
	left := c.leftOf(due)
	overlays, services := maps.Clone(c.view.overlays), []int{}
	for _, key := range due {
		o := overlays[key]
		o.drain = takenOut(o.drain, left[key])
		overlays[key] = o
		services = append(services, c.view.keyed[key.Service])
	}
	if err := c.become(c.view.withOverlays(overlays, services)); err != nil {
		return fmt.Errorf("take drained backends out of their services, whose deadline has passed: %w", err)
	}
	c.armDeadline()
	lines := tale{log: c.opt.Log.Warn}
	for _, key := range due {
		lines.say(events.About{Kind: events.KindOperation}, "the deadline of the drain of %s has passed: it is taken out until it is enabled, and %s", c.view.find(key), endText(left[key]))
	}
	lines.end("%d more backends are taken out, whose deadline has passed: `jeoul backend list` shows them")
	return nil
}

// takenOut returns a drain whose deadline has passed.
func takenOut(d *ops.Drained, left *ops.Left) *ops.Drained {
	out := *d
	out.Out, out.AtDeadline = true, left
	return &out
}

// endText says what ends with a backend that is taken out.
func endText(left *ops.Left) string {
	switch {
	case left == nil:
		return "the flows that it still had end"
	case left.Tracked && left.Active == 0:
		return "no flow was left"
	case left.Tracked:
		return fmt.Sprintf("the flows that it still had end: %d", left.Active)
	case left.Flows == 0:
		return "no flow was remembered of it; flows that are not remembered end"
	}
	return fmt.Sprintf("the flows that are remembered of it end: %d, and those that are not", left.Flows)
}

// armDeadline arms the timer for the next deadline.
func (c *Controller) armDeadline() {
	var next time.Time
	for _, o := range c.view.overlays {
		if d := o.drain; d != nil && d.On && !d.Out && !d.Deadline.IsZero() && (next.IsZero() || d.Deadline.Before(next)) {
			next = d.Deadline
		}
	}
	if next.IsZero() {
		c.tasks.deadline.off()
		return
	}
	c.tasks.deadline.in(time.Until(next))
}
