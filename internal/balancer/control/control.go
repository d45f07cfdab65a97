// SPDX-License-Identifier: Apache-2.0

// Package control keeps a balancer as its configuration wants it: it puts the VIPs on the first interface and announces
// them, makes the host forward where a mode needs that, learns the paths to the backends, and gives the data plane a
// new state when the configuration changes, or the observed state of the backends or the interfaces.
package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/control/vips"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Controller runs one balancer.
type Controller struct {
	*core
	started time.Time
	reloads sync.Mutex // held by the one Reload under way

	health      *healthLog
	pathLog     *pathLog
	storage     *storage
	linkWatch   *linkWatch
	gate        *startupGate
	standby     *standby
	slowStarts  *slowStarts
	ejector     *ejector
	operator    *operator
	counting    *counting
	hostChecks  *hostChecks
	poolWatch   *poolWatch
	discovering *discovering
	// The actuators that others than core ask for something.
	vips     *vips.VIPs
	routes   *routes
	election *election
	proxies  *proxies

	// Reload writes the fields below and Status reads them, under mu.
	refused   error // of the last reload
	refusedAt time.Time

	// Only the loop uses the fields below. atStart are the sources that are read at the start: paths and the backends'
	// health are unknown until they are watched.
	atStart     []*loop.Source
	pending     *reload
	pendingTask *loop.Task
	news        map[int]*paths.Entry         // read, and not in the view yet
	verdicts    map[lb.BackendKey]lb.Verdict // likewise of the health checks
	memory      lb.MemoryPlan                // as it was logged last
}

// New returns a controller for a configuration. Nothing happens before Start.
func New(opt Options, cfg *config.Config) *Controller {
	if opt.Clock == nil {
		opt.Clock = clock.Read
	}
	if opt.ReadFile == nil {
		opt.ReadFile = os.ReadFile
	}
	if opt.Checks == nil {
		opt.Checks = noChecks{}
	}
	if opt.Discovery == nil {
		opt.Discovery = noDiscovery{}
	}
	c := &Controller{core: &core{opt: opt, loop: loop.New(), view: &view.View{Layout: view.NewLayout(cfg)}},
		started: time.Now()}
	if opt.Election != nil {
		c.opt.Role = opt.Election
	}
	c.addComponents(cfg)
	c.addActuators()
	c.addSources()
	return c
}

// addComponents makes the components, each after those that it needs.
func (c *Controller) addComponents(cfg *config.Config) {
	l := c.loop
	c.reconcileTask, c.retryTask, c.pendingTask = l.Task(c.reconcile), l.Quiet(c.markStale), l.Quiet(c.commit)
	c.health = &healthLog{core: c.core}
	c.health.uncountedTask = l.Quiet(c.health.logUncounted)
	c.pathLog = &pathLog{core: c.core, bare: map[lb.ServiceKey]bool{}, absentees: view.Absentees{}}
	c.pathLog.silenceTask = l.Quiet(c.pathLog.logSilent)
	c.storage = &storage{core: c.core}
	c.storage.keepTask = l.Quiet(c.storage.keepAgain)
	c.slowStarts = &slowStarts{core: c.core, health: c.health}
	c.slowStarts.stepsTask = l.Quiet(func() { c.settleIfFailed(c.slowStarts.advance()) })
	c.ejector = &ejector{core: c.core, health: c.health, storage: c.storage, outliers: outliers.New()}
	c.ejector.outliersTask = l.Quiet(c.ejector.evaluateOutliers)
	c.proxies = &proxies{core: c.core, stale: c.opt.Proxy != nil}
	c.proxies.renewTask = l.Quiet(c.proxies.renew)
	c.counting = &counting{core: c.core, proxies: c.proxies, lost: map[string]uint64{}}
	c.counting.lossesTask = l.Quiet(c.counting.logLosses)
	c.operator = &operator{core: c.core, health: c.health, ejector: c.ejector, storage: c.storage, counting: c.counting}
	c.operator.deadlineTask = l.Quiet(func() { c.settleIfFailed(c.operator.expire()) })
	c.hostChecks = &hostChecks{c.core}
	c.poolWatch = &poolWatch{core: c.core}
	c.discovering = &discovering{core: c.core, wanted: cfg}
	c.discovering.discoverTask = l.Quiet(c.discover)
	c.followers = []func(before, now *view.View){
		func(_, now *view.View) { c.operator.saveOverlays(now) },
		c.slowStarts.armSteps,
	}
}

