// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// Options are the settings and parts of an engine.
type Options struct {
	// Dir is the directory of the instance's engine, as in /run/jeoul/INSTANCE/proxy. It is made when something is to
	// be served; no other instance may have it.
	Dir string
	// Log gets the events of HAProxy; nil: none is logged.
	Log *slog.Logger
	// Now is the clock that certificates are judged by; nil: time.Now.
	Now func() time.Time
	// Files write the files that only a restart of this process, or of HAProxy, needs, and report those that cannot be
	// written.
	Files *durable.Files
}

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

// longestDir bounds the directory's name, in bytes: addresses of sockets have 108 (unix(7)), and HAProxy makes them
// under a longer name first.
const longestDir = 80

// unsupported says why an engine cannot have a directory; nil if it can.
func unsupported(dir string) error {
	if !strings.HasPrefix(dir, "/") || strings.ContainsFunc(dir, func(r rune) bool {
		return unsafe(r) || strings.ContainsRune(",()[]{}!<>|*%?&~^;=@", r)
	}) {
		return fmt.Errorf("the directory of the proxy engine, %q, must be absolute and of letters, digits and ._/-",
			dir)
	}
	if len(dir) > longestDir {
		return fmt.Errorf(
			"the directory of the proxy engine, %q, has more than %d bytes: sockets in it could not have addresses",
			dir, longestDir)
	}
	return nil
}

// New makes the engine of a directory. A HAProxy that an engine has left there, or that has outlived the process of
// one, serves on. A directory that no engine can have is an error only when there is something to serve.
func New(o Options) (Engine, error) {
	e := &engine{host: Host{Dir: o.Dir, Root: os.Geteuid() == 0, Foreign: may(unix.CAP_NET_ADMIN)}, log: o.Log,
		now:  o.Now,
		turn: make(chan struct{}, 1), changes: make(chan struct{}, 1), holds: map[int]*master.Session{}}
	e.known = o.Files.Content("what is known of HAProxy", e.host.state(), "proxy", 0o600)
	e.config = o.Files.Content("HAProxy's configuration", e.host.file(), "", 0o600)
	e.counted = o.Files.Content("what HAProxy has counted", e.host.counts(), "", 0o600)
	e.socket = master.Socket(e.host.master())
	e.watch, e.unwatch = context.WithCancel(context.Background())
	if e.now == nil {
		e.now = time.Now
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.unsupported = unsupported(o.Dir)
	if e.unsupported != nil {
		return e, nil // and nothing is there to adopt
	}
	e.adopt()
	e.watching.Go(e.tend)
	return e, nil
}

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
