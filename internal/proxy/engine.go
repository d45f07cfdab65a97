// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/lb"
)

// Options are what an engine is made with.
type Options struct {
	// Dir is the directory of the instance's engine, as in /run/jeoul/INSTANCE/proxy. It is made; what it is in must
	// be the instance's alone, and gone after a boot.
	Dir string
	// Log gets what happens to HAProxy.
	Log *slog.Logger
	// Now is the clock that certificates are judged by; nil: time.Now.
	Now func() time.Time
}

// engine is HAProxy, as Engine has it.
type engine struct {
	host Host
	log  *slog.Logger
	now  func() time.Time

	// change is held by whatever changes HAProxy, one at a time.
	change sync.Mutex

	// mu guards what is below.
	mu      sync.Mutex
	state   State
	program program
	// judged is the configuration that HAProxy has found good last, and the program that did.
	judged, judgedBy string

	changes chan struct{}
}

var _ Engine = (*engine)(nil)

// New makes the engine of a directory.
func New(o Options) (Engine, error) {
	e := &engine{host: Host{Dir: o.Dir, Root: os.Geteuid() == 0}, log: o.Log, now: o.Now, changes: make(chan struct{}, 1)}
	if e.now == nil {
		e.now = time.Now
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if !strings.HasPrefix(o.Dir, "/") || strings.ContainsFunc(o.Dir, func(r rune) bool { return unsafe(r) || strings.ContainsRune(",()[]{}!<>|*%?&~^;", r) }) {
		return nil, fmt.Errorf("the directory of the proxy engine, %q, must be absolute and of letters, digits and ._/-", o.Dir)
	}
	return e, nil
}

// Check has HAProxy judge what is desired; see Engine.
func (e *engine) Check(ctx context.Context, d Desired) error {
	if len(d.Services) == 0 {
		return nil
	}
	_, err := e.checked(ctx, d)
	return err
}

// checked renders what is desired, and has it judged.
func (e *engine) checked(ctx context.Context, d Desired) (*Rendering, error) {
	p, err := e.find(ctx, d.Engine.Program)
	if err != nil {
		return nil, place{engine: true, field: "program"}.wrap(err)
	}
	r, err := Render(d, e.host)
	if err != nil {
		return nil, err
	}
	if err := e.checkUser(d.Engine); err != nil {
		return nil, err
	}
	if err := e.checkCertificates(d); err != nil {
		return nil, err
	}
	text := r.String()
	e.mu.Lock()
	known := e.judged == text && e.judgedBy == p.path+p.version
	e.mu.Unlock()
	if known {
		return r, nil
	}
	if err := judge(ctx, p.path, r); err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.judged, e.judgedBy = text, p.path+p.version
	e.mu.Unlock()
	return r, nil
}

// find returns HAProxy, which is asked again where its file is another.
func (e *engine) find(ctx context.Context, configured string) (program, error) {
	e.mu.Lock()
	p := e.program
	e.mu.Unlock()
	if p.current() && (configured == "" || configured == p.path) {
		return p, nil
	}
	p, err := find(ctx, configured)
	if err != nil {
		return p, err
	}
	e.mu.Lock()
	e.program = p
	e.state.Program, e.state.Version = p.path, p.version
	e.mu.Unlock()
	return p, nil
}

// checkUser says whether the host has the user that HAProxy is to become.
func (e *engine) checkUser(engine lb.ProxyEngine) error {
	name := cmp.Or(engine.User, lb.DefaultProxyUser)
	if !e.host.Root {
		return nil
	}
	if _, err := user.Lookup(name); err != nil {
		return place{engine: true, field: "user"}.wrap(fmt.Errorf("looking up the user that HAProxy runs as: %v; Debian's package haproxy makes the user %q", err, lb.DefaultProxyUser))
	}
	return nil
}

// checkCertificates says what is wrong with certificates' files.
func (e *engine) checkCertificates(d Desired) error {
	for i := range d.Services {
		s := &d.Services[i].Service
		if s.Proxy == nil {
			continue
		}
		for j, path := range s.Proxy.Certificates {
			at := place{service: s.Key(), field: fmt.Sprintf("proxy.certificates[%d]", j)}
			c, err := readCertificate(path)
			if err != nil {
				return at.wrap(err)
			}
			if why := c.trouble(e.now()); why != "" {
				return at.wrap(fmt.Errorf("%w: %s", ErrCertificate, why))
			}
		}
	}
	return nil
}

// errUnfinished is what the parts answer that are to come.
var errUnfinished = errors.New("the proxy engine cannot do this yet")

// Apply brings the engine to what is desired; see Engine.
func (e *engine) Apply(context.Context, Desired) error { return errUnfinished }

// Stats returns what was counted; see Engine.
func (e *engine) Stats(context.Context) (Stats, error) { return Stats{}, nil }

// State returns how the process is; see Engine.
func (e *engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// Changes is signalled when State is another; see Engine.
func (e *engine) Changes() <-chan struct{} { return e.changes }

// Renewed has HAProxy take certificates whose files have changed; see Engine.
func (e *engine) Renewed(context.Context) error { return nil }

// Leave ends the engine's watch; see Engine.
func (e *engine) Leave() error { return nil }

// Stop ends HAProxy; see Engine.
func (e *engine) Stop(context.Context) error { return nil }