// addActuators makes the actuators, and puts them in order.
func (c *Controller) addActuators() {
	c.vips = vips.New(c.opt.Host, c.opt.Announce, c.opt.Log, c.logHost, c.loop)
	c.routes = &routes{core: c.core}
	c.routes.routesTask = c.loop.Quiet(func() { c.routes.follow(c.view) })
	c.election = &election{core: c.core, routes: c.routes, vips: c.vips}
	c.routes.election = c.election
	c.gate = &startupGate{core: c.core, routes: c.routes}
	c.gate.verdictsTask = c.loop.Quiet(c.gate.giveUpVerdicts)
	c.linkWatch = &linkWatch{core: c.core, pathLog: c.pathLog, vips: c.vips}
	c.standby = &standby{core: c.core}
	c.standby.end = c.loop.Quiet(c.standby.stop)
	c.standby.plane, _ = c.opt.DataPlane.(standbyPlane)
	c.actuators = []actuator{c.routes, c.election, &identities{c.core}, &settings{c.linkWatch}, c.standby, c.vips,
		c.proxies, &plane{c.core}}
}

// addSources has the loop follow paths, verdicts and the other sources that change by themselves.
func (c *Controller) addSources() {
	l, opt := c.loop, &c.opt
	c.interfaces = l.Follow("the interfaces", opt.Links.Changes(), c.linkWatch.takeLinks, c.schedule)
	c.paths = l.Follow("the paths", opt.Paths.Changes(), c.takePaths, c.schedule)
	c.checks = l.Follow("the health checks", opt.Checks.Changes(), c.takeVerdicts, c.scheduleNow)
	d := c.discovering
	d.discovery = l.Follow("the discovered backends", opt.Discovery.Changes(), d.takeDiscovered, d.scheduleDiscovery)
	c.atStart = []*loop.Source{c.interfaces, d.discovery}
	if opt.Role != nil {
		c.atStart = append(c.atStart, l.Follow("the role", opt.Role.Changes(), c.takeRole, c.scheduleNow))
	}
	c.gate.awaitFlows()
	if opt.Proxy != nil {
		l.On(opt.Proxy.Changes(), c.proxies.logState)
	}
	if opt.Files != nil {
		l.On(opt.Files.Changes(), c.storage.logFaults)
	}
	if plane, ok := opt.DataPlane.(portCounter); ok {
		c.poolWatch.ports = plane
		l.On(plane.FlowsCounted(), c.poolWatch.watchPool)
	}
}

// settleIfFailed arms a retry if err is not nil.
func (c *Controller) settleIfFailed(err error) {
	if err != nil {
		c.settleFailure(err)
	}
}

// Start checks the configuration against the machine, attaches the data plane and puts the VIPs on the interface.
// Backends are found later, in Run, whether or not there is a route to them yet; until one is found, its service drops
// packets under a name of its own. After an error, close the parts, which undoes the steps taken so far.
func (c *Controller) Start() error {
	for _, s := range c.atStart {
		s.MarkStale()
		if err := s.Refresh(); err != nil {
			return err
		}
	}
	l, err := c.layAtStart()
	if err != nil {
		return err
	}
	warnings, err := c.hostChecks.check(l, c.links)
	if err != nil {
		return err
	}
	odd, err := c.proxies.checkProxy(l)
	if err != nil {
		return err
	}
	warnings = append(warnings, odd...)
	if err := c.opt.Paths.Watch(l.Watched); err != nil {
		return err
	}
	c.opt.Checks.Watch(l.Checking())
	c.opt.Discovery.Watch(l.Config.Services)
	c.awaitPaths(l)
	overlays, tallies := c.operator.restoreOverlays(l)
	c.ejector.restoreOutliers()
	first := view.New(l, overlays, c.knownPaths(l, c.links, nil), c.verdictsFor(l, nil), c.ejector.ejectionsOf(l), nil,
		time.Now())
	first.Links, first.Tallies = c.links, tallies
	first.Passive = c.passive
	first.Joining = c.gate.begin(first)
	c.standby.begin(first)
	if err := c.begin(first); err != nil {
		return err
	}
	c.dropAddresses(first)
	c.operator.armDeadline()
	c.gate.boundVerdicts()
	c.logStart(warnings)
	return nil
}

// begin puts the first desired state in force. After an error, the steps done so far are undone when the parts are
// closed.
//
// The data plane comes before the VIPs: a packet of a connection that has
// outlived our last run would otherwise reach the kernel, which knows the
// VIP and no such connection, and resets it. Forwarding comes last: until then
// the kernel drops the replies that are not rewritten yet. The proxy listens at the VIPs, so it follows them.
func (c *Controller) begin(first *view.View) error {
	nothing := &view.View{Layout: view.NewLayout(&config.Config{})}
	for _, a := range []actuator{&plane{c.core}, c.vips, c.proxies, &settings{c.linkWatch}, &identities{c.core}} {
		bring, _ := a.Change(nothing, first)
		for _, s := range bring {
			if err := s.Do(); err != nil {
				return err
			}
		}
	}
	return nil
}

