// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/health/checker"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// How often verdicts are saved for the process that follows: soon after one has changed, and now
// and then, for those that are old are not taken over.
const (
	saveChangesEvery = 5 * time.Second
	saveEvery        = 10 * time.Minute
)

// healthChecks are the health checks of a balancer: control's Checks.
type healthChecks struct {
	*health.Engine
	checker *checker.Checker
	vip     *checksVIP
	log     *slog.Logger
	// file keeps the verdicts; nil: they end with the process.
	file *stateFile
	// unsaved: verdicts have changed since they were saved.
	unsaved atomic.Bool
}

// checks makes the health checks, with the verdicts that the previous process has left.
func (r *resources) checks(log *slog.Logger) *healthChecks {
	c := &healthChecks{vip: &checksVIP{open: r.datapath.OpenChecks, log: log}, log: log}
	c.checker = checker.New(c.vip)
	c.Engine = health.New(health.Options{Checker: c.checker, Log: log})
	if r.store == nil {
		return c
	}
	file := r.instance.stateFile(kindHealth)
	c.file = &file
	saved, err := c.file.Load()
	if err == nil && len(saved) > 0 {
		err = c.Restore(saved, r.datapath.Absent())
	}
	if err != nil {
		log.Warn(fmt.Sprintf("all backends are taken for healthy until their checks say otherwise: %v", err))
	}
	return c
}

// Unsupported says why a check cannot be made here.
func (c *healthChecks) Unsupported(check lb.Check) string { return c.checker.Unsupported(check) }

// Prepare needs nothing of a configuration: the controller passes the checks on.
func (c *healthChecks) Prepare(*config.Config) (commit func(), err error) { return func() {}, nil }

// FillStatus adds a problem to a status where a service has checks by the VIP that cannot be made: its backends, dead
// ones included, go on getting packets.
func (c *healthChecks) FillStatus(to *ops.Status) {
	problem := c.vip.Problem()
	if problem != "" && slices.ContainsFunc(to.Services, func(s ops.Service) bool {
		return slices.ContainsFunc(s.Checks, func(check ops.Check) bool { return check.Via == lb.ViaVIP })
	}) {
		to.Problems = append(to.Problems, problem)
	}
}

// Changed passes changed verdicts on, which are then to be saved.
func (c *healthChecks) Changed() map[lb.BackendKey]lb.Verdict {
	c.unsaved.Store(true)
	return c.Engine.Changed()
}

// run makes checks until the context ends, and saves their verdicts.
func (c *healthChecks) run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.keep(ctx)
	}()
	err := c.Run(ctx)
	<-done
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// keep saves the verdicts until the context ends, and then for the last time.
func (c *healthChecks) keep(ctx context.Context) {
	if c.file == nil {
		return
	}
	tick := time.NewTicker(saveChangesEvery)
	defer tick.Stop()
	c.save() // with the previous process' unconfirmed verdicts, should this one end soon
	saved := time.Now()
	for {
		select {
		case <-ctx.Done():
			c.save()
			return
		case <-tick.C:
		}
		if c.unsaved.Swap(false) || time.Since(saved) > saveEvery {
			c.save()
			saved = time.Now()
		}
	}
}

func (c *healthChecks) save() {
	if err := c.file.Save(c.Save()); err != nil && !errors.Is(err, durable.ErrNotWritten) {
		c.log.Warn(fmt.Sprintf("saving the verdicts of health checks (the next process begins without them): %v",
			err))
	}
}
