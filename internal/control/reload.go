// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/neigh"
	"github.com/jeoul/jeoul/internal/paths"
)

// reload is a configuration on its way into the loop.
type reload struct {
	cfg      *config.Config
	warnings config.Problems
	done     chan error // buffered: the loop never waits for who asked
}

// Reload replaces the configuration by the one that load returns, whole or not
// at all, and returns when it is in use. It waits, within a bound, until the
// backends that are new are found, so that the old ones serve until new ones
// can. An error, that of load too, leaves everything as it was, and shows in
// the status until the next Reload. Errors: config.Problems, ErrStopped, the
// context's (then it may still be applied), those of the parts.
func (c *Controller) Reload(ctx context.Context, load func() (*config.Config, error)) error {
	c.reloads.Lock()
	defer c.reloads.Unlock()
	cfg, err := load()
	if err == nil {
		err = c.hand(ctx, cfg)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused, c.refusedAt = err, time.Now()
	return err
}

// hand gives a configuration to the loop and waits for its answer.
func (c *Controller) hand(ctx context.Context, cfg *config.Config) error {
	r := &reload{cfg: cfg, done: make(chan error, 1)}
	select {
	case c.requests <- r:
	case <-c.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin checks a configuration and starts to look for its backends.
func (c *Controller) begin(r *reload) {
	var err error
	r.warnings, err = c.check(r.cfg)
	var problems config.Problems
	if errors.As(err, &problems) || err == nil {
		err = append(checkReload(c.cfg, r.cfg), problems...).Err()
	}
	if err != nil {
		r.done <- err
		return
	}
	both := distinct(append(backendAddresses(c.cfg), backendAddresses(r.cfg)...))
	if err := c.opt.Paths.Watch(both); err != nil {
		r.done <- fmt.Errorf("look for the backends: %w", err)
		return
	}
	c.pending = r
	if c.resolved(r.cfg) {
		c.commit()
		return
	}
	c.timers.pending.Reset(resolveBound)
}

// resolved says that nothing more is to be learned, for now, about the backends
// that are new in a configuration.
func (c *Controller) resolved(cfg *config.Config) bool {
	entries := c.opt.Paths.Entries()
	for _, addr := range without(backendAddresses(cfg), backendAddresses(c.cfg)) {
		if e := entries[addr]; len(e.MAC) == 0 && e.Neighbour != neigh.Failed && e.Fault == paths.None {
			return false
		}
	}
	return true
}

// commit applies the pending configuration.
func (c *Controller) commit() {
	r := c.pending
	c.pending = nil
	c.timers.pending.Stop()
	r.done <- c.replace(r.cfg, r.warnings)
}

// replace puts a configuration in the place of the current one, or leaves all
// as it was.
func (c *Controller) replace(cfg *config.Config, warnings config.Problems) error {
	before := c.cfg
	added := without(addresses(cfg), addresses(before))
	wasApplied := c.applied
	if err := c.put(cfg, added); err != nil {
		c.watch(before)
		return err
	}
	c.mu.Lock()
	c.cfg = cfg
	c.mu.Unlock()
	c.removeAddresses(without(addresses(before), addresses(cfg)))
	if err := c.forward(cfg); err != nil {
		c.opt.Log.Warn(err.Error())
	}
	c.watch(cfg)
	c.describe(cfg, warnings)
	c.tellMoves(wasApplied)
	c.announceAll()
	c.timers.silence.Reset(0) // who has not answered by now was waited for
	return nil
}

// put brings in what is new in a configuration, all of it or nothing. The data
// plane comes last: what is before it may fail, and then it was not touched.
// Nobody knows yet that the new addresses are here.
func (c *Controller) put(cfg *config.Config, added []netip.Addr) error {
	if err := c.forward(c.cfg, cfg); err != nil {
		return err
	}
	err := c.addAddresses(added)
	if err == nil {
		if err = c.apply(cfg); err == nil {
			return nil
		}
		c.removeAddresses(added)
	}
	return errors.Join(err, c.forward(c.cfg))
}

// watch narrows what is looked for; a failure costs probes that nobody needs.
func (c *Controller) watch(cfg *config.Config) {
	if err := c.opt.Paths.Watch(backendAddresses(cfg)); err != nil {
		c.opt.Log.Warn(fmt.Sprintf("looking for the backends: %v", err))
	}
}

// finish answers the reload that the end of the loop cut short.
func (c *Controller) finish() {
	if c.pending != nil {
		c.pending.done <- ErrStopped
		c.pending = nil
	}
}
