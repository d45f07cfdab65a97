// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// maxHistory is how many operations can be undone.
const maxHistory = 32

// operator runs operations and undoes them, and carries them over to other configurations and processes.
type operator struct {
	*core
	health   *healthLog
	ejector  *ejector
	storage  *storage
	counting *counting
	// history has the operations that can be undone, the latest last. Status reads it under the lock.
	history []operation
	// unsaved is why the operations in force may end with the process; nil if they are saved.
	unsaved      error
	deadlineTask *loop.Task
}

// operation is an operation that was done, and how to undo it.
type operation struct {
	verb     ops.Verb
	by       string
	at       time.Time
	deadline time.Time
	weight   *uint16
	force    bool
	changes  []change
}

// about returns the subject of an event of the operation; by is the caller.
func (o operation) about(by string) events.About {
	about := events.About{Kind: events.KindOperation, By: by}
	if len(o.changes) == 1 {
		about.Service, about.Backend = o.changes[0].target.Service, o.changes[0].target.Backend
	}
	return about
}

// change is the effect of an operation on one backend. Only the part that the operation changes is significant: drain
// or weight.
type change struct {
	name   view.BackendName
	target ops.Target // at the time of the operation
	before view.Overlay
	// was is the backend as configured last.
	was lb.Backend
	// cannotUndo is why it cannot be undone; empty if it can.
	cannotUndo string
}