// logStart logs the configuration that the balancer starts with, and arms the tasks that Run needs first.
func (c *Controller) logStart(warnings yamlfile.Problems) {
	c.logAttachments(nil)
	c.pathLog.describe(nil, warnings)
	c.logMemory()
	c.pathLog.logMoves(nil, c.view.All())
	c.pathLog.markOutagesLogged()
	c.health.logVerdicts(&view.View{Verdicts: make([][]view.Verdict, len(c.view.Verdicts))}, c.view.Failing())
	c.health.logAllServing()
	vips.LogWithdrawn(c.opt.Log, &view.View{Layout: view.NewLayout(&config.Config{})}, c.view)
	c.linkWatch.logDown(nil)
	c.vips.Begin(c.opt.TakesOver)
	c.routes.begin(c.view)
	c.election.follow(c.view)
	c.counting.lossesTask.In(lossEvery)
	c.storage.keepTask.In(keepEvery)
	c.pathLog.silenceTask.In(pathLogDelay)
	c.ejector.armOutliers()
	c.paths.MarkStale() // some may have been found meanwhile
	c.schedule()
}

// logAttachments logs the interfaces and hooks at which packets are taken, and which packets may be lost there, if that
// has changed.
func (c *Controller) logAttachments(before []lb.Attachment) {
	now := c.opt.DataPlane.Attachments()
	if slices.Equal(before, now) {
		return
	}
	at := now[0] // one way for all interfaces
	c.opt.Log.Info(fmt.Sprintf("balancing on %s in %s", view.ListLinks(c.links), at), "why", at.Reason)
	for _, message := range lossMessages(now, nil) {
		if message != "" {
			c.opt.Log.Warn(message)
		}
	}
}

// logMemory logs the memory in use if it has changed: it is planned from the configuration, and flows that come and go
// change nothing.
func (c *Controller) logMemory() {
	plane, ok := c.opt.DataPlane.(planner)
	if !ok {
		return
	}
	if plan := plane.Memory(); plan != c.memory {
		c.memory = plan
		c.opt.Log.Info(plan.String())
	}
}

// Run follows changes until the context ends, which is no error. Call it once, after Start.
func (c *Controller) Run(ctx context.Context) error {
	return c.loop.Run(ctx, func() { c.finish(ctx) })
}

// Responds returns when the loop has run a call: a call that hangs stops every change. Errors: ErrStopped, the
// context's.
func (c *Controller) Responds(ctx context.Context) error { return c.loop.Call(ctx, func() {}) }

// reconcile reads the sources that may have changed, and puts the desired state in force that
// follows. Its error is one that ends the balancer; others are logged, and tried again later.
func (c *Controller) reconcile() error {
	c.news, c.verdicts = nil, nil
	err := c.loop.Refresh()
	c.settleFailure(errors.Join(err, c.vips.Mend(), c.converge(), c.operator.expire(), c.slowStarts.advance()))
	if c.pending != nil && c.resolved(c.pending) {
		c.commit()
	}
	c.news, c.verdicts = nil, nil // of all backends, they would take as much memory as the view
	c.reconciled = time.Now()
	return nil
}

// takePaths reads changes of the paths to the backends of the view.
func (c *Controller) takePaths() error {
	entries, all := c.opt.Paths.Changed()
	if all || c.relearn {
		entries = c.opt.Paths.Entries()
	}
	c.news = c.view.News(c.currentLinks(), entries, all || c.relearn)
	return nil
}

// converge puts the desired state in force that follows from the sources, if it differs from the present one.
func (c *Controller) converge() error {
	before, now := c.view, time.Now()
	next, judged := before.WithVerdicts(c.verdicts, now)
	if !c.stale && len(c.news)+len(judged) == 0 && before.Passive == c.passive && before.Joining == c.gate.joining {
		c.recheck = false
		return nil
	}
	next = next.WithPaths(c.news, now)
	next.Links = c.currentLinks()
	next.Passive, next.Joining = c.passive, c.gate.joining
	if err := c.applyView(next); err != nil {
		// The source reports a change only once.
		c.relearn = true
		c.paths.MarkStale()
		c.recheck = true
		c.checks.MarkStale()
		return err
	}
	c.relearn, c.recheck = false, false
	c.gate.noteVerdicts()
	c.health.logVerdicts(before, judged)
	numbers := slices.Sorted(maps.Keys(c.news))
	c.pathLog.logMoves(before, slices.Values(numbers))
	c.pathLog.logServices(before, numbers)
	for i := range c.view.Touched(numbers) {
		c.health.logServing(i)
	}
	return nil
}

