// SPDX-License-Identifier: Apache-2.0

// Package control reconciles a balancer with its configuration: it puts the VIPs on the first interface and announces
// them, enables forwarding on the host where a mode needs it, resolves the paths to the backends, and applies a new
// state to the data plane whenever the configuration, or the observed state of the backends or interfaces, changes.
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
	reloads sync.Mutex // held by the Reload in progress

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
	// Actuators that components other than core call.
	vips     *vips.VIPs
	routes   *routes
	election *election
	proxies  *proxies

	// Reload writes the fields below and Status reads them, under mu.
	refused   error // the error of the last reload
	refusedAt time.Time

	// Only the loop uses the fields below. startSources are the sources that Start reads: paths and the backends'
	// health are unknown until they are watched.
	startSources []*loop.Source
	pending      *reload
	pendingTask  *loop.Task
	changedPaths map[int]*paths.Entry         // read, but not in the view yet
	verdicts     map[lb.BackendKey]lb.Verdict // read, but not in the view yet
	memory       lb.MemoryPlan                // as it was logged last
}

// New returns a controller for a configuration. It does nothing before Start.
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
	c.reconcileTask, c.retryTask, c.pendingTask = l.AddTask(c.reconcile), l.AddFunc(c.markStale), l.AddFunc(c.commit)
	c.health = &healthLog{core: c.core}
	c.health.uncountedTask = l.AddFunc(c.health.logUncounted)
	c.pathLog = &pathLog{core: c.core, unreachable: map[lb.ServiceKey]bool{}, absent: view.Absentees{}}
	c.pathLog.silenceTask = l.AddFunc(c.pathLog.logSilent)
	c.storage = &storage{core: c.core}
	c.storage.repinTask = l.AddFunc(c.storage.repin)
	c.slowStarts = &slowStarts{core: c.core, health: c.health}
	c.slowStarts.stepsTask = l.AddFunc(func() { c.recordFailure(c.slowStarts.advance()) })
	c.ejector = &ejector{core: c.core, health: c.health, storage: c.storage, outliers: outliers.New()}
	c.ejector.outliersTask = l.AddFunc(c.ejector.evaluateOutliers)
	c.proxies = &proxies{core: c.core, stale: c.opt.Proxy != nil}
	c.proxies.renewTask = l.AddFunc(c.proxies.renew)
	c.counting = &counting{core: c.core, proxies: c.proxies, lost: map[string]uint64{}}
	c.counting.lossesTask = l.AddFunc(c.counting.logLosses)
	c.operator = &operator{core: c.core, health: c.health, ejector: c.ejector, storage: c.storage, counting: c.counting}
	c.operator.deadlineTask = l.AddFunc(func() { c.recordFailure(c.operator.expire()) })
	c.hostChecks = &hostChecks{c.core}
	c.poolWatch = &poolWatch{core: c.core}
	c.discovering = &discovering{core: c.core, config: cfg}
	c.discovering.discoverTask = l.AddFunc(c.discover)
	c.followers = []func(before, now *view.View){
		func(_, now *view.View) { c.operator.saveOverlays(now) },
		c.slowStarts.armSteps,
	}
}

// addActuators makes the actuators, and puts them in order.
func (c *Controller) addActuators() {
	c.vips = vips.New(c.opt.Host, c.opt.Announce, c.opt.Log, c.logHost, c.loop)
	c.routes = &routes{core: c.core}
	c.routes.routesTask = c.loop.AddFunc(func() { c.routes.update(c.view) })
	c.election = &election{core: c.core, routes: c.routes, vips: c.vips}
	c.routes.election = c.election
	c.gate = &startupGate{core: c.core, routes: c.routes}
	c.gate.verdictsTask = c.loop.AddFunc(c.gate.expireVerdictWait)
	c.linkWatch = &linkWatch{core: c.core, pathLog: c.pathLog, vips: c.vips}
	c.standby = &standby{core: c.core}
	c.standby.endTask = c.loop.AddFunc(c.standby.endBalancing)
	c.standby.plane, _ = c.opt.DataPlane.(standbyPlane)
	c.actuators = []actuator{c.routes, c.election, &identities{c.core}, &settings{c.linkWatch}, c.standby, c.vips,
		c.proxies, &planeActuator{c.core}}
}

