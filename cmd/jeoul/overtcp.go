// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/metrics"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
)

// overTCP is how the API is answered over TCP; nil where the configuration does not have that.
type overTCP struct {
	listener net.Listener
	guard    *access.Guard
}

// listenOverTCP opens the address of the API, and reads what its clients are known by.
func listenOverTCP(ctx context.Context, cfg *config.Config, log *slog.Logger) (*overTCP, error) {
	if !cfg.API.Listen.IsValid() {
		return nil, nil
	}
	guard, err := access.New(cfg, log)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.API.Listen.String())
	if err != nil {
		return nil, cfg.At("api.listen", "%v", err)
	}
	return &overTCP{listener, guard}, nil
}

// close closes the address.
func (o *overTCP) close() {
	if o != nil {
		o.listener.Close()
	}
}

// serve answers requests until the context ends.
func (o *overTCP) serve(ctx context.Context, b api.Balancer) error {
	return api.ServeTLS(ctx, o.listener, b, o.guard)
}

// reloading has a reload read the files of the API again, too: one that cannot be used refuses it.
func (o *overTCP) reloading(reload sources.Apply) sources.Apply {
	if o == nil {
		return reload
	}
	return func(ctx context.Context, load func() (*config.Config, error)) error {
		var use func()
		err := reload(ctx, func() (cfg *config.Config, err error) {
			if cfg, err = load(); err == nil && cfg.API.Listen.IsValid() {
				use, err = o.guard.Prepare(cfg)
			}
			return cfg, err
		})
		if err == nil {
			use()
		}
		return err
	}
}

// status adds what a person should look at.
func (o *overTCP) status(status func() (ops.Status, error)) func() (ops.Status, error) {
	if o == nil {
		return status
	}
	return func() (ops.Status, error) {
		s, err := status()
		if err == nil {
			s.Problems = append(s.Problems[:len(s.Problems):len(s.Problems)], o.guard.Problems()...)
		}
		return s, err
	}
}

// denialsEvery is the least time from one line of the log about refused clients to the next: who guesses tokens
// must not fill the log.
const denialsEvery = 10 * time.Second

// denials counts requests of clients that the API over TCP does not let in, and logs some of them.
type denials struct {
	shown *metrics.Metrics
	log   *slog.Logger

	mu sync.Mutex
	// logged is when the last line was written, and more are those since that have none.
	logged time.Time
	more   int
}

// note takes one: from where it came, and why it was refused.
func (d *denials) note(from string, why error) {
	d.shown.Denied(why)
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if !d.logged.IsZero() && now.Sub(d.logged) < denialsEvery {
		d.more++
		return
	}
	text := fmt.Sprintf("refused a request to the API over TCP from %s: %v", from, why)
	if d.more > 0 {
		text += fmt.Sprintf(" (and %d others since %s)", d.more, d.logged.Local().Format(time.TimeOnly))
	}
	d.log.Warn(text)
	d.logged, d.more = now, 0
}