// String names an operation, as in "drain web/web01".
func (o operation) String() string {
	text := fmt.Sprintf("%s %s", o.verb, o.changes[0].target)
	if o.weight != nil {
		text += fmt.Sprintf(" %d", *o.weight)
	}
	if o.force {
		text += " by force"
	}
	if n := len(o.changes) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// status returns the operation's form in a status.
func (o operation) status() ops.Operation {
	status := ops.Operation{Verb: o.verb, By: o.by, At: o.at, Deadline: o.deadline, Weight: o.weight, Forced: o.force}
	for _, change := range o.changes {
		status.Targets = append(status.Targets, change.target)
	}
	status.Lost = o.cannotUndo()
	return status
}

// cannotUndo returns why nothing of an operation can be undone; empty if some of it can.
func (o operation) cannotUndo() string {
	for _, change := range o.changes {
		if change.cannotUndo == "" {
			return ""
		}
	}
	return o.changes[0].cannotUndo
}

// operate is Operate within the loop.
func (r *operator) operate(order ops.Order) (ops.Operation, error) {
	if order.Verb == ops.Undo {
		done, err := r.undo(order)
		if err != nil {
			return done, fmt.Errorf("undo: %w", err)
		}
		return done, nil
	}
	done, err := r.change(order)
	if err != nil {
		return done, fmt.Errorf("%s %s/%s: %w", order.Verb, order.Service, order.Backend, err)
	}
	return done, nil
}

// change runs an operation other than Undo.
func (r *operator) change(order ops.Order) (ops.Operation, error) {
	if order.Verb == ops.Weight && (order.Weight < 0 || order.Weight > 1<<16-1) {
		return ops.Operation{}, fmt.Errorf("%w: the weight %d is out of range: 0 to 65535", ops.ErrBadRequest,
			order.Weight)
	}
	op := newOperation(order)
	name := view.BackendName{Service: order.Service, Backend: order.Backend}
	if o := r.view.Overlays[name]; o.Absent != nil {
		return r.changeAbsent(op, name, o)
	}
	targets, err := r.view.Targets(order)
	if err != nil {
		return ops.Operation{}, err
	}
	var ejected []view.Use
	if order.Verb == ops.Enable {
		ejected = r.view.Ejected(targets)
	}
	overlays := maps.Clone(r.view.Overlays)
	if overlays == nil {
		overlays = map[view.BackendName]view.Overlay{}
	}
	var remaining map[view.BackendName]*ops.Left
	if order.Verb == ops.Disable {
		remaining = r.counting.remainingFlows(r.view.NamesOf(targets))
	}
	for _, at := range targets {
		s, b := r.view.Service(at), r.view.Backend(at)
		name := view.NameOf(s, b)
		before := overlays[name]
		after, err := op.overlayAfter(s, b, before)
		if errors.Is(err, errNoChange) && (order.AllServices || slices.Contains(ejected, at)) {
			continue // only services with something to change count
		}
		if err != nil {
			return ops.Operation{}, err
		}
		if order.Verb == ops.Disable {
			after.Drain = takenOut(after.Drain, remaining[name])
		}
		view.SetOverlay(overlays, name, after)
		op.changes = append(op.changes, change{name: name, target: view.TargetOf(s, b), before: before, was: b})
	}
	if len(op.changes) == 0 && len(ejected) > 0 {
		return r.endEjections(op, ejected)
	}
	if len(op.changes) == 0 {
		return ops.Operation{}, fmt.Errorf("%w: there is nothing to change in any service", ops.ErrRefused)
	}
	return r.performChanges(op, overlays, ejected)
}

// performChanges applies the overlays of an operation, and ends the ejections of the backends that it enables.
func (r *operator) performChanges(op operation, overlays map[view.BackendName]view.Overlay,
	ejected []view.Use) (ops.Operation, error) {
	status, err := r.perform(op, overlays)
	if err == nil && len(ejected) > 0 {
		readmitted, err := r.endEjections(op, ejected)
		if err != nil {
			return status, err
		}
		status.Notes = append(status.Notes, readmitted.Notes...)
	}
	if err == nil {
		status.Notes = append(status.Notes, notesOn(r.view, op)...)
	}
	return status, err
}

// perform applies overlays that include an operation's changes, adds the operation to the history, and logs it.
func (r *operator) perform(op operation, overlays map[view.BackendName]view.Overlay) (ops.Operation, error) {
	if err := r.applyOverlays(overlays, op.changes); err != nil {
		return ops.Operation{}, err
	}
	r.record(op)
	r.opt.Log.Info(fmt.Sprintf("%s, by %s%s", op, op.by, untilText(op.deadline)), op.about(op.by).Attr())
	status := op.status()
	status.Notes = r.unsavedNotes()
	return status, nil
}

// unsavedNotes says that an operation is in force, but may not survive a restart.
func (r *operator) unsavedNotes() []string {
	if r.unsaved == nil {
		return nil
	}
	return []string{"in force, and not durable yet: " + loglines.OneLine(r.unsaved)}
}

// newOperation returns the operation of an order, as of now, without changes.
func newOperation(order ops.Order) operation {
	op := operation{verb: order.Verb, by: order.By, at: time.Now(), force: order.Force}
	if order.Deadline > 0 {
		op.deadline = op.at.Add(order.Deadline)
	}
	if order.Verb == ops.Weight {
		weight := uint16(order.Weight)
		op.weight = &weight
	}
	return op
}

// changeAbsent runs an operation on an absent backend that has an overlay already: it changes the overlay, which
// applies once the backend is found again.
func (r *operator) changeAbsent(op operation, name view.BackendName, before view.Overlay) (ops.Operation, error) {
	s, backend := r.view.Config.Services[r.view.Named[name.Service]], before.Absent.Was
	after, err := op.overlayAfter(s, backend, before)
	if err != nil {
		return ops.Operation{}, err
	}
	if op.verb == ops.Disable {
		after.Drain = takenOut(after.Drain, nil)
	}
	overlays := maps.Clone(r.view.Overlays)
	view.SetOverlay(overlays, name, after)
	op.changes = []change{{name: name, target: view.TargetOf(s, backend), before: before, was: backend}}
	status, err := r.perform(op, overlays)
	if err == nil {
		status.Notes = append(status.Notes,
			fmt.Sprintf("%s has not been found since %s: this holds when it is found again",
				name, before.Absent.Since.Format(time.DateTime)))
	}
	return status, err
}

// endEjections readmits ejected backends for an operation that enables them. That cannot be undone.
func (r *operator) endEjections(op operation, ejected []view.Use) (ops.Operation, error) {
	ended := ops.Operation{Verb: op.verb, By: op.by, At: op.at}
	for _, at := range ejected {
		s, b := r.view.Service(at), r.view.Backend(at)
		ended.Targets = append(ended.Targets, view.TargetOf(s, b))
		ended.Notes = append(ended.Notes,
			fmt.Sprintf("%s/%s was ejected, and is readmitted early; it is ejected again if it fails again",
				s.Name, b.Name))
		r.opt.Log.Info(fmt.Sprintf("%s is readmitted early, by %s", loglines.BackendText(s, b), op.by))
	}
	if err := r.ejector.readmit(ejected); err != nil {
		return ops.Operation{}, err
	}
	return ended, nil
}

// notesOn describes how health checks and an operation interact: a drain takes precedence over them, and a failing
// backend takes no new flows although it is enabled.
func notesOn(v *view.View, op operation) (notes []string) {
	for _, change := range op.changes {
		at := v.ByName(change.name)
		if at == nil || !at.Service.Checks.On() {
			continue
		}
		now := v.Verdict(at.Use)
		switch {
		case op.verb == ops.Drain:
			notes = append(notes, fmt.Sprintf("%s stays drained until it is enabled, whatever its health checks say",
				at))
		case op.verb == ops.Disable:
			notes = append(notes, fmt.Sprintf("%s stays out until it is enabled, whatever its health checks say", at))
		case op.force:
			notes = append(notes,
				fmt.Sprintf("%s takes new flows whatever its health checks say, until it is enabled without --force, drained or disabled", at))
		case now.State == lb.Failing && v.Selected[at.I].Serving != view.Panicked:
			notes = append(notes,
				fmt.Sprintf("%s %s: it takes no new flow until its health checks pass, or it is enabled with --force",
					at, view.ReasonOf(now)))
		}
	}
	return notes
}

func untilText(deadline time.Time) string {
	if deadline.IsZero() {
		return ""
	}
	return ", until " + deadline.Format(time.DateTime)
}

// errNoChange is the error of an operation that would not change a backend.
var errNoChange = fmt.Errorf("%w", ops.ErrRefused)

// overlayAfter returns the overlay of a configured backend after the operation.
func (o operation) overlayAfter(s lb.Service, b lb.Backend, before view.Overlay) (view.Overlay, error) {
	after, now := before, before.ApplyTo(b)
	switch o.verb {
	case ops.Drain:
		switch {
		case before.IsOut():
			return after, fmt.Errorf("%w: %s is out of %s already; enable it first", errNoChange, b.Name, s.Name)
		case now.Draining && o.deadline.IsZero() && (before.Drain == nil || before.Drain.Deadline.IsZero()):
			return after, fmt.Errorf("%w: %s is drained already%s", errNoChange, b.Name, drainedBy(before))
		}
		after.Drain, after.Forced = &ops.Drained{On: true, By: o.by, At: o.at, Deadline: o.deadline}, nil
	case ops.Disable:
		if before.IsOut() {
			return after, fmt.Errorf("%w: %s is out of %s already", errNoChange, b.Name, s.Name)
		}
		after.Drain, after.Forced = &ops.Drained{On: true, By: o.by, At: o.at}, nil
	case ops.Enable:
		return o.enabled(s, b, before)
	case ops.Weight:
		if now.Weight == *o.weight {
			return after, fmt.Errorf("%w: %s has the weight %d already", errNoChange, b.Name, now.Weight)
		}
		after.Weight = nil
		if b.Weight != *o.weight {
			after.Weight = &ops.Weighted{Value: *o.weight, Configured: b.Weight, By: o.by, At: o.at}
		}
	}
	return after, nil
}

// enabled returns the overlay of a configured backend after Enable.
func (o operation) enabled(s lb.Service, b lb.Backend, before view.Overlay) (view.Overlay, error) {
	after, now := before, before.ApplyTo(b)
	held := now.Draining || before.IsOut()
	switch {
	case o.force && !s.IsMonitored():
		return after,
			fmt.Errorf("%w: %s has neither health checks nor outliers to override; enable %s without --force", ops.ErrRefused, s.Name, b.Name)
	case o.force && before.Forced != nil && !held:
		return after, fmt.Errorf("%w: %s is enabled by force already, by %s since %s", errNoChange, b.Name,
			before.Forced.By, before.Forced.At.Format(time.DateTime))
	case !o.force && before.Forced == nil && !held:
		return after, fmt.Errorf("%w: %s is neither drained nor disabled%s", errNoChange, b.Name,
			weightHint(now, before))
	}
	after.Drain, after.Forced = nil, nil
	if b.Draining {
		after.Drain = &ops.Drained{On: false, By: o.by, At: o.at}
	}
	if o.force {
		after.Forced = &ops.Forced{By: o.by, At: o.at}
	}
	return after, nil
}

func drainedBy(o view.Overlay) string {
	if o.Drain == nil {
		return " by the configuration"
	}
	return fmt.Sprintf(", by %s since %s; say --deadline to give it another", o.Drain.By,
		o.Drain.At.Format(time.DateTime))
}

func weightHint(now lb.Backend, o view.Overlay) string {
	switch {
	case now.Weight > 0:
		return ""
	case o.Weight != nil:
		return "; it takes no new flow because its weight was set to 0"
	}
	return "; it takes no new flow because its weight is 0"
}

// applyOverlays applies overlays, unless they would leave a service without a backend that takes new flows.
func (r *operator) applyOverlays(overlays map[view.BackendName]view.Overlay, changes []change) error {
	var services []int
	for _, change := range changes {
		if i, ok := r.view.Named[change.name.Service]; ok {
			services = append(services, i)
		}
		if o, exists := overlays[change.name]; exists && o.Absent == nil && r.view.ByName(change.name) == nil {
			o.Absent = &view.Absence{Since: time.Now(), Was: change.was}
			overlays[change.name] = o
		}
	}
	next := r.view.WithOverlays(overlays, services, time.Now())
	for _, i := range services {
		if err := next.CheckNotEmptied(r.view, i); err != nil {
			return err
		}
	}
	if err := r.applyView(next); err != nil {
		return fmt.Errorf("the data plane refused the change, and nothing was changed: %w", err)
	}
	r.armDeadline()
	for _, i := range services {
		r.health.logServing(i)
	}
	return nil
}

// record adds an operation to the history.
func (r *operator) record(op operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.history[max(0, len(r.history)-maxHistory+1):]
	r.history = append(slices.Clone(kept), op)
}

// undo undoes the latest operation.
func (r *operator) undo(order ops.Order) (ops.Operation, error) {
	if len(r.history) == 0 {
		return ops.Operation{}, fmt.Errorf("%w: there is no operation to undo", ops.ErrRefused)
	}
	op := r.history[len(r.history)-1]
	if lost := op.cannotUndo(); lost != "" {
		r.forget()
		return ops.Operation{}, fmt.Errorf("%w: %s cannot be undone: %s%s", ops.ErrRefused, op, lost, r.nextUndo())
	}
	overlays := maps.Clone(r.view.Overlays)
	if overlays == nil {
		overlays = map[view.BackendName]view.Overlay{}
	}
	done := operation{verb: ops.Undo, by: order.By, at: time.Now()}
	for _, change := range op.changes {
		if change.cannotUndo == "" {
			view.SetOverlay(overlays, change.name, change.restore(op.verb, overlays[change.name], done.at))
			done.changes = append(done.changes, change)
		}
	}
	if err := r.applyOverlays(overlays, done.changes); err != nil {
		return ops.Operation{}, err
	}
	r.forget()
	r.opt.Log.Info(fmt.Sprintf("%s, by %s at %s, is undone by %s", op, op.by, op.at.Format(time.DateTime),
		order.By), op.about(order.By).Attr())
	status, undone := done.status(), op.status()
	status.Undone, status.Notes = &undone, r.unsavedNotes()
	return status, nil
}

// restore returns an overlay in which the part that an operation changed has its previous value. A deadline may have
// passed meanwhile.
func (ch change) restore(verb ops.Verb, now view.Overlay, at time.Time) view.Overlay {
	if verb == ops.Weight {
		now.Weight = ch.before.Weight
		return now
	}
	now.Drain, now.Forced = ch.before.Drain, ch.before.Forced
	if now.Due(at) {
		now.Drain = takenOut(now.Drain, nil)
	}
	return now
}

// forget removes the latest operation from the history.
func (r *operator) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = slices.Clone(r.history[:len(r.history)-1])
}

