// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"slices"
	"time"
)

// Task is a function that the loop calls at a scheduled time. It is not scheduled before the first Schedule, nor after
// each run.
type Task struct {
	loop      *Loop
	do        func() error
	at        time.Time
	scheduled bool
}

// AddTask adds a task that calls do. An error of do ends the loop.
func (l *Loop) AddTask(do func() error) *Task {
	t := &Task{loop: l, do: do}
	l.tasks = append(l.tasks, t)
	return t
}

// AddFunc adds a task that cannot end the loop.
func (l *Loop) AddFunc(do func()) *Task {
	return l.AddTask(func() error {
		do()
		return nil
	})
}

// Schedule runs the task after d, instead of at the time that was scheduled before.
func (t *Task) Schedule(d time.Duration) {
	t.at, t.scheduled = time.Now().Add(d), true
	t.loop.arm()
}

// ScheduleWithin runs the task after d, or earlier if an earlier time is scheduled already.
func (t *Task) ScheduleWithin(d time.Duration) {
	if at := time.Now().Add(d); !t.scheduled || t.at.After(at) {
		t.Schedule(d)
	}
}

// Cancel cancels the scheduled run, if there is one.
func (t *Task) Cancel() {
	t.scheduled = false
	t.loop.arm()
}

// Scheduled reports whether the task has a scheduled run.
func (t *Task) Scheduled() bool { return t.scheduled }

// arm sets the timer to the earliest scheduled time.
func (l *Loop) arm() {
	var first *Task
	for _, t := range l.tasks {
		if t.scheduled && (first == nil || t.at.Before(first.at)) {
			first = t
		}
	}
	if first == nil {
		l.timer.Stop()
		return
	}
	l.timer.Reset(time.Until(first.at))
}

// runDue runs the tasks that are due, in the order of their times.
func (l *Loop) runDue() error {
	now := time.Now()
	due := slices.DeleteFunc(slices.Clone(l.tasks), func(t *Task) bool { return !t.scheduled || t.at.After(now) })
	slices.SortStableFunc(due, func(a, b *Task) int { return a.at.Compare(b.at) })
	for _, t := range due {
		// A task before it may have rescheduled or cancelled it.
		if !t.scheduled || t.at.After(now) {
			continue
		}
		t.scheduled = false
		if err := t.do(); err != nil {
			return err
		}
	}
	l.arm()
	return nil
}
