// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// carried is the result of carrying the operations over to another configuration.
type carried struct {
	overlays map[view.BackendName]view.Overlay
	history  []operation
	// notes are for the log.
	notes []carriedNote
}

// carriedNote is a line for the log about an operation that ends, or whose backend is absent or back.
type carriedNote struct {
	name view.BackendName
	text string
	// back: the backend is discovered again, which is no reason to warn.
	back bool
}

func (r *carried) note(name view.BackendName, format string, args ...any) {
	r.notes = append(r.notes, carriedNote{name: name, text: fmt.Sprintf(format, args...)})
}

// carryOver takes the operations over to another configuration, where each stays with the backend that has the same
// name in it. Where the configuration changes the same setting of a backend, the configuration takes precedence; the
// operations on a removed backend end, except for a discovered one, which may be absent for a while. now is the time of
// the change.
func (r *operator) carryOver(l *view.Layout, now time.Time) carried {
	result := carried{overlays: map[view.BackendName]view.Overlay{}}
	located, found := r.view.Locate(maps.Keys(r.view.Overlays)), l.Locate(maps.Keys(r.view.Overlays))
	for name, o := range r.view.Overlays {
		previous := o.Absent
		if previous == nil {
			previous = &view.Absence{Since: now, Was: located[name].Backend}
		}
		if at := found[name]; at != nil {
			view.SetOverlay(result.overlays, name, result.keep(name, o, previous.Was, at))
			continue
		}
		result.carryAbsent(l, name, o, previous)
	}
	for _, name := range view.DropOldest(result.overlays, func(o view.Overlay) *view.Absence { return o.Absent }) {
		result.note(name, "%s is absent, as more than %d backends are, and the operations on it end",
			name, view.MostAbsent)
	}
	slices.SortFunc(result.notes, func(a, b carriedNote) int { return cmp.Compare(a.text, b.text) })
	result.history = r.carryHistory(l, now)
	return result
}

// keep returns the part of an overlay that outlives a change of its backend's configuration, from previous to at.
func (r *carried) keep(name view.BackendName, o view.Overlay, previous lb.Backend, at *view.Found) view.Overlay {
	if o.Drain != nil && previous.Draining != at.Backend.Draining {
		o.Drain = nil
		r.note(name, "the configuration has changed `drain` of %s, and counts; the operation on it ends", name)
	}
	if o.Weight != nil && previous.Weight != at.Backend.Weight {
		o.Weight = nil
		r.note(name, "the configuration has changed the weight of %s to %d, and counts; the operation on it ends",
			name, at.Backend.Weight)
	}
	if o.Forced != nil && !at.Service.IsMonitored() {
		o.Forced = nil // no check or outlier detection is left to override
	}
	if o.Absent != nil && !o.Empty() {
		r.note(name, "%s is found again (%s), and is %s", name, at.Backend.Origin, o.StateText())
		r.notes[len(r.notes)-1].back = true
	}
	o.Absent = nil
	return o
}

// carryAbsent keeps or ends an overlay whose backend the configuration no longer has.
func (r *carried) carryAbsent(l *view.Layout, name view.BackendName, o view.Overlay, previous *view.Absence) {
	at, owner := previous.Was, ""
	if holder := l.Holder(name.Service, at); holder != nil {
		owner = fmt.Sprintf("; its address %s is %s's now, which no operation on %s concerns",
			view.AddressText(holder.Service, at), holder, name)
	}
	switch {
	case !l.MayReturn(name, at):
		r.note(name, "%s is no longer %s, and the operations on it end%s",
			name, whereFrom(at), owner)
		return
	case o.Absent == nil:
		r.note(name, "%s is no longer %s, and stays %s if it is found again within %s%s",
			name, whereFrom(at), o.StateText(), view.AbsentFor, owner)
	}
	o.Absent = previous
	r.overlays[name] = o
}

// carryHistory marks the operations that cannot be undone after a change of the configuration.
func (r *operator) carryHistory(l *view.Layout, now time.Time) []operation {
	history := slices.Clone(r.history)
	names := map[view.BackendName]bool{}
	for i := range history {
		for _, change := range history[i].changes {
			names[change.name] = true
		}
	}
	found := l.Locate(maps.Keys(names))
	for i := range history {
		op := &history[i]
		op.changes = slices.Clone(op.changes)
		for k := range op.changes {
			change := &op.changes[k]
			at := found[change.name]
			if change.cannotUndo == "" && (at != nil || !l.MayReturn(change.name, change.was)) {
				change.cannotUndo = lostBy(op.verb, change.was, at, now)
			}
			if at != nil {
				change.was = at.Backend
			}
		}
	}
	return history
}

