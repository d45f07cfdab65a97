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

// Reload replaces the configuration by the one that load returns, completely or not at all, and returns once it is in
// force. It waits, for resolveBound at most, until the paths to new backends are resolved, so that the old backends
// serve until the new ones can. An error, also one of load, leaves everything unchanged, and is part of the status
// until the next Reload. Errors: yamlfile.Problems, ErrStopped, the context's (the configuration may still be applied
// then), those of the parts.
func (c *Controller) Reload(ctx context.Context, load func() (*config.Config, error)) error {
	err := c.reload(ctx, load, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused, c.refusedAt = err, time.Now()
	return err
}

// Replace is Reload for sources other than the configuration file: an error is returned to the caller, and is not part
// of the status. It announces the VIPs only if they have changed.
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

// apply passes a configuration to the loop and waits for the result.
func (c *Controller) apply(ctx context.Context, cfg *config.Config, announce bool) error {
	c.mu.Lock()
	before := c.view.Layout
	c.mu.Unlock()
	r := &reload{layout: before.WithConfig(cfg), config: cfg, announce: announce, done: make(chan error, 1)}
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

// prepare validates a configuration and starts to resolve its backends' paths.
func (c *Controller) prepare(r *reload) {
	if c.pending != nil { // its caller no longer waits for it, or there is none
		c.restorePathLinks(c.pending)
	}
	err := c.validate(r)
	if errors.Is(err, errUnchanged) {
		c.discovering.setConfig(r)
		c.answer(r, nil)
		return
	}
	if err != nil {
		c.restorePathLinks(r)
		c.answer(r, err)
		return
	}
	if before := c.pending; before != nil {
		r.displaced = before.discovered || before.displaced
	}
	c.pending = r
	if c.resolved(r) {
		c.commit()
		return
	}
	c.pendingTask.Schedule(resolveBound)
}

// validate validates a configuration, and adds its backends to the resolved addresses.
func (c *Controller) validate(r *reload) error {
	err := c.readLinks(r)
	if err == nil {
		err = c.discovering.resolve(r)
	}
	if err == nil && r.discovered && c.view.SameBackends(r.layout) {
		return errUnchanged
	}
	if err == nil {
		r.warnings, err = c.hostChecks.check(r.layout, r.links)
	}
	if err == nil && !r.discovered { // keys of proxies have not changed then
		var proxyWarnings yamlfile.Problems
		proxyWarnings, err = c.proxies.checkProxy(r.layout)
		r.warnings = append(r.warnings, proxyWarnings...)
	}
	var problems yamlfile.Problems
	if errors.As(err, &problems) || err == nil {
		err = append(checkReload(c.view.Config, r.layout.Config), problems...).Err()
	}
	if err != nil {
		return err
	}
	r.awaited = view.Without(r.layout.Watched, c.view.Watched)
	if !slices.Equal(r.layout.Config.Interfaces, c.view.Config.Interfaces) {
		r.awaited = r.layout.Watched // paths may differ through other interfaces
	}
	if err := c.opt.Paths.SetAddresses(view.Distinct(slices.Concat(c.view.Watched, r.awaited))); err != nil {
		return fmt.Errorf("look for the backends: %w", err)
	}
	return nil
}

// resolved reports whether the paths to all new backends of a configuration are resolved, or cannot be for now.
func (c *Controller) resolved(r *reload) bool {
	if len(r.awaited) == 0 {
		return true
	}
	entries := c.opt.Paths.Entries()
	for _, addr := range r.awaited {
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
	c.pendingTask.Cancel()
	c.answer(r, c.replace(r))
}

// answer returns the result of a reload to its caller.
func (c *Controller) answer(r *reload, err error) {
	r.done <- err
	switch {
	case r.discovered:
		c.discovering.finishDiscovery(err)
	case err != nil && r.displaced:
		c.discovering.scheduleDiscovery()
	}
}

// replace applies a configuration in place of the current one, or leaves everything unchanged.
func (c *Controller) replace(r *reload) error {
	l, before, attached := r.layout, c.view, c.opt.DataPlane.Attachments()
	carried := c.operator.carryOver(l, time.Now())
	if r.announce { // every service of the file may have changed
		c.opt.Checks.SetTargets(l.CheckTargets())
	} else {
		c.opt.Checks.UpdateTargets(l.CheckTargetChanges(before.Layout))
	}
	next := view.New(l, carried.overlays, c.knownPaths(l, r.links, before), c.verdictsFor(l, before),
		c.ejector.ejectionsOf(l), before, time.Now())
	next.Passive, next.Joining, next.Links, next.Tallies = c.passive, c.gate.joining, r.links, c.counting.retally(next)
	var err error
	if !r.discovered { // discovered backends are applied whatever operations have changed
		err = next.CheckEligible()
	}
	if err == nil {
		err = c.applyView(next)
	}
	if err != nil {
		c.setAddresses(before.Layout)
		c.opt.Checks.SetTargets(before.CheckTargets())
		c.restorePathLinks(r)
		return interfaceError(before, next, err)
	}
	c.operator.commitOperations(carried)
	c.setAddresses(l)
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
	c.pathLog.logNewAddresses(before, kind)
	c.pathLog.absent.Update(before.Layout, l, time.Now())
	c.logMemory()
	c.pathLog.outages.prune(l)
	c.poolWatch.scarcity.prune(l)
	maps.DeleteFunc(c.counting.lost, func(name string, _ uint64) bool {
		return !slices.Contains(l.Config.Interfaces, name)
	})
	maps.DeleteFunc(c.pathLog.unreachable, func(key lb.ServiceKey, _ bool) bool {
		_, exists := l.Keyed[key]
		return !exists
	})
	c.pathLog.logMoves(before, l.All())
	c.pathLog.markOutagesLogged()
	c.health.logAllServing()
	if r.config != nil {
		c.discovering.setConfig(r)
	}
	if r.announce {
		c.vips.AnnounceAll()
	}
	c.pathLog.silenceTask.Schedule(0) // paths that are still missing had time to resolve
	return nil
}

// interfaceError adds to an error the field of the file that sets the interfaces, if these were to change.
func interfaceError(before, next *view.View, err error) error {
	var problems yamlfile.Problems
	if errors.As(err, &problems) || slices.Equal(before.Config.Interfaces, next.Config.Interfaces) {
		return err
	}
	return next.Config.At(next.Config.InterfaceField(), "%v; %s goes on serving", err, view.ListLinks(before.Links))
}

// setAddresses replaces the resolved addresses by those of a layout; a failure only costs needless probes.
func (c *Controller) setAddresses(l *view.Layout) {
	if err := c.opt.Paths.SetAddresses(l.Watched); err != nil {
		c.opt.Log.Warn(fmt.Sprintf("looking for the backends: %v", err))
	}
}

// finish answers the reload that the end of the loop interrupts, and, unless another process takes over, logs that the
// overlays of operations end.
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
		c.election.releaseVIPs()
	}
}

// readLinks reads the states of the next configuration's interfaces, and lets paths use these, too.
func (c *Controller) readLinks(r *reload) (err error) {
	r.links = c.links
	names := r.layout.Config.Interfaces
	if slices.Equal(names, c.view.Config.Interfaces) {
		return nil
	}
	if r.links, err = c.opt.Links.Lookup(names); err != nil {
		return r.layout.Config.At(r.layout.Config.InterfaceField(), "%v", err)
	}
	r.pathsExtended = true
	if err := c.opt.Paths.SetInterfaces(c.combinedInterfaces(r)); err != nil {
		return r.layout.Config.At(r.layout.Config.InterfaceField(), "%v", err)
	}
	return nil
}

// combinedInterfaces names the interfaces in use, and those of the next configuration that are not among them.
func (c *Controller) combinedInterfaces(r *reload) []string {
	names := slices.Clone(c.view.Config.Interfaces)
	for i, link := range r.links {
		if !slices.ContainsFunc(c.links, func(o iface.State) bool { return view.SameLink(o, link) }) {
			names = append(names, r.layout.Config.Interfaces[i])
		}
	}
	return names
}

// restorePathLinks restricts paths to the interfaces in use, after a reload was refused.
func (c *Controller) restorePathLinks(r *reload) {
	if !r.pathsExtended {
		return
	}
	if err := c.opt.Paths.SetInterfaces(c.view.Config.Interfaces); err != nil {
		c.opt.Log.Warn(fmt.Sprintf("looking for the backends: %v", err))
	}
}

// startLayout returns the layout that the balancer starts with, backends that the previous process discovered included.
func (c *Controller) startLayout() (*view.Layout, error) {
	r := &reload{layout: c.view.Layout, config: c.discovering.config, links: c.links}
	if err := c.discovering.resolve(r); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.discovering.refused, c.view = r.refused, &view.View{Layout: r.layout}
	return r.layout, nil
}

// discover applies discovered backends, as a reload of the configuration would.
func (c *Controller) discover() {
	if c.pending != nil { // it may still be refused
		c.discovering.discoverTask.Schedule(discoverySettle)
		return
	}
	if err := c.discovering.discovery.Refresh(); err != nil {
		c.discovering.finishDiscovery(err)
		return
	}
	r := &reload{layout: &view.Layout{Config: c.discovering.config}, config: c.discovering.config, discovered: true,
		done: make(chan error, 1)}
	if len(c.discovering.sets) == 0 {
		return
	}
	c.prepare(r)
}
