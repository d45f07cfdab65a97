// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// reopenAfter is how long a way that could not be made is not tried again.
const reopenAfter = time.Minute

// wayByVIP takes health checks through the data plane. It is made when the first check
// asks for it, since the programs are then loaded anew, and until it is there checks are no
// evidence.
type wayByVIP struct {
	open func() (*datapath.Checks, error)
	log  *slog.Logger

	mu     sync.Mutex
	checks *datapath.Checks
	// opening: it is being made. After failed it is tried again reopenAfter later.
	opening bool
	failed  time.Time
	err     error
}

// Dial opens a connection: see health.Way.
func (w *wayByVIP) Dial(ctx context.Context, network string, backend lb.BackendKey, port uint16) (net.Conn, error) {
	checks, err := w.way()
	if err != nil {
		return nil, err
	}
	return checks.Dial(ctx, network, backend, port)
}

// Ping sends an echo request: see health.Way.
func (w *wayByVIP) Ping(ctx context.Context, backend lb.BackendKey) error {
	checks, err := w.way()
	if err != nil {
		return err
	}
	return checks.Ping(ctx, backend)
}

// way returns what is open, or has it made.
func (w *wayByVIP) way() (*datapath.Checks, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.checks != nil:
		return w.checks, nil
	case !w.opening && (w.err == nil || time.Since(w.failed) > reopenAfter):
		w.opening, w.err = true, nil
		go w.prepare()
	case w.err != nil:
		return nil, fmt.Errorf("%w: %v", health.ErrNoWay, w.err)
	}
	return nil, fmt.Errorf("%w: the programs are being loaded that know answers to checks", health.ErrForNow)
}

// prepare makes it.
func (w *wayByVIP) prepare() {
	checks, err := w.open()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opening, w.checks, w.err, w.failed = false, checks, err, time.Now()
	if err != nil {
		w.log.Warn(fmt.Sprintf("health checks with via: vip find nothing out: %v", err))
	}
}
