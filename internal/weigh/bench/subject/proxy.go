// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"net/netip"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// runningProxy is a program on the balancer that accepts the clients'
// connections at the VIP and makes its own to the servers.
type runningProxy struct {
	setup   Setup
	process *program
	// path and args are those that its process is started with.
	path string
	args []string
	// retired are processes that it has replaced, which may still carry connections.
	retired []*program
	undo    undo
	// cores is how many it can use at most.
	cores int
	note  string
}

// startProxy runs a proxy's program and waits until it listens.
func startProxy(ctx context.Context, setup Setup, r runningProxy, path string, args ...string) (*runningProxy, error) {
	r.setup, r.path, r.args = setup, path, args
	err := r.undo.on(func(on bool) error { return ownVIP(setup.Lab, on) })
	if err == nil {
		err = r.Begin(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, r.Stop(context.WithoutCancel(ctx)))
	}
	return &r, nil
}

// listens returns when the proxy accepts connections of every service.
func (r *runningProxy) listens(ctx context.Context) error {
	for i := range r.setup.Services {
		if err := r.process.waitUntil(ctx, func() error {
			return probe.Listening(ctx, r.setup.Lab.Balancer, r.setup.vip(i))
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *runningProxy) Target(i int) netip.AddrPort { return r.setup.vip(i) }
func (r *runningProxy) Cores() float64              { return float64(r.cores) }
func (r *runningProxy) Notes() []string             { return []string{r.note} }

// Quiesce ends the processes; the VIP goes on answering for what they left.
func (r *runningProxy) Quiesce(ctx context.Context) error {
	errs := []error{r.process.stop(ctx)}
	for _, p := range r.retired {
		errs = append(errs, p.stop(ctx))
	}
	return errors.Join(errs...)
}

func (r *runningProxy) Stop(ctx context.Context) error {
	return errors.Join(r.Quiesce(ctx), r.undo.all())
}
