// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// Options are the settings and parts of an engine.
type Options struct {
	// Dir is the directory of the instance's engine, as in /run/jeoul/INSTANCE/proxy. It is created for the first
	// service; no other instance may use it.
	Dir string
	// Log gets the events of HAProxy; nil: none is logged.
	Log *slog.Logger
	// Now is the clock for the validity of certificates; nil: time.Now.
	Now func() time.Time
	// Files write the files that are read only at a restart of this process or of HAProxy, and report those that cannot
	// be written.
	Files *durable.Files
}

// maxDirName bounds the directory's name, in bytes: the path of a socket has at most 108 (unix(7)), and HAProxy first
// creates sockets under longer names.
const maxDirName = 80

// checkDir returns the reason why an engine cannot have a directory; nil if it can.
func checkDir(dir string) error {
	if !strings.HasPrefix(dir, "/") || strings.ContainsFunc(dir, func(r rune) bool {
		return needsQuote(r) || strings.ContainsRune(",()[]{}!<>|*%?&~^;=@", r)
	}) {
		return fmt.Errorf("the directory of the proxy engine, %q, must be absolute and of letters, digits and ._/-",
			dir)
	}
	if len(dir) > maxDirName {
		return fmt.Errorf(
			"the directory of the proxy engine, %q, has more than %d bytes: sockets in it could not have addresses",
			dir, maxDirName)
	}
	return nil
}

// New returns the engine of a directory. A HAProxy that an engine has left there, or that has outlived the engine's
// process, serves on. An unusable directory is an error only when there is a service.
func New(o Options) (Engine, error) {
	e := &engine{host: Host{Dir: o.Dir, Root: os.Geteuid() == 0, NonlocalBind: hasCapability(unix.CAP_NET_ADMIN)},
		log:        o.Log,
		now:        o.Now,
		changeLock: make(chan struct{}, 1), changes: make(chan struct{}, 1), heldWorkers: map[int]*master.Session{}}
	e.stateFile = o.Files.Content("the state of HAProxy", e.host.state(), "proxy", 0o600)
	e.config = o.Files.Content("HAProxy's configuration", e.host.file(), "", 0o600)
	e.countsFile = o.Files.Content("the counters of HAProxy", e.host.counts(), "", 0o600)
	e.socket = master.Socket(e.host.master())
	e.watch, e.unwatch = context.WithCancel(context.Background())
	if e.now == nil {
		e.now = time.Now
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.unsupported = checkDir(o.Dir)
	if e.unsupported != nil {
		return e, nil // and nothing is there to adopt
	}
	e.adopt()
	e.watching.Go(e.maintain)
	return e, nil
}
