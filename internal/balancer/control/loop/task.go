// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"slices"
	"time"
)

// Task is a function to call at a time. It is off until In is called, and after it was done.
type Task struct {
	loop *Loop
	do   func() error
	at   time.Time
	on   bool
}

// Task returns a task that calls do. An error of do ends the loop.
func (l *Loop) Task(do func() error) *Task {
	t := &Task{loop: l, do: do}
	l.tasks = append(l.tasks, t)
	return t
}

// Quiet returns a task that cannot end the loop.
func (l *Loop) Quiet(do func()) *Task {
	return l.Task(func() error {
		do()
		return nil
	})
}

// In has the task done after d, and not when it was to be done before.
func (t *Task) In(d time.Duration) {
	t.at, t.on = time.Now().Add(d), true
	t.loop.arm()
}

// Within has the task done after d, unless it is to be done before that.
func (t *Task) Within(d time.Duration) {
	if at := time.Now().Add(d); !t.on || t.at.After(at) {
		t.In(d)
	}
}

// Off has the task not done.
func (t *Task) Off() {
	t.on = false
	t.loop.arm()
}

// On says whether the task is to be done.
func (t *Task) On() bool { return t.on }

// arm sets the timer to the task that is due first.
func (l *Loop) arm() {
	var first *Task
	for _, t := range l.tasks {
		if t.on && (first == nil || t.at.Before(first.at)) {
			first = t
		}
	}
	if first == nil {
		l.timer.Stop()
		return
	}
	l.timer.Reset(time.Until(first.at))
}

// work does the tasks that are due, the one that was due first before the others.
func (l *Loop) work() error {
	now := time.Now()
	due := slices.DeleteFunc(slices.Clone(l.tasks), func(t *Task) bool { return !t.on || t.at.After(now) })
	slices.SortStableFunc(due, func(a, b *Task) int { return a.at.Compare(b.at) })
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
	l.arm()
	return nil
}
