// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// carried is what becomes of the operations with another configuration.
type carried struct {
	overlays map[backendName]overlay
	history  []operation
	// notes are for the log.
	notes []carriedNote
}

// carriedNote is a line for the log about an operation that ends, or whose backend is absent or back.
type carriedNote struct {
	name backendName
	text string
	// back: the backend is discovered again, which is no reason to warn.
	back bool
}

func (r *carried) note(name backendName, format string, args ...any) {
	r.notes = append(r.notes, carriedNote{name: name, text: fmt.Sprintf(format, args...)})
}

// carry takes the operations over to another configuration, where each stays with the backend that has the same name
// in it. Where the configuration says something new about the same part of a backend, it counts; a backend that leaves
// it takes its operations with it, but for one that is discovered, and may be absent for a while.
func (r *operator) carry(l *layout) carried {
	result := carried{overlays: map[backendName]overlay{}}
	was, is := r.view.locate(maps.Keys(r.view.overlays)), l.locate(maps.Keys(r.view.overlays))
	for name, o := range r.view.overlays {
		former := o.absent
		if former == nil {
			former = &absence{time.Now(), was[name].backend}
		}
		if at := is[name]; at != nil {
			lay(result.overlays, name, result.keep(name, o, former.was, at))
			continue
		}
		result.leave(l, name, o, former)
	}
	for _, name := range dropOldest(result.overlays, func(o overlay) *absence { return o.absent }) {
		result.note(name, "%s is absent, as more than %d backends are, and what operations had changed of it ends",
			name, mostAbsent)
	}
	slices.SortFunc(result.notes, func(a, b carriedNote) int { return cmp.Compare(a.text, b.text) })
	result.history = r.carryHistory(l)
	return result
}

// keep returns what stays of an overlay where the configuration had its backend as former, and has it at.
func (r *carried) keep(name backendName, o overlay, former lb.Backend, at *found) overlay {
	if o.drain != nil && former.Draining != at.backend.Draining {
		o.drain = nil
		r.note(name, "the configuration has changed `drain` of %s, and counts; the operation on it ends", name)
	}
	if o.weight != nil && former.Weight != at.backend.Weight {
		o.weight = nil
		r.note(name, "the configuration has changed the weight of %s to %d, and counts; the operation on it ends",
			name, at.backend.Weight)
	}
	if o.forced != nil && !at.service.Judged() {
		o.forced = nil // nothing is left that it could outrank
	}
	if o.absent != nil && !o.empty() {
		r.note(name, "%s is found again (%s), and is %s", name, at.backend.Origin, o.heldText())
		r.notes[len(r.notes)-1].back = true
	}
	o.absent = nil
	return o
}

// leave decides what becomes of an overlay whose backend the configuration has no more.
func (r *carried) leave(l *layout, name backendName, o overlay, former *absence) {
	at, taken := former.was, ""
	if heir := l.holder(name.service, at); heir != nil {
		taken = fmt.Sprintf("; its address %s is %s's now, which no operation on %s concerns",
			addressText(heir.service, at), heir, name)
	}
	switch {
	case !l.mayReturn(name, at):
		r.note(name, "%s is no longer %s, and what operations had changed of it ends%s",
			name, whereFrom(at), taken)
		return
	case o.absent == nil:
		r.note(name, "%s is no longer %s, and stays %s if it is found again within %s%s",
			name, whereFrom(at), o.heldText(), absentFor, taken)
	}
	o.absent = former
	r.overlays[name] = o
}

// holder returns the backend of a service that has the address and port of a backend; nil if none has.
func (l *layout) holder(service string, b lb.Backend) *found {
	i, there := l.named[service]
	if !there {
		return nil
	}
	return l.find(l.cfg.Services[i].BackendKey(b))
}

// carryHistory marks what cannot be taken back after a change of the configuration.
func (r *operator) carryHistory(l *layout) []operation {
	history := slices.Clone(r.history)
	names := map[backendName]bool{}
	for i := range history {
		for _, change := range history[i].changes {
			names[change.name] = true
		}
	}
	is := l.locate(maps.Keys(names))
	for i := range history {
		op := &history[i]
		op.changes = slices.Clone(op.changes)
		for k := range op.changes {
			change := &op.changes[k]
			at := is[change.name]
			if change.lost == "" && (at != nil || !l.mayReturn(change.name, change.was)) {
				change.lost = lostBy(op.verb, change.was, at)
			}
			if at != nil {
				change.was = at.backend
			}
		}
	}
	return history
}

