// SPDX-License-Identifier: Apache-2.0

package health

import (
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

	// watching is held by Watch and Amend, which alone write targets and watches, with mu held too: they read them
	// without mu.
	watching sync.Mutex
	call     uint64 // of Watch or Amend
	interner *interner

	mu       sync.Mutex
	ctx      context.Context // Run's; nil: it does not run
	beats    bool            // the pulse runs, because there was a check
	targets  map[targetKey]*target
	watches  map[lb.BackendKey]*watch
	queue    queue
	asleep   time.Duration  // until when Run sleeps
	starting []pendingCheck // checks for Run to hand to the starter
	bucket   bucket
	running  int
	full     time.Duration // when a check last had to wait, for as many ran as may
	changed  map[lb.BackendKey]struct{}
	previous map[uint64]targetState // of the process before
	dropped  map[uint64]targetState // by the last call of Watch or Amend: see dropBackends
	troubles troubles
	offline  string // why this host reaches no backend; "": it does
	// lastOffline is why this host last reached no backend, and settled when its network passes packets again.
	lastOffline string
	settled     time.Duration
}

// New returns an engine that watches nothing yet.
func New(opt Options) *Engine {
	e := &Engine{
		checker: opt.Checker, log: opt.Log, limit: opt.Running, clock: opt.Clock,
		began: time.Now(), wake: make(chan struct{}, 1), changes: make(chan struct{}, 1),
		targets: map[targetKey]*target{}, watches: map[lb.BackendKey]*watch{},
		changed: map[lb.BackendKey]struct{}{}, previous: map[uint64]targetState{},
		dropped: map[uint64]targetState{}, troubles: troubles{},
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
		if most, err := openfiles.Max(); err == nil {
			e.limit = int(min(uint64(e.limit), max(1, most/2)))
		}
	}
	e.stallMonitor.start = e.began
	return e
}

// now is the time since the engine's start, by a clock that stands while the machine is suspended.
func (e *Engine) now() time.Duration { return time.Since(e.began) }
