// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// engine is HAProxy, as Engine has it.
type engine struct {
	host Host
	// known is the file of HAProxy's state, config that of its configuration, and counted that of its counts.
	known, config, counted *durable.Content
	// unwritten: the last configuration could not be written, so that the file is older.
	unwritten bool
	// filed is the configuration in the file, as far as this process knows.
	filed *Rendering

	log    *slog.Logger
	now    func() time.Time
	socket master.Socket

	// turn is held by each change of HAProxy, one at a time; it guards the fields below, up to mu.
	turn chan struct{}
	// kept is the HAProxy that runs, or is to; nil: none is.
	kept  *kept
	ended bool
	// lived is when HAProxy was started last, and deaths how often it has died since it last lived for long.
	lived  time.Time
	deaths int

	// watch ends with Leave and Stop, and watching counts the goroutines that run until then.
	watch    context.Context
	unwatch  context.CancelFunc
	watching sync.WaitGroup

	// gathering serializes the reading of workers' counters: of two readings, the later one must be stored last.
	gathering sync.Mutex
	counts    tally
	// holds are sessions with workers that are to end, by their processes: see hold.
	holds map[int]*master.Session

	// unsupported says why nothing can be served from the directory; nil: it can.
	unsupported error

	// mu guards the fields below.
	mu      sync.Mutex
	state   State
	program program
	// judged is the configuration that HAProxy has accepted last.
	judged string
	// shown are the certificates that are served, by path.
	shown map[string]served
	// down says why HAProxy does not run, and broken why a certificate could not be renewed.
	down, broken string

	changes chan struct{}
}

var _ Engine = (*engine)(nil)

// take waits for the turn, which the function that it returns gives back.
func (e *engine) take(ctx context.Context) (func(), error) {
	select {
	case e.turn <- struct{}{}:
		return func() { <-e.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another change of the proxy engine: %w", ctx.Err())
	}
}

// State returns the state of the process; see Engine.
func (e *engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// Changes is signalled when State has changed; see Engine.
func (e *engine) Changes() <-chan struct{} { return e.changes }

// note changes the state under mu, and signals where it differs then.
func (e *engine) note(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.state
	change()
	e.state.Trouble = e.trouble()
	if e.state == before {
		return
	}
	select {
	case e.changes <- struct{}{}:
	default: // signalled, and not heard yet
	}
}

// trouble lists the faults. The caller holds mu.
func (e *engine) trouble() string {
	var all []string
	for _, path := range sortedKeys(e.shown) {
		if why := e.shown[path].trouble(path, e.now()); why != "" {
			all = append(all, why)
		}
	}
	for _, why := range []string{e.down, e.broken} {
		if why != "" {
			all = append(all, why)
		}
	}
	return strings.Join(all, "; ")
}

// serves says whether a certificate is served.
func (e *engine) serves(path string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, is := e.shown[path]
	return is
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
