// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/neigh"
)

// reload is a configuration on its way into the loop.
type reload struct {
	cfg  *config.Config
	done chan error // buffered: the loop never waits for who asked
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
	problems := append(checkReload(c.cfg, r.cfg), checkLink(r.cfg, c.link)...)
	if err := problems.Err(); err != nil {
		r.done <- err
		return
	}
	both := distinct(append(backendAddresses(c.cfg), backendAddresses(r.cfg)...))
	if err := c.opt.Neighbours.Watch(both); err != nil {
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
	entries := c.opt.Neighbours.Entries()
	for _, addr := range without(backendAddresses(cfg), backendAddresses(c.cfg)) {
		if e := entries[addr]; len(e.MAC) == 0 && e.State != neigh.Failed {
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
	r.done <- c.replace(r.cfg)
}

// replace puts a configuration in the place of the current one, or leaves all
// as it was.
func (c *Controller) replace(cfg *config.Config) error {
	before := c.cfg
	added := without(vips(cfg), vips(before))
	// New VIPs come before the data plane knows them: adding may fail, and then
	// the data plane was not touched. Nobody knows yet that they are here.
	if err := c.addVIPs(c.link, added); err != nil {
		c.watch(before)
		return err
	}
	wasMACs := c.applied
	if err := c.apply(cfg); err != nil {
		c.removeVIPs(c.link, added)
		c.watch(before)
		return err
	}
	c.mu.Lock()
	c.cfg = cfg
	c.mu.Unlock()
	c.removeVIPs(c.link, without(vips(before), vips(cfg)))
	c.watch(cfg)
	c.describe(cfg)
	c.tellMoves(wasMACs)
	c.announceVIPs()
	c.timers.silence.Reset(0) // who has not answered by now was waited for
	return nil
}

// watch narrows what is looked for; a failure costs probes that nobody needs.
func (c *Controller) watch(cfg *config.Config) {
	if err := c.opt.Neighbours.Watch(backendAddresses(cfg)); err != nil {
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