// lostBy says why a change of a backend's part cannot be taken back where the
// backend was one thing in the configuration and is another; empty if it can.
func lostBy(verb ops.Verb, was lb.Backend, is *found) string {
	when := time.Now().Format(time.DateTime)
	switch {
	case is == nil && was.Origin != "":
		return fmt.Sprintf("at %s the backend was no longer %s", when, whereFrom(was))
	case is == nil:
		return fmt.Sprintf("the reload of %s took the backend out of the configuration", when)
	case verb == ops.Weight && was.Weight != is.backend.Weight:
		return fmt.Sprintf("the reload of %s changed its weight to %d", when, is.backend.Weight)
	case verb != ops.Weight && was.Draining != is.backend.Draining:
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
func (r *operator) settleOperations(by carried) {
	r.mu.Lock()
	r.history = by.history
	r.mu.Unlock()
	lines, back := loglines.To(r.opt.Log.Warn), loglines.To(r.opt.Log.Info)
	for _, note := range by.notes {
		if note.back {
			back.Say(note.name.about(), "%s", note.text)
			continue
		}
		lines.Say(note.name.about(), "%s", note.text)
	}
	back.End("%d more backends are found again, on which operations still hold: `jeoul backend list` shows them")
	lines.End("%d more backends have left on which operations were: `jeoul backend list` shows what is still in force")
	r.armDeadline()
}

// checkTakers finds services that have no backend that may take flows because of
// operations: what is left in the configuration is drained.
func (v *view) checkTakers() error {
	var problems yamlfile.Problems
	for i, s := range v.cfg.Services {
		if v.laid[s.Name] == 0 || s.MayBeEmpty() {
			continue
		}
		if !v.lets(i) && slices.ContainsFunc(s.Backends, lb.Backend.TakesFlows) {
			problems = append(problems, v.cfg.At(config.ServiceField(i, "backends"),
				"with what operations have changed, none would take new flows%s; enable one (`jeoul backend list`), or keep another", v.others(i)))
		}
	}
	return problems.Err()
}

// expire takes backends out of their services whose deadline has passed, and ends operations on those that have been
// absent for too long.
func (r *operator) expire() error {
	if err := r.lapse(); err != nil {
		return err
	}
	now := time.Now()
	var due []backendName
	for name, o := range r.view.overlays {
		if o.due(now) {
			due = append(due, name)
		}
	}
	if len(due) == 0 {
		return nil
	}
	left := r.counting.leftOf(due)
	overlays, services := maps.Clone(r.view.overlays), []int{}
	for _, name := range due {
		o := overlays[name]
		o.drain = takenOut(o.drain, left[name])
		overlays[name] = o
		if i, there := r.view.named[name.service]; there {
			services = append(services, i)
		}
	}
	if err := r.become(r.view.withOverlays(overlays, services, now)); err != nil {
		return fmt.Errorf("take drained backends out of their services, whose deadline has passed: %w", err)
	}
	r.armDeadline()
	lines := loglines.To(r.opt.Log.Warn)
	for _, name := range due {
		lines.Say(name.about(),
			"the deadline of the drain of %s has passed: it is taken out until it is enabled, and %s", name,
			endText(left[name]))
	}
	lines.End("%d more backends are taken out, whose deadline has passed: `jeoul backend list` shows them")
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

// armDeadline arms the timer for the next deadline, or for when the next absent backend has been so for too long.
func (r *operator) armDeadline() {
	var next time.Time
	at := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, o := range r.view.overlays {
		if d := o.drain; d != nil && d.On && !d.Out && !d.Deadline.IsZero() {
			at(d.Deadline)
		}
		if o.absent != nil {
			at(o.absent.since.Add(absentFor))
		}
	}
	if next.IsZero() {
		r.deadlineTask.Off()
		return
	}
	r.deadlineTask.In(time.Until(next))
}
