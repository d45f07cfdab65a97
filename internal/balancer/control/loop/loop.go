// SPDX-License-Identifier: Apache-2.0

// Package loop is an event loop: one goroutine makes all changes of a state, and runs calls, signals and tasks that are
// due. Code that runs in it needs no lock, and must not block.
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

// Loop is an event loop, created by New. Signals, tasks and sources are added before Run.
type Loop struct {
	calls   chan func()
	stopped chan struct{}
	// signalled wakes the loop after any signal.
	signalled chan struct{}
	signals   []*signal
	sources   []*Source
	// timer is one timer for all tasks.
	timer *time.Timer
	tasks []*Task
}

// signal is a channel of another component; the loop calls do after each receive.
type signal struct {
	from    <-chan struct{}
	do      func()
	pending atomic.Bool
}

// New returns a loop. It does nothing before Run.
func New() *Loop {
	l := &Loop{calls: make(chan func()), stopped: make(chan struct{}), signalled: make(chan struct{}, 1),
		timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	return l
}

// OnSignal registers do to be called in the loop after a signal. Signals that arrive together may lead to one call.
func (l *Loop) OnSignal(from <-chan struct{}, do func()) {
	l.signals = append(l.signals, &signal{from: from, do: do})
}

// Run runs the loop until the context ends, which is not an error, or a task fails. It then calls last, after which
// nothing is called any more.
func (l *Loop) Run(ctx context.Context, last func()) error {
	defer close(l.stopped)
	defer last()
	forwarding, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	l.forwardSignals(forwarding, &watchers)
	defer watchers.Wait()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.signalled:
			for _, s := range l.signals {
				if s.pending.Swap(false) {
					s.do()
				}
			}
		case call := <-l.calls:
			call()
		case <-l.timer.C:
			if err := l.runDue(); err != nil {
				return err
			}
		}
	}
}

// forwardSignals merges all signals into the one channel that the loop selects on, until the context ends.
func (l *Loop) forwardSignals(ctx context.Context, forwarding *sync.WaitGroup) {
	for _, s := range l.signals {
		forwarding.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-s.from:
					s.pending.Store(true)
					select {
					case l.signalled <- struct{}{}:
					default: // the loop is awake already
					}
				}
			}
		})
	}
}

// Call runs do in the loop, and does not wait for its end. Errors: ErrStopped, the context's; do is not called then.
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

// CallAndWait runs do in the loop, and returns its result. Errors: ErrStopped, the context's (do may still be called),
// those of do.
func CallAndWait[T any](ctx context.Context, l *Loop, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1) // buffered: the loop never waits for the caller
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
