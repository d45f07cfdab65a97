// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/host/neigh"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// reload is a configuration on its way into the loop.
type reload struct {
	new *layout
	// wanting is the configuration as it was handed in, and refused what was discovered for it and
	// cannot be. discovered: nothing else is new than what was discovered.
	wanting    *config.Config
	refused    []config.Refused
	discovered bool
	links      []iface.State // of its interfaces
	looks      bool          // paths are looked for by these, too
	warnings   yamlfile.Problems
	wanted     []netip.Addr // backends that are not known yet
	done       chan error   // buffered: the loop never waits for who asked
}

// Reload replaces the configuration by the one that load returns, whole or not
// at all, and returns when it is in use. It waits, within a bound, until the
// backends that are new are found, so that the old ones serve until new ones
// can. An error, that of load too, leaves everything as it was, and shows in
// the status until the next Reload. Errors: yamlfile.Problems, ErrStopped, the
// context's (then it may still be applied), those of the parts.
func (c *Controller) Reload(ctx context.Context, load func() (*config.Config, error)) error {
	err := c.Replace(ctx, load)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused, c.refusedAt = err, time.Now()
	return err
}

// Replace is Reload for what is not the configuration file: a refusal concerns only who asked, and
// is not shown in the status.
func (c *Controller) Replace(ctx context.Context, load func() (*config.Config, error)) error {
	c.reloads.Lock()
	defer c.reloads.Unlock()
	cfg, err := load()
	if err != nil {
		return err
	}
	return c.hand(ctx, cfg)
}

// hand gives a configuration to the loop and waits for its answer.
func (c *Controller) hand(ctx context.Context, cfg *config.Config) error {
	r := &reload{new: newLayout(cfg), wanting: cfg, done: make(chan error, 1)}
	if err := c.loop.Call(ctx, func() { c.prepare(r) }); err != nil {
		return err
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prepare checks a configuration and starts to look for its backends.
func (c *Controller) prepare(r *reload) {
	if c.pending != nil { // its caller waits for it no more
		c.lookBack(c.pending)
	}
	err := c.weigh(r)
	if errors.Is(err, errUnchanged) {
		c.settleWanted(r)
		c.answer(r, nil)
		return
	}
	if err != nil {
		c.lookBack(r)
		c.answer(r, err)
		return
	}
	c.pending = r
	if c.resolved(r) {
		c.commit()
		return
	}
	c.tasks.pending.In(resolveBound)
}

// weigh checks a configuration, and has its backends looked for.
func (c *Controller) weigh(r *reload) error {
	err := c.look(r)
	if err == nil {
		err = c.layOut(r)
	}
	if err == nil && r.discovered && c.view.sameBackends(r.new) {
		return errUnchanged
	}
	if err == nil {
		r.warnings, err = c.check(r.new, r.links)
	}
	if err == nil && !r.discovered { // no key of a proxy is new then
		var odd yamlfile.Problems
		odd, err = c.checkProxy(r.new)
		r.warnings = append(r.warnings, odd...)
	}
	var problems yamlfile.Problems
	if errors.As(err, &problems) || err == nil {
		err = append(checkReload(c.view.cfg, r.new.cfg), problems...).Err()
	}
	if err != nil {
		return err
	}
	r.wanted = without(r.new.watched, c.view.watched)
	if !slices.Equal(r.new.cfg.Interfaces, c.view.cfg.Interfaces) {
		r.wanted = r.new.watched // some may be reached in another way
	}
	if err := c.opt.Paths.Watch(distinct(slices.Concat(c.view.watched, r.wanted))); err != nil {
		return fmt.Errorf("look for the backends: %w", err)
	}
	return nil
}

// resolved says that nothing more is to be learned, for now, about the backends
// that are new in a configuration.
func (c *Controller) resolved(r *reload) bool {
	if len(r.wanted) == 0 {
		return true
	}
	entries := c.opt.Paths.Entries()
	for _, addr := range r.wanted {
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
	c.tasks.pending.Off()
	c.answer(r, c.replace(r))
}

// answer says what has become of a reload.
func (c *Controller) answer(r *reload, err error) {
	r.done <- err
	if r.discovered {
		c.settleDiscovery(err)
	}
}

// replace puts a configuration in the place of the current one, or leaves all
// as it was.
func (c *Controller) replace(r *reload) error {
	l, before, attached := r.new, c.view, c.opt.DataPlane.Attachments()
	carried := c.carry(l)
	c.opt.Checks.Watch(l.checking())
	next := newView(l, carried.overlays, c.known(l, r.links, before), c.verdictsFor(l), c.ejectionsOf(l), before, time.Now())
	next.passive, next.joining, next.links, next.tallies = c.passive, c.joining, r.links, c.retally(next)
	var err error
	if !r.discovered { // what is there, is there, whatever operations have changed
		err = next.checkTakers()
	}
	if err == nil {
		err = c.become(next)
	}
	if err != nil {
		c.watch(before.layout)
		c.opt.Checks.Watch(before.checking())
		c.lookBack(r)
		return interfaceError(before, next, err)
	}
	c.settleOperations(carried)
	c.watch(l)
	c.tellAttachments(attached)
	c.armOutliers()
	c.tellDown(before.links)
	kind := events.KindConfiguration
	if r.discovered {
		kind = events.KindDiscovery
		c.tellDiscovered(before)
	} else {
		c.describe(before, r.warnings)
	}
	c.tellReaddressed(before, kind)
	c.absentees.follow(before.layout, l)
	c.tellMemory()
	c.outages.keep(l)
	c.scarcity.keep(l)
	maps.DeleteFunc(c.lost, func(name string, _ uint64) bool { return !slices.Contains(l.cfg.Interfaces, name) })
	maps.DeleteFunc(c.bare, func(key lb.ServiceKey, _ bool) bool { _, there := l.keyed[key]; return !there })
	c.tellMoves(before, l.all())
	c.warned()
	c.tellAllServing()
	if r.wanting != nil {
		c.settleWanted(r)
	}
	if !r.discovered {
		c.vips.announceAll()
	}
	c.tasks.silence.In(0) // what has not answered by now was waited for
	return nil
}

// interfaceError names the place in the file where the interfaces were to change.
func interfaceError(before, next *view, err error) error {
	var problems yamlfile.Problems
	if errors.As(err, &problems) || slices.Equal(before.cfg.Interfaces, next.cfg.Interfaces) {
		return err
	}
	return next.cfg.At(next.cfg.InterfaceField(), "%v; %s goes on serving", err, listLinks(before.links))
}

// tooLarge names the file where there is not enough memory for what it says.
func tooLarge(cfg *config.Config, err error) error {
	if errors.Is(err, lb.ErrTooLarge) {
		return cfg.At("", "%v", err)
	}
	return err
}

// watch narrows what is looked for; a failure costs needless probes.
func (c *Controller) watch(l *layout) {
	if err := c.opt.Paths.Watch(l.watched); err != nil {
		c.opt.Log.Warn(fmt.Sprintf("looking for the backends: %v", err))
	}
}

// finish answers the reload that the end of the loop cut short, and says what ends
// with it, unless another process is to go on.
func (c *Controller) finish(ctx context.Context) {
	leaving := errors.Is(context.Cause(ctx), ErrLeaving)
	if n := len(c.view.overlays); n > 0 && !leaving {
		c.opt.Log.Warn(fmt.Sprintf("what operations have changed ends now: the next start has the weights and drains of the configuration; backends: %d", n))
	}
	if c.pending != nil {
		c.pending.done <- ErrStopped
		c.pending = nil
	}
	if leaving {
		c.giveUp()
	}
}
