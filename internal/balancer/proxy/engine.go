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

// engine implements Engine by HAProxy.
type engine struct {
	host Host
	// stateFile is the file of HAProxy's state, config that of its configuration, and countsFile that of its
	// counts.
	stateFile, config, countsFile *durable.Content
	// unwritten: the last configuration could not be written, so that the file is older.
	unwritten bool
	// filed is the configuration in the file, as far as this process knows.
	filed *Rendering

	log    *slog.Logger
	now    func() time.Time
	socket master.Socket

	// changeLock is held by each change of HAProxy, one at a time; it guards the fields below, up to mu.
	changeLock chan struct{}
	// running is the state of the HAProxy that runs or is to run; nil: none is to.
	running *savedState
	ended   bool
	// startedAt is the time of HAProxy's last start, and deaths the number of ends since it last ran for backoffReset.
	startedAt time.Time
	deaths    int

	// watch ends with Leave and Stop, and watching counts the goroutines that run until then.
	watch    context.Context
	unwatch  context.CancelFunc
	watching sync.WaitGroup

	// countsMu serializes the reading of workers' counters: of two readings, the later one must be stored last.
	countsMu sync.Mutex
	counts   counterTotals
	// heldWorkers are sessions with workers that are to end, by their processes: see holdWorker.
	heldWorkers map[int]*master.Session

	// unsupported is the reason why nothing can be served from the directory; nil: it can.
	unsupported error

	// mu guards the fields below.
	mu      sync.Mutex
	state   State
	program program
	// validated is the configuration that HAProxy has accepted last.
	validated string
	// servedCertificates are the certificates that are served, by path.
	servedCertificates map[string]served
	// downReason is the reason why HAProxy does not run, renewProblem why a certificate could not be renewed, and
	// programProblem why it is not the configured program that runs.
	downReason, renewProblem, programProblem string

	changes chan struct{}
}

var _ Engine = (*engine)(nil)

// lock waits until no other change is made, and returns the function that lets the next one begin.
func (e *engine) lock(ctx context.Context) (func(), error) {
	select {
	case e.changeLock <- struct{}{}:
		return func() { <-e.changeLock }, nil
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

// updateState changes the state under mu, and signals where it differs then.
func (e *engine) updateState(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.state
	change()
	e.state.Problem = e.problems()
	if e.state == before {
		return
	}
	select {
	case e.changes <- struct{}{}:
	default: // a signal is pending already
	}
}

// problems lists the faults. The caller holds mu.
func (e *engine) problems() string {
	var all []string
	for _, path := range sortedKeys(e.servedCertificates) {
		if why := e.servedCertificates[path].problem(path, e.now()); why != "" {
			all = append(all, why)
		}
	}
	for _, why := range []string{e.downReason, e.renewProblem, e.programProblem} {
		if why != "" {
			all = append(all, why)
		}
	}
	return strings.Join(all, "; ")
}

// isServed reports whether a certificate is served.
func (e *engine) isServed(path string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, is := e.servedCertificates[path]
	return is
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