// addSources adds the sources that the loop follows: paths, verdicts, and the others that change by themselves.
func (c *Controller) addSources() {
	l, opt := c.loop, &c.opt
	c.interfaces = l.AddSource("the interfaces", opt.Links.Changes(), c.linkWatch.readLinks, c.schedule)
	c.paths = l.AddSource("the paths", opt.Paths.Changes(), c.readPaths, c.schedule)
	c.checks = l.AddSource("the health checks", opt.Checks.Changes(), c.readVerdicts, c.scheduleNow)
	d := c.discovering
	d.discovery = l.AddSource("the discovered backends", opt.Discovery.Changes(), d.readDiscovered, d.scheduleDiscovery)
	c.startSources = []*loop.Source{c.interfaces, d.discovery}
	if opt.Role != nil {
		c.startSources = append(c.startSources, l.AddSource("the role", opt.Role.Changes(), c.readRole, c.scheduleNow))
	}
	c.gate.awaitFlows()
	if opt.Proxy != nil {
		l.OnSignal(opt.Proxy.Changes(), c.proxies.logState)
	}
	if opt.Files != nil {
		l.OnSignal(opt.Files.Changes(), c.storage.logFaults)
	}
	if plane, ok := opt.DataPlane.(portCounter); ok {
		c.poolWatch.ports = plane
		l.OnSignal(plane.FlowsCounted(), c.poolWatch.watchPool)
	}
}

// recordFailure schedules a retry if err is not nil.
func (c *Controller) recordFailure(err error) {
	if err != nil {
		c.recordResult(err)
	}
}

// Start checks the configuration against the host, attaches the data plane and puts the VIPs on the interface. Run
// resolves the paths to backends later, whether or not there is a route yet; until a service has a reachable backend,
// its packets are dropped with an outcome of their own. After an error, close the parts, which undoes the steps taken
// so far.
func (c *Controller) Start() error {
	for _, s := range c.startSources {
		s.MarkStale()
		if err := s.Refresh(); err != nil {
			return err
		}
	}
	l, err := c.startLayout()
	if err != nil {
		return err
	}
	warnings, err := c.hostChecks.check(l, c.links)
	if err != nil {
		return err
	}
	proxyWarnings, err := c.proxies.checkProxy(l)
	if err != nil {
		return err
	}
	warnings = append(warnings, proxyWarnings...)
	if err := c.opt.Paths.SetAddresses(l.Watched); err != nil {
		return err
	}
	c.opt.Checks.SetTargets(l.CheckTargets())
	c.opt.Discovery.SetServices(l.Config.Services)
	c.awaitPaths(l)
	overlays, tallies := c.operator.restoreOverlays(l)
	c.ejector.restoreOutliers()
	first := view.New(l, overlays, c.knownPaths(l, c.links, nil), c.verdictsFor(l, nil), c.ejector.ejectionsOf(l), nil,
		time.Now())
	first.Links, first.Tallies = c.links, tallies
	first.Passive = c.passive
	first.Joining = c.gate.start(first)
	c.standby.start(first)
	if err := c.begin(first); err != nil {
		return err
	}
	c.removeStaleAddresses(first)
	c.operator.armDeadline()
	c.gate.boundVerdictWait()
	c.logStart(warnings)
	return nil
}

// begin applies the first desired state. After an error, closing the parts undoes the steps done so far.
//
// The data plane comes before the VIPs: a packet of a connection that has outlived the previous process would otherwise
// reach the kernel, which has the VIP but no such connection, and resets it. Forwarding comes last: until then the
// kernel drops the replies that are not rewritten yet. The proxy listens at the VIPs, so it follows them.
func (c *Controller) begin(first *view.View) error {
	nothing := &view.View{Layout: view.NewLayout(&config.Config{})}
	for _, a := range []actuator{&planeActuator{c.core}, c.vips, c.proxies, &settings{c.linkWatch},
		&identities{c.core}} {
		apply, _ := a.Plan(nothing, first)
		for _, s := range apply {
			if err := s.Do(); err != nil {
				return err
			}
		}
	}
	return nil
}