// verdictsFor returns the verdicts on the backends of a configuration, by service and backend; nil for a service
// without checks. A service that is unchanged since the view before keeps its verdicts of that view, and newer ones
// come with the next takeVerdicts: of 100,000 backends, a change of one service reads the verdicts of that service
// only.
func (c *Controller) verdictsFor(l *view.Layout, before *view.View) [][]view.Verdict {
	verdicts := make([][]view.Verdict, len(l.Config.Services))
	for i, s := range l.Config.Services {
		if !s.Checks.On() {
			continue
		}
		if before.Holds(s) {
			verdicts[i] = before.Verdicts[before.Keyed[s.Key()]]
			continue
		}
		verdicts[i] = make([]view.Verdict, len(s.Backends))
		for j, b := range s.Backends {
			verdict, _ := c.opt.Checks.Verdict(s.BackendKey(b))
			verdicts[i][j] = view.VerdictOf(verdict)
		}
	}
	return verdicts
}

// takeVerdicts reads changes of the verdicts.
func (c *Controller) takeVerdicts() error {
	if c.recheck {
		c.opt.Checks.Changed() // the verdicts read below have all changes
		c.verdicts = c.opt.Checks.Verdicts()
		return nil
	}
	c.verdicts = c.opt.Checks.Changed()
	return nil
}

// takeRole reads whether this balancer holds its VIPs, and logs a change of that.
func (c *Controller) takeRole() error {
	holds, err := c.opt.Role.Holds()
	if err != nil {
		return fmt.Errorf("read whether this balancer holds its VIPs: %w", err)
	}
	if c.passive == holds {
		c.opt.Log.Info(map[bool]string{true: "this balancer holds its VIPs",
			false: "this balancer does not hold its VIPs"}[holds])
	}
	if c.passive && holds {
		c.requestEarly()
	}
	c.passive = !holds
	if c.opt.Election != nil {
		c.vips.Elect(holds, c.opt.Election.HoldingUndecided(), c.opt.Election.Announcements())
	}
	return nil
}

// knownPaths returns the known paths to a configuration's backends, by the backends' numbers. Entries that have not
// changed are those of the previous view.
func (c *Controller) knownPaths(l *view.Layout, links []iface.State, previous *view.View) []*paths.Entry {
	entries, known := c.opt.Paths.Entries(), make([]*paths.Entry, len(l.Backends))
	for n, addr := range l.Backends {
		entry := view.EntryWithin(links, entries[addr])
		if known[n] = previous.Entry(addr); known[n] == nil || !view.SameEntry(&entry, known[n]) {
			known[n] = view.Kept(entry)
		}
	}
	return known
}

// awaitPaths waits, within a bound, until the backends of a configuration are looked for, where packets that arrive at
// once may be of flows that are older than this process: a data plane forwards already, and goes on with its old state
// until then, or other balancers have the VIPs too. Without its whole table from the first packet on, a balancer beside
// others would begin a transition with each backend that it finds, and take flows of theirs for older than that.
func (c *Controller) awaitPaths(l *view.Layout) {
	if !c.opt.TakesOver && !l.BesideOthers() {
		return
	}
	all := &reload{wanted: l.Watched}
	bound := time.NewTimer(resolveBound)
	defer bound.Stop()
	for !c.resolved(all) {
		select {
		case <-c.opt.Paths.Changes():
		case <-bound.C:
			return
		}
	}
}

// dropAddresses removes addresses that the previous process had put on its first interface and that the balancer is to
// hold no more, or to hold on another one.
func (c *Controller) dropAddresses(first *view.View) {
	if !c.opt.TakesOver {
		return
	}
	if err := c.opt.Host.RetainAddresses(c.links[0].Name, first.AddressesHeld()); err != nil {
		c.opt.Log.Warn(loglines.OneLine(err))
	}
	c.logHost()
}

// noChecks is in the place of Checks that are not there.
type noChecks struct{}

func (noChecks) Unsupported(lb.Check) string {
	return "this program makes no health checks; remove the check"
}

func (noChecks) Watch([]lb.CheckTarget) {}

func (noChecks) Amend([]lb.CheckTarget, []lb.BackendKey) {}

func (noChecks) Offline(string) {}

func (noChecks) Changes() <-chan struct{} { return nil }

func (noChecks) Changed() map[lb.BackendKey]lb.Verdict { return nil }

func (noChecks) Verdicts() map[lb.BackendKey]lb.Verdict { return nil }

func (noChecks) Verdict(lb.BackendKey) (lb.Verdict, bool) { return lb.Verdict{}, false }

func (noChecks) Ask(context.Context, lb.CheckTarget, func(lb.CheckStep)) ([]lb.CheckResult, error) {
	return nil, nil
}