// nextUndo names the operation that the next undo would undo.
func (r *operator) nextUndo() string {
	if len(r.history) == 0 {
		return "; there is no other"
	}
	return fmt.Sprintf("; another undo undoes %s", r.history[len(r.history)-1])
}

// expireAbsent ends the overlays of backends that have been absent for too long.
func (r *operator) expireAbsent() error {
	overlays, now := maps.Clone(r.view.Overlays), time.Now()
	var expired []view.BackendName
	for name, o := range overlays {
		if o.Absent.Expired(now) {
			expired = append(expired, name)
			delete(overlays, name)
		}
	}
	if len(expired) == 0 {
		return nil
	}
	if err := r.applyView(r.view.WithOverlays(overlays, nil, now)); err != nil {
		return fmt.Errorf("end the operations on backends that are absent: %w", err)
	}
	r.mu.Lock()
	why := fmt.Sprintf("by %s the backend had been absent for %s", now.Format(time.DateTime), view.AbsentFor)
	r.history = markCannotUndo(r.history, expired, why)
	r.mu.Unlock()
	lines := loglines.New(r.opt.Log.Warn)
	slices.SortFunc(expired, func(a, b view.BackendName) int { return cmp.Compare(a.String(), b.String()) })
	for _, name := range expired {
		lines.Logf(name.About(), "%s has been absent for %s, and the operations on it end",
			name, view.AbsentFor)
	}
	lines.Flush("the operations on %d more backends that have been absent for long end")
	return nil
}

// markCannotUndo returns a history in which the changes of these backends can no longer be undone, with the reason.
func markCannotUndo(history []operation, names []view.BackendName, why string) []operation {
	history = slices.Clone(history)
	for i := range history {
		history[i].changes = slices.Clone(history[i].changes)
		for k := range history[i].changes {
			if change := &history[i].changes[k]; change.cannotUndo == "" && slices.Contains(names, change.name) {
				change.cannotUndo = why
			}
		}
	}
	return history
}