// logStart logs the configuration that the balancer starts with, and schedules the first tasks of Run.
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
	c.vips.Start(c.opt.TakesOver)
	c.routes.start(c.view)
	c.election.setDesired(c.view)
	c.counting.lossesTask.Schedule(lossInterval)
	c.storage.repinTask.Schedule(repinInterval)
	c.pathLog.silenceTask.Schedule(pathLogDelay)
	c.ejector.armOutliers()
	c.paths.MarkStale() // some may have been resolved meanwhile
	c.schedule()
}

// logAttachments logs the interfaces and hooks in use if these have changed, and warns of packets that may be lost
// there.
func (c *Controller) logAttachments(before []lb.Attachment) {
	now := c.opt.DataPlane.Attachments()
	if slices.Equal(before, now) {
		return
	}
	at := now[0] // all interfaces have the same hook
	c.opt.Log.Info(fmt.Sprintf("balancing on %s in %s", view.ListLinks(c.links), at), "why", at.Reason)
	for _, message := range lossMessages(now, nil) {
		if message != "" {
			c.opt.Log.Warn(message)
		}
	}
}

// logMemory logs the planned memory if it has changed. The plan follows from the configuration: flows that come and go
// do not change it.
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

// Run reconciles until the context ends, which is not an error. It is called once, after Start.
func (c *Controller) Run(ctx context.Context) error {
	return c.loop.Run(ctx, func() { c.finish(ctx) })
}

// respondsInterval is how often Responds looks whether a loop that does not respond waits for the proxy engine.
const respondsInterval = time.Second

