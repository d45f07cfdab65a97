// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/host/neigh"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Reload replaces the configuration by the one that load returns, whole or not
// at all, and returns when it is in use. It waits, within a bound, until the
// backends that are new are found, so that the old ones serve until new ones
// can. An error, that of load too, leaves everything as it was, and shows in
// the status until the next Reload. Errors: yamlfile.Problems, ErrStopped, the
// context's (then it may still be applied), those of the parts.
func (c *Controller) Reload(ctx context.Context, load func() (*config.Config, error)) error {
	err := c.reload(ctx, load, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused, c.refusedAt = err, time.Now()
	return err
}

// Replace is Reload for sources other than the configuration file: a refusal concerns only the caller, and is not shown
// in the status. It announces the VIPs only where there are others than before.
func (c *Controller) Replace(ctx context.Context, load func() (*config.Config, error)) error {
	return c.reload(ctx, load, false)
}

// reload replaces the configuration. announce: the VIPs are announced even if they have not changed.
func (c *Controller) reload(ctx context.Context, load func() (*config.Config, error), announce bool) error {
	c.reloads.Lock()
	defer c.reloads.Unlock()
	cfg, err := load()
	if err != nil {
		return err
	}
	return c.apply(ctx, cfg, announce)
}

// apply gives a configuration to the loop and waits for its answer.
func (c *Controller) apply(ctx context.Context, cfg *config.Config, announce bool) error {
	c.mu.Lock()
	before := c.view.Layout
	c.mu.Unlock()
	r := &reload{new: before.With(cfg), wanting: cfg, announce: announce, done: make(chan error, 1)}
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
		c.restorePathLinks(c.pending)
	}
	err := c.validate(r)
	if errors.Is(err, errUnchanged) {
		c.discovering.settleWanted(r)
		c.answer(r, nil)
		return
	}
	if err != nil {
		c.restorePathLinks(r)
		c.answer(r, err)
		return
	}
	c.pending = r
	if c.resolved(r) {
		c.commit()
		return
	}
	c.pendingTask.In(resolveBound)
}

