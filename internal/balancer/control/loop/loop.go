// SPDX-License-Identifier: Apache-2.0

// Package loop has one goroutine do all that changes a state: it waits for a call, a signal or the time of a task. Code
// in it needs no lock, and must not wait for others.
package loop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrStopped is the error of a call when the loop has ended.
var ErrStopped = errors.New("the balancer is not running")

// Loop is made by New. Signals, tasks and sources are added before Run.
type Loop struct {
	calls   chan func()
	stopped chan struct{}
	// heard has something to receive after a signal was given.
	heard   chan struct{}
	signals []*signal
	sources []*Source
	// timer serves all tasks, so that another one needs none of its own.
	timer *time.Timer
	tasks []*Task
}

// signal comes from outside, and has the loop call do.
type signal struct {
	from  <-chan struct{}
	do    func()
	given atomic.Bool
}

// New returns a loop that does nothing before Run.
func New() *Loop {
	l := &Loop{calls: make(chan func()), stopped: make(chan struct{}), heard: make(chan struct{}, 1),
		timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	return l
}

// On has the loop call do after a signal. Several signals may make one call.
func (l *Loop) On(from <-chan struct{}, do func()) {
	l.signals = append(l.signals, &signal{from: from, do: do})
}

// Run works until the context ends, which is no error, or a task fails. Then it calls last, and after that nothing is
// called any more.
func (l *Loop) Run(ctx context.Context, last func()) error {
	defer close(l.stopped)
	defer last()
	hearing, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	l.forwardSignals(hearing, &watchers)
	defer watchers.Wait()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.heard:
			for _, s := range l.signals {
				if s.given.Swap(false) {
					s.do()
				}
			}
		case call := <-l.calls:
			call()
		case <-l.timer.C:
			if err := l.work(); err != nil {
				return err
			}
		}
	}
}

// forwardSignals passes all signals on to the one channel that the loop waits for, until the context ends.
func (l *Loop) forwardSignals(ctx context.Context, forwarding *sync.WaitGroup) {
	for _, s := range l.signals {
		forwarding.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-s.from:
					s.given.Store(true)
					select {
					case l.heard <- struct{}{}:
					default: // the loop is about to look
					}
				}
			}
		})
	}
}

// Call has the loop do something, and does not wait for the end of it. Errors: ErrStopped, the context's; do is not
// called then.
func (l *Loop) Call(ctx context.Context, do func()) error {
	select {
	case l.calls <- do:
		return nil
	case <-l.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ask has the loop do something, and returns its result. Errors: ErrStopped, the context's (do may still be called),
// those of do.
func Ask[T any](ctx context.Context, l *Loop, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1) // the loop never waits for who asked
	var none T
	err := l.Call(ctx, func() {
		value, err := do()
		answers <- answer{value, err}
	})
	if err != nil {
		return none, err
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