// Responds returns once the loop has run an empty call, or waits for a change of the proxy engine that is within its
// bound. It is a liveness probe: a call that hangs blocks every change. Errors: ErrStopped, the context's.
func (c *Controller) Responds(ctx context.Context) error {
	for !c.proxies.isCalling() {
		once, cancel := context.WithTimeout(ctx, respondsInterval)
		err := c.loop.Call(once, func() {})
		cancel()
		if err == nil || errors.Is(err, ErrStopped) || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// reconcile reads the sources that may have changed, and applies the resulting desired state. An error that it returns
// ends the balancer; others are logged and retried.
func (c *Controller) reconcile() error {
	c.changedPaths, c.verdicts = nil, nil
	err := c.loop.Refresh()
	c.recordResult(errors.Join(err, c.vips.RestoreMissing(), c.converge(), c.operator.expire(), c.slowStarts.advance()))
	if c.pending != nil && c.resolved(c.pending) {
		c.commit()
	}
	c.changedPaths, c.verdicts = nil, nil // if they are of all backends, they take as much memory as the view
	c.reconciled = time.Now()
	return nil
}

// readPaths reads changes of the paths to the backends of the view.
func (c *Controller) readPaths() error {
	entries, all := c.opt.Paths.Changed()
	if all || c.rereadPaths {
		entries = c.opt.Paths.Entries()
	}
	c.changedPaths = c.view.ChangedPaths(c.currentLinks(), entries, all || c.rereadPaths)
	return nil
}

// converge applies the desired state that results from the sources, if it differs from the present one.
func (c *Controller) converge() error {
	before, now := c.view, time.Now()
	next, changed := before.WithVerdicts(c.verdicts, now)
	if !c.stale && len(c.changedPaths)+len(changed) == 0 && before.Passive == c.passive &&
		before.Joining == c.gate.joining {
		c.rereadVerdicts = false
		return nil
	}
	next = next.WithPaths(c.changedPaths, now)
	next.Links = c.currentLinks()
	next.Passive, next.Joining = c.passive, c.gate.joining
	if err := c.applyView(next); err != nil {
		// A source reports each change only once.
		c.rereadPaths = true
		c.paths.MarkStale()
		c.rereadVerdicts = true
		c.checks.MarkStale()
		return err
	}
	c.rereadPaths, c.rereadVerdicts = false, false
	c.gate.checkVerdicts()
	c.health.logVerdicts(before, changed)
	numbers := slices.Sorted(maps.Keys(c.changedPaths))
	c.pathLog.logMoves(before, slices.Values(numbers))
	c.pathLog.logServices(before, numbers)
	for i := range c.view.AffectedServices(numbers) {
		c.health.logServing(i)
	}
	return nil
}

// verdictsFor returns the verdicts on the backends of a configuration, by service and backend; nil for a service
// without checks. A service that is unchanged since the previous view keeps the verdicts of that view, and newer ones
// come with the next readVerdicts, so that a change of one service among 100,000 backends reads the verdicts of that
// service only.
func (c *Controller) verdictsFor(l *view.Layout, before *view.View) [][]view.Verdict {
	verdicts := make([][]view.Verdict, len(l.Config.Services))
	for i := range l.Config.Services {
		s := &l.Config.Services[i]
		if !s.Checks.On() {
			continue
		}
		if at, ok := before.HasService(i, s); ok {
			verdicts[i] = before.Verdicts[at]
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

// readVerdicts reads changes of the verdicts.
func (c *Controller) readVerdicts() error {
	if c.rereadVerdicts {
		c.opt.Checks.Changed() // Verdicts below includes them
		c.verdicts = c.opt.Checks.Verdicts()
		return nil
	}
	c.verdicts = c.opt.Checks.Changed()
	return nil
}

// readRole reads whether this balancer holds its VIPs, and logs a change of that.
func (c *Controller) readRole() error {
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
		c.vips.SetElection(holds, c.opt.Election.HoldingUndecided(), c.opt.Election.Announcements())
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
			known[n] = view.NewEntry(entry)
		}
	}
	return known
}

// awaitPaths waits, for resolveBound at most, until the paths to a configuration's backends are resolved, where the
// first packets may belong to flows that are older than this process: because the data plane was taken over, which
// keeps its old state until then, or because other balancers share the VIPs. Without a complete table from the first
// packet on, a balancer beside others would begin a transition with each backend that is resolved, and treat flows of
// the others as older than it.
func (c *Controller) awaitPaths(l *view.Layout) {
	if !c.opt.TakesOver && !l.SharesVIPs() {
		return
	}
	all := &reload{awaited: l.Watched}
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

// removeStaleAddresses removes addresses that the previous process had put on its first interface, and that this
// configuration does not have there.
func (c *Controller) removeStaleAddresses(first *view.View) {
	if !c.opt.TakesOver {
		return
	}
	if err := c.opt.Host.RetainAddresses(c.links[0].Name, first.AddressesHeld()); err != nil {
		c.opt.Log.Warn(loglines.OneLine(err))
	}
	c.logHost()
}

// noChecks is used where Options has no Checks.
type noChecks struct{}

func (noChecks) Unsupported(lb.Check) string {
	return "this program makes no health checks; remove the check"
}

func (noChecks) SetTargets([]lb.CheckTarget) {}

func (noChecks) UpdateTargets([]lb.CheckTarget, []lb.BackendKey) {}

func (noChecks) SetOffline(string) {}

func (noChecks) Changes() <-chan struct{} { return nil }

func (noChecks) Changed() map[lb.BackendKey]lb.Verdict { return nil }

func (noChecks) Verdicts() map[lb.BackendKey]lb.Verdict { return nil }

func (noChecks) Verdict(lb.BackendKey) (lb.Verdict, bool) { return lb.Verdict{}, false }

func (noChecks) CheckNow(context.Context, lb.CheckTarget, func(lb.CheckStep)) ([]lb.CheckResult, error) {
	return nil, nil
}