// validate checks a configuration, and has its backends looked for.
func (c *Controller) validate(r *reload) error {
	err := c.readLinks(r)
	if err == nil {
		err = c.discovering.resolve(r)
	}
	if err == nil && r.discovered && c.view.SameBackends(r.new) {
		return errUnchanged
	}
	if err == nil {
		r.warnings, err = c.hostChecks.check(r.new, r.links)
	}
	if err == nil && !r.discovered { // no key of a proxy is new then
		var odd yamlfile.Problems
		odd, err = c.proxies.checkProxy(r.new)
		r.warnings = append(r.warnings, odd...)
	}
	var problems yamlfile.Problems
	if errors.As(err, &problems) || err == nil {
		err = append(checkReload(c.view.Config, r.new.Config), problems...).Err()
	}
	if err != nil {
		return err
	}
	r.wanted = view.Without(r.new.Watched, c.view.Watched)
	if !slices.Equal(r.new.Config.Interfaces, c.view.Config.Interfaces) {
		r.wanted = r.new.Watched // some may be reached in another way
	}
	if err := c.opt.Paths.Watch(view.Distinct(slices.Concat(c.view.Watched, r.wanted))); err != nil {
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
	c.pendingTask.Off()
	c.answer(r, c.replace(r))
}

// answer reports the result of a reload.
func (c *Controller) answer(r *reload, err error) {
	r.done <- err
	if r.discovered {
		c.discovering.settleDiscovery(err)
	}
}

// replace puts a configuration in the place of the current one, or leaves all
// as it was.
func (c *Controller) replace(r *reload) error {
	l, before, attached := r.new, c.view, c.opt.DataPlane.Attachments()
	carried := c.operator.carryOver(l, time.Now())
	if r.announce { // the file may be another as a whole
		c.opt.Checks.Watch(l.Checking())
	} else {
		c.opt.Checks.Amend(l.CheckingSince(before.Layout))
	}
	next := view.New(l, carried.overlays, c.knownPaths(l, r.links, before), c.verdictsFor(l, before),
		c.ejector.ejectionsOf(l), before, time.Now())
	next.Passive, next.Joining, next.Links, next.Tallies = c.passive, c.gate.joining, r.links, c.counting.retally(next)
	var err error
	if !r.discovered { // backends that are there stay, whatever operations have changed
		err = next.CheckTakers()
	}
	if err == nil {
		err = c.applyView(next)
	}
	if err != nil {
		c.watch(before.Layout)
		c.opt.Checks.Watch(before.Checking())
		c.restorePathLinks(r)
		return interfaceError(before, next, err)
	}
	c.operator.settleOperations(carried)
	c.watch(l)
	c.logAttachments(attached)
	c.ejector.armOutliers()
	c.linkWatch.logDown(before.Links)
	kind := events.KindConfiguration
	if r.discovered {
		kind = events.KindDiscovery
		c.discovering.logDiscovered(before)
	} else {
		c.pathLog.describe(before, r.warnings)
	}
	c.pathLog.logReaddressed(before, kind)
	c.pathLog.absentees.Follow(before.Layout, l, time.Now())
	c.logMemory()
	c.pathLog.outages.keep(l)
	c.poolWatch.scarcity.keep(l)
	maps.DeleteFunc(c.counting.lost, func(name string, _ uint64) bool {
		return !slices.Contains(l.Config.Interfaces, name)
	})
	maps.DeleteFunc(c.pathLog.bare, func(key lb.ServiceKey, _ bool) bool { _, there := l.Keyed[key]; return !there })
	c.pathLog.logMoves(before, l.All())
	c.pathLog.markOutagesLogged()
	c.health.logAllServing()
	if r.wanting != nil {
		c.discovering.settleWanted(r)
	}
	if r.announce {
		c.vips.AnnounceAll()
	}
	c.pathLog.silenceTask.In(0) // a path that is still missing was waited for
	return nil
}

// interfaceError names the place in the file where the interfaces were to change.
func interfaceError(before, next *view.View, err error) error {
	var problems yamlfile.Problems
	if errors.As(err, &problems) || slices.Equal(before.Config.Interfaces, next.Config.Interfaces) {
		return err
	}
	return next.Config.At(next.Config.InterfaceField(), "%v; %s goes on serving", err, view.ListLinks(before.Links))
}

// watch drops addresses from those that are looked for; a failure costs needless probes.
func (c *Controller) watch(l *view.Layout) {
	if err := c.opt.Paths.Watch(l.Watched); err != nil {
		c.opt.Log.Warn(fmt.Sprintf("looking for the backends: %v", err))
	}
}

// finish answers the reload that the end of the loop cut short, and logs that the overlays of operations end with it,
// unless another process is to go on.
func (c *Controller) finish(ctx context.Context) {
	leaving := errors.Is(context.Cause(ctx), ErrLeaving)
	if n := len(c.view.Overlays); n > 0 && !leaving {
		c.opt.Log.Warn(fmt.Sprintf(
			"what operations have changed ends now: the next start has the weights and drains of the configuration; backends: %d", n))
	}
	if c.pending != nil {
		c.pending.done <- ErrStopped
		c.pending = nil
	}
	if leaving {
		c.election.giveUp()
	}
}

// readLinks reads the states of the interfaces of the next configuration, and has paths looked for
// through these, too.
func (c *Controller) readLinks(r *reload) (err error) {
	r.links = c.links
	names := r.new.Config.Interfaces
	if slices.Equal(names, c.view.Config.Interfaces) {
		return nil
	}
	if r.links, err = c.opt.Links.Lookup(names); err != nil {
		return r.new.Config.At(r.new.Config.InterfaceField(), "%v", err)
	}
	r.looks = true
	if err := c.opt.Paths.Use(c.union(r)); err != nil {
		return r.new.Config.At(r.new.Config.InterfaceField(), "%v", err)
	}
	return nil
}

// union names the interfaces of before, and those to come that are none of them.
func (c *Controller) union(r *reload) []string {
	names := slices.Clone(c.view.Config.Interfaces)
	for i, link := range r.links {
		if !slices.ContainsFunc(c.links, func(o iface.State) bool { return view.SameLink(o, link) }) {
			names = append(names, r.new.Config.Interfaces[i])
		}
	}
	return names
}

// restorePathLinks has paths looked for by the interfaces in use only, after a reload was refused.
func (c *Controller) restorePathLinks(r *reload) {
	if !r.looks {
		return
	}
	if err := c.opt.Paths.Use(c.view.Config.Interfaces); err != nil {
		c.opt.Log.Warn(fmt.Sprintf("looking for the backends: %v", err))
	}
}

// layAtStart returns the layout that the balancer starts with, backends that the previous process discovered included.
func (c *Controller) layAtStart() (*view.Layout, error) {
	r := &reload{new: c.view.Layout, wanting: c.discovering.wanted, links: c.links}
	if err := c.discovering.resolve(r); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.discovering.refused, c.view = r.refused, &view.View{Layout: r.new}
	return r.new, nil
}

// discover puts discovered backends in force, as a reload of the configuration does.
func (c *Controller) discover() {
	if c.pending != nil { // which may be refused yet
		c.discovering.discoverTask.In(discoverySettle)
		return
	}
	if err := c.discovering.discovery.Refresh(); err != nil {
		c.discovering.settleDiscovery(err)
		return
	}
	r := &reload{new: &view.Layout{Config: c.discovering.wanted}, wanting: c.discovering.wanted, discovered: true,
		done: make(chan error, 1)}
	if len(c.discovering.sets) == 0 {
		return
	}
	c.prepare(r)
}