// lostBy returns why a change by an operation cannot be undone after its backend has changed in the configuration, from
// before to after; empty if it can.
func lostBy(verb ops.Verb, before lb.Backend, after *view.Found, now time.Time) string {
	when := now.Format(time.DateTime)
	switch {
	case after == nil && before.Origin != "":
		return fmt.Sprintf("at %s the backend was no longer %s", when, whereFrom(before))
	case after == nil:
		return fmt.Sprintf("the reload of %s took the backend out of the configuration", when)
	case verb == ops.Weight && before.Weight != after.Backend.Weight:
		return fmt.Sprintf("the reload of %s changed its weight to %d", when, after.Backend.Weight)
	case verb != ops.Weight && before.Draining != after.Backend.Draining:
		return fmt.Sprintf("the reload of %s changed its `drain` to %t", when, after.Backend.Draining)
	}
	return ""
}

// whereFrom reports whether a backend is configured or discovered.
func whereFrom(b lb.Backend) string {
	if b.Origin == "" {
		return "in the configuration"
	}
	return fmt.Sprintf("found (%s)", b.Origin)
}

// commitOperations records and logs the carried operations once they are in force.
func (r *operator) commitOperations(result carried) {
	r.mu.Lock()
	r.history = result.history
	r.mu.Unlock()
	lines, back := loglines.New(r.opt.Log.Warn), loglines.New(r.opt.Log.Info)
	for _, note := range result.notes {
		if note.back {
			back.Logf(note.name.About(), "%s", note.text)
			continue
		}
		lines.Logf(note.name.About(), "%s", note.text)
	}
	back.Flush("%d more backends are found again, on which operations still hold: `jeoul backend list` shows them")
	lines.Flush("%d more backends have left on which operations were: `jeoul backend list` shows what is still in force")
	r.armDeadline()
}

// expire removes backends whose drain deadline has passed from their services, and ends operations on backends that
// have been absent for too long.
func (r *operator) expire() error {
	if err := r.expireAbsent(); err != nil {
		return err
	}
	now := time.Now()
	var due []view.BackendName
	for name, o := range r.view.Overlays {
		if o.Due(now) {
			due = append(due, name)
		}
	}
	if len(due) == 0 {
		return nil
	}
	remaining := r.counting.remainingFlows(due)
	overlays, services := maps.Clone(r.view.Overlays), []int{}
	for _, name := range due {
		o := overlays[name]
		o.Drain = takenOut(o.Drain, remaining[name])
		overlays[name] = o
		if i, ok := r.view.Named[name.Service]; ok {
			services = append(services, i)
		}
	}
	if err := r.applyView(r.view.WithOverlays(overlays, services, now)); err != nil {
		return fmt.Errorf("take drained backends out of their services, whose deadline has passed: %w", err)
	}
	r.armDeadline()
	lines := loglines.New(r.opt.Log.Warn)
	for _, name := range due {
		lines.Logf(name.About(),
			"the deadline of the drain of %s has passed: it is taken out until it is enabled, and %s", name,
			endText(remaining[name]))
	}
	lines.Flush("%d more backends are taken out, whose deadline has passed: `jeoul backend list` shows them")
	return nil
}

// takenOut returns a drain whose deadline has passed.
func takenOut(d *ops.Drained, remaining *ops.Left) *ops.Drained {
	out := *d
	out.Out, out.AtDeadline = true, remaining
	return &out
}

// endText describes how many flows end when a backend is taken out.
func endText(remaining *ops.Left) string {
	switch {
	case remaining == nil:
		return "the flows that it still had end"
	case remaining.Tracked && remaining.Active == 0:
		return "no flow was left"
	case remaining.Tracked:
		return fmt.Sprintf("the flows that it still had end: %d", remaining.Active)
	case remaining.Flows == 0:
		return "no flow was remembered of it; flows that are not remembered end"
	}
	return fmt.Sprintf("the flows that are remembered of it end: %d, and those that are not", remaining.Flows)
}

// armDeadline schedules the next deadline of a drain or an absence.
func (r *operator) armDeadline() {
	var next time.Time
	at := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, o := range r.view.Overlays {
		if d := o.Drain; d != nil && d.On && !d.Out && !d.Deadline.IsZero() {
			at(d.Deadline)
		}
		if o.Absent != nil {
			at(o.Absent.Since.Add(view.AbsentFor))
		}
	}
	if next.IsZero() {
		r.deadlineTask.Cancel()
		return
	}
	r.deadlineTask.Schedule(time.Until(next))
}
