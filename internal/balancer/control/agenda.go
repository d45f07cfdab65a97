// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"
	"time"
)

// agenda is what the loop is to do at a time. One timer serves all of it, so that whatever
// comes later needs none of its own.
type agenda struct {
	timer *time.Timer
	tasks []*task
}

// task is one thing to do. It is off until in is called, and after it was done.
type task struct {
	agenda *agenda
	do     func() error
	at     time.Time
	on     bool
}

func newAgenda() *agenda {
	a := &agenda{timer: time.NewTimer(time.Hour)}
	a.timer.Stop()
	return a
}

// add puts a task on the agenda. An error of do ends the balancer.
func (a *agenda) add(do func() error) *task {
	t := &task{agenda: a, do: do}
	a.tasks = append(a.tasks, t)
	return t
}

// in has the task done after a while, and not when it was to be done before.
func (t *task) in(d time.Duration) {
	t.at, t.on = time.Now().Add(d), true
	t.agenda.arm()
}

// off has the task not done.
func (t *task) off() {
	t.on = false
	t.agenda.arm()
}

// arm sets the timer to what is due first.
func (a *agenda) arm() {
	var first *task
	for _, t := range a.tasks {
		if t.on && (first == nil || t.at.Before(first.at)) {
			first = t
		}
	}
	if first == nil {
		a.timer.Stop()
		return
	}
	a.timer.Reset(time.Until(first.at))
}

// work does what is due, what was due first before the rest.
func (a *agenda) work() error {
	now := time.Now()
	due := slices.DeleteFunc(slices.Clone(a.tasks), func(t *task) bool { return !t.on || t.at.After(now) })
	slices.SortStableFunc(due, func(a, b *task) int { return a.at.Compare(b.at) })
	for _, t := range due {
		// One before it may have put it off.
		if !t.on || t.at.After(now) {
			continue
		}
		t.on = false
		if err := t.do(); err != nil {
			return err
		}
	}
	a.arm()
	return nil
}
