// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/checkpath"
	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// reopenAfter is the time before sockets of checks that could not be made are tried again.
const reopenAfter = time.Minute

// checksVIP takes health checks through the data plane. Its sockets are made when the first check asks for them, since
// the programs are then loaded again; until they are there, checks are no evidence.
type checksVIP struct {
	open func() (*checkpath.Checks, error)
	log  *slog.Logger

	mu     sync.Mutex
	checks *checkpath.Checks
	// opening: the sockets are being made. After failed that is tried again reopenAfter later.
	opening bool
	failed  time.Time
	err     error
	// problem is why the last attempt to make the sockets failed, also during the next one; nil: it did not.
	problem error
}

// Problem describes why checks by the VIP find nothing out; "" where they do, or where none was due yet.
func (w *checksVIP) Problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.problem == nil {
		return ""
	}
	return fmt.Sprintf("health checks with via: vip find nothing out: %v", w.problem)
}

// Dial opens a connection: see health.Way.
func (w *checksVIP) Dial(ctx context.Context, network string, backend lb.BackendKey, port uint16) (net.Conn, error) {
	checks, err := w.opened()
	if err != nil {
		return nil, err
	}
	return checks.Dial(ctx, network, backend, port)
}

// Ping sends an echo request: see health.Way.
func (w *checksVIP) Ping(ctx context.Context, backend lb.BackendKey) error {
	checks, err := w.opened()
	if err != nil {
		return err
	}
	return checks.Ping(ctx, backend)
}

// opened returns the sockets of checks, or has them made.
func (w *checksVIP) opened() (*checkpath.Checks, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.checks != nil:
		return w.checks, nil
	case !w.opening && (w.err == nil || time.Since(w.failed) > reopenAfter):
		w.opening, w.err = true, nil
		go w.prepare()
	case w.err != nil:
		return nil, fmt.Errorf("%w: %v", health.ErrNoPath, w.err)
	}
	return nil, fmt.Errorf("%w: the programs are being loaded that know answers to checks", health.ErrForNow)
}

// prepare makes the sockets.
func (w *checksVIP) prepare() {
	checks, err := w.open()
	w.mu.Lock()
	w.opening, w.checks, w.err, w.failed = false, checks, err, time.Now()
	w.problem = err
	w.mu.Unlock()
	if problem := w.Problem(); problem != "" {
		w.log.Warn(problem)
	}
}
