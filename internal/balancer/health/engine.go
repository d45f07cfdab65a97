// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"container/heap"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/openfiles"
)

// Options are the parts and settings of an engine.
type Options struct {
	// Checker asks. It must not be nil.
	Checker Checker
	// Log gets this host's own trouble, and its end; nil: slog.Default. Changes of backends are logged by the caller,
	// who knows the services' names: see Changed.
	Log *slog.Logger
	// Running is how many checks may run at a time; 0: half as many as the process may have open
	// files, and at most 16,384.
	Running int
	// Clock reads the machine's clocks, by which verdicts are kept over restarts; nil: clock.Read.
	Clock func() clock.Reading
}

// Engine asks endpoints on a schedule of its own, and keeps a verdict for each backend. Its
// methods may be called from any goroutine.
type Engine struct {
	checker      Checker
	starter      Starter // the same; nil: it is none
	log          *slog.Logger
	limit        int
	clock        func() clock.Reading
	began        time.Time
	stallMonitor stallMonitor
	wake         chan struct{} // the time for which Run waits has changed
	changes      chan struct{}
	wait         sync.WaitGroup // checks that run

	// watching is held by Watch, which alone writes targets and watches, with mu held too: it reads
	// them without mu.
	watching sync.Mutex
	call     uint64 // of Watch

	mu       sync.Mutex
	ctx      context.Context // Run's; nil: it does not run
	beats    bool            // the pulse runs, for there was a check
	targets  map[targetKey]*target
	watches  map[lb.BackendKey]*watch
	queue    queue
	asleep   time.Duration // until when Run sleeps
	starting []asking      // checks for Run to hand to the starter
	bucket   bucket
	running  int
	full     time.Duration // when a check last had to wait, for as many ran as may
	changed  map[lb.BackendKey]struct{}
	previous map[uint64]memory
	troubles troubles
	offline  string // why this host reaches no backend; "": it does
}

// New returns an engine that watches nothing yet.
func New(opt Options) *Engine {
	e := &Engine{
		checker: opt.Checker, log: opt.Log, limit: opt.Running, clock: opt.Clock,
		began: time.Now(), wake: make(chan struct{}, 1), changes: make(chan struct{}, 1),
		targets: map[targetKey]*target{}, watches: map[lb.BackendKey]*watch{},
		changed: map[lb.BackendKey]struct{}{}, previous: map[uint64]memory{}, troubles: troubles{},
	}
	e.starter, _ = opt.Checker.(Starter)
	if e.log == nil {
		e.log = slog.Default()
	}
	if e.clock == nil {
		e.clock = clock.Read
	}
	if e.limit == 0 {
		e.limit = 1 << 14
		if most, err := openfiles.Most(); err == nil {
			e.limit = int(min(uint64(e.limit), max(1, most/2)))
		}
	}
	e.stallMonitor.start = e.began
	return e
}

// now is the time since the engine's start, by a clock that stands while the machine is suspended.
func (e *Engine) now() time.Duration { return time.Since(e.began) }

// Run makes the wanted checks until the context ends, and returns when the last check has.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.ctx, e.beats = ctx, false
	e.bucket.filled, e.bucket.tokens = e.now(), few
	for _, t := range e.queue { // whatever was due before
		t.due = t.start(e.now(), max(t.due, e.now()))
		t.next = t.due
	}
	heap.Init(&e.queue)
	e.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			e.mu.Lock()
			e.ctx = nil
			e.mu.Unlock()
			e.wait.Wait()
			return ctx.Err()
		case <-timer.C:
		case <-e.wake:
		}
		e.mu.Lock()
		now := e.now()
		pause := e.dispatch(now)
		e.asleep = now + pause
		starting := e.starting
		e.starting = nil
		e.mu.Unlock()
		timer.Reset(pause)
		e.launch(ctx, starting)
	}
}

// asking is a check that is made.
type asking struct {
	target   *target
	endpoint Endpoint
	began    time.Duration
	within   time.Duration // the time that it may take
	late     time.Duration // of the pulse, when it began
	offline  string        // the reason for being offline, when it began
}

// start begins a check of the target. e.mu is held.
func (e *Engine) start(t *target) {
	e.running++
	if ctx := e.ctx; !e.beats {
		// An engine without checks needs no pulse, which wakes the process fifty times a second.
		e.beats = true
		e.stallMonitor.begin()
		e.wait.Go(func() { e.stallMonitor.run(ctx) })
	}
	a := asking{t, t.endpoint(), e.now(), t.key.spec.check.Timeout + t.extra, e.stallMonitor.lateness(), e.offline}
	if e.starter != nil {
		e.starting = append(e.starting, a) // not while e.mu is held: it is the kernel's time
		return
	}
	e.askConcurrently(e.ctx, a)
}

// launch hands checks to the starter, or makes those itself that are none for it.
func (e *Engine) launch(ctx context.Context, starting []asking) {
	for _, a := range starting {
		e.wait.Add(1)
		begun := e.starter.Start(ctx, a.endpoint, &a.target.key.spec.check, a.within, func(answer Answer) {
			defer e.wait.Done()
			e.end(ctx, a, answer)
		})
		if !begun {
			e.askConcurrently(ctx, a)
			e.wait.Done()
		}
	}
}

// askConcurrently makes a check in a goroutine of its own.
func (e *Engine) askConcurrently(run context.Context, a asking) {
	e.wait.Go(func() {
		check := &a.target.key.spec.check
		ctx, cancel := context.WithTimeout(run, a.within)
		answer := e.checker.Check(ctx, a.endpoint, check, nil)
		cancel()
		e.end(run, a, answer)
	})
}

// Offline says why this host reaches no backend, or with "" that it does. A check that fails is no
// evidence if it began or ended before that.
func (e *Engine) Offline(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.offline = why
}

// end takes the answer of a check, unless it is no evidence.
func (e *Engine) end(run context.Context, a asking, answer Answer) {
	t := a.target
	late := e.stallMonitor.lateness() - a.late
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running--; e.running == e.limit-1 {
		e.rouse()
	}
	if t.gone || run.Err() != nil {
		return
	}
	if answer.Outcome == Failed && answer.Silent {
		answer = t.heed(answer, a.within, late)
	}
	if why := cmp.Or(e.offline, a.offline); why != "" && answer.Outcome == Failed {
		answer = Trouble(why, why)
	}
	e.note(t, answer, a.began)
	e.await(t, a.began)
}

// note takes an answer into the target's state and its watches' verdicts. e.mu is held.
func (e *Engine) note(t *target, answer Answer, began time.Duration) {
	t.last = time.Now()
	t.took = e.now() - began
	t.text = answer.Text
	if answer.Outcome == NoEvidence {
		if !answer.Passing {
			e.troubles.note(e.log, answer, t)
		}
		if t.state == Unknown {
			t.reason = answer.Reason
		}
		return
	}
	passed := answer.Outcome == Passed
	if passed || !answer.Silent {
		t.extra = 0
	}
	other := t.machine.note(passed, answer.Final, t.rise(), t.fall())
	if other {
		t.since = t.last
	}
	if !passed || t.state != Failing {
		t.reason = answer.Reason
	}
	if answer.Weighs && t.weight != answer.Weight {
		t.weight, other = answer.Weight, true
	}
	if answer.Drains && t.drain != answer.Drain {
		t.drain, other = answer.Drain, true
	}
	other = t.confirm() || other
	if other {
		for _, w := range t.watches {
			e.judge(w)
		}
	}
}
