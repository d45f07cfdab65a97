// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/steps"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// core is the state that the components of a controller share: its options, its loop, the view in force, and applyView,
// which is the only way to replace the view. It does not know the components.
type core struct {
	opt  Options
	loop *loop.Loop

	// Only Start and the loop write the fields below; Status reads them under mu.
	mu    sync.Mutex
	view  *view.View // has no paths before Start
	links []iface.State
	// missing are interfaces that were deleted, and to which the data plane is not attached again. Immutable.
	missing    []string
	generation uint64
	lastError  error // error of the last reconcile

	// Only the loop uses the fields below.
	interfaces *loop.Source
	paths      *loop.Source
	checks     *loop.Source
	actuators  []actuator // in the order in which their first steps run
	// followers are called with the previous view and with the one that is about to come into force.
	followers      []func(before, now *view.View)
	reconcileTask  *loop.Task
	retryTask      *loop.Task
	recreated      []string      // interfaces that were created again, and are not configured yet
	passive        bool          // another balancer holds the VIPs
	reconciled     time.Time     // end of the last reconcile
	stale          bool          // the state must be applied to the data plane again, even if unchanged
	rereadVerdicts bool          // all verdicts have to be read, whatever Checks.Changed returns
	rereadPaths    bool          // all paths have to be read, whatever Paths.Changed returns
	retryDelay     time.Duration // delay of the next retry
}

// announceView calls the followers with a view that is about to come into force.
func (c *core) announceView(next *view.View) {
	for _, follow := range c.followers {
		follow(c.view, next)
	}
}

// attached records that the data plane is attached to all interfaces that exist.
func (c *core) attached() {
	if len(c.missing) == 0 {
		return
	}
	var still []string
	for _, l := range c.links {
		if l.Gone {
			still = append(still, l.Name)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = still
}

// schedule schedules a reconcile. Later changes do not postpone it: a backend that flaps must not delay the changes of
// others.
func (c *core) schedule() {
	c.reconcileTask.ScheduleWithin(settleDelay)
}

// scheduleNow schedules a reconcile at once, or settleDelay after the last one if that is later. It is for changes that
// arrive complete, such as a verdict: each millisecond sends new flows to a backend that fails. The kernel, in
// contrast, reports a change of routes in several messages: see schedule.
func (c *core) scheduleNow() {
	c.reconcileTask.ScheduleWithin(max(0, time.Until(c.reconciled.Add(settleDelay))))
}

// markStale marks all sources as stale, so that the next reconcile reads them again.
func (c *core) markStale() {
	c.loop.MarkStale()
	c.schedule()
}

// recordResult records the result of a reconcile, logs an error that is new, and schedules a retry after any error.
func (c *core) recordResult(err error) {
	before := c.lastError
	c.mu.Lock()
	c.lastError = err
	c.mu.Unlock()
	if err == nil {
		c.retryDelay = 0
		c.retryTask.Cancel()
		if before != nil {
			c.opt.Log.Info("recovered: the changes that had failed are done")
		}
		return
	}
	if before == nil || before.Error() != err.Error() {
		c.opt.Log.Error(loglines.OneLine(err))
	}
	c.retryDelay = min(max(2*c.retryDelay, retryFirst), retryMax)
	c.retryTask.Schedule(c.retryDelay)
}

func (c *core) setLinks(states []iface.State) {
	c.mu.Lock()
	c.links = states
	c.mu.Unlock()
	c.opt.Checks.SetOffline(view.Offline(states))
}

func (c *core) logHost() {
	changes := loglines.New(c.opt.Log.Info)
	for _, event := range c.opt.Host.Events() {
		changes.Logf(events.About{}, "%s", event)
	}
	changes.Flush("%d more changes to the host's network settings")
}

// currentLinks returns the view's interfaces as they were read last, if the last reading is of the same names: an
// interface that was created again has another index there than in the view.
func (c *core) currentLinks() []iface.State {
	if slices.EqualFunc(c.links, c.view.Links, func(a, b iface.State) bool { return a.Name == b.Name }) {
		return c.links
	}
	return c.view.Links
}

// linkIsGone reports whether an interface is deleted, or was created again and its settings are still those of the
// deleted one.
func (c *core) linkIsGone(name string) bool {
	return slices.Contains(c.recreated, name) || slices.ContainsFunc(c.links, func(l iface.State) bool {
		return l.Gone && l.Name == name
	})
}

// requestEarly asks the other members to send new flows early, while their packets are being rerouted to this balancer.
func (c *core) requestEarly() {
	if c.opt.RequestEarly != nil {
		c.opt.RequestEarly()
	}
}

// install applies a view to the data plane.
func (c *core) install(v *view.View) error {
	if err := c.opt.DataPlane.Apply(v.DataPlaneState()); err != nil {
		return err
	}
	c.announceView(v)
	c.stale = false
	defer c.attached()
	if !slices.EqualFunc(c.view.Links, v.Links, view.SameLink) {
		c.setLinks(v.Links)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = v
	c.generation++
	return nil
}

// setView makes a view current whose state the data plane has already.
func (c *core) setView(v *view.View) {
	c.announceView(v)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = v
}

// nextHopText names the next hop of an entry; "" if there is none.
func (c *core) nextHopText(s lb.Service, e *paths.Entry) string {
	if view.WhyUnreachable(s, e) != "" || s.Mode.Proxied() {
		return ""
	}
	place := e.MAC.String()
	if e.Gateway.IsValid() {
		place += " (the router " + e.Gateway.String() + ")"
	}
	if len(c.links) > 1 {
		place += " on " + e.Interface
	}
	return place
}

// excusedByLink reports whether an interface that is down, which was logged, explains a missing path.
func (c *core) excusedByLink(e *paths.Entry) bool {
	return slices.ContainsFunc(c.links, func(link iface.State) bool {
		return !link.Up && (e.Fault != paths.None || e.Interface == "" || e.Interface == link.Name)
	})
}

// applyView applies another desired state, completely or not at all. A cleanup step that fails is logged; what it has
// left is undone when the process ends.
func (c *core) applyView(next *view.View) error {
	before := c.view
	var apply, cleanup []steps.Step
	for _, a := range c.actuators {
		b, r := a.Plan(before, next)
		apply, cleanup = append(apply, b...), append(r, cleanup...)
	}
	if err := steps.Run(apply); err != nil {
		return err
	}
	for _, s := range cleanup {
		if err := s.Do(); err != nil {
			c.opt.Log.Warn(loglines.OneLine(err))
		}
	}
	return nil
}

// Delays and timeouts of the controller.
const (
	// settleDelay batches changes that arrive together.
	settleDelay = 20 * time.Millisecond
	// resolveBound bounds how long a reload waits for the paths to its new backends; without that wait, a reload that
	// replaces all backends would leave the service without any for a moment.
	resolveBound = 3 * time.Second
	// pathLogDelay is how long a backend may have no path before that is logged.
	pathLogDelay = 3 * time.Second
	// retryFirst is the pause before the first retry of a failed change. Each later one is twice as long, up to
	// retryMax.
	retryFirst = time.Second
	retryMax   = 30 * time.Second
)

// actuator brings one part of the host, or the data plane, to the desired state.
type actuator interface {
	// Plan returns the steps from one desired state to another. The steps of apply run first, in the order of the
	// actuators, and must keep the previous state working; the steps of cleanup run once all of apply have succeeded,
	// in the reverse order of the actuators, and remove whatever only the previous state needed.
	Plan(before, next *view.View) (apply, cleanup []steps.Step)
}

// reload is a configuration that the loop is to apply.
type reload struct {
	layout *view.Layout
	// config is the configuration as the caller passed it, without discovered backends, and refused are the discovered
	// backends that it cannot have. discovered: only discovered backends have changed; displaced: it took the place of
	// such a change that was pending, and that has to be tried again if this one is refused.
	config        *config.Config
	refused       []config.RefusedBackend
	discovered    bool
	displaced     bool
	announce      bool          // announce the VIPs even if they have not changed
	links         []iface.State // states of its interfaces
	pathsExtended bool          // paths are resolved through these interfaces, too
	warnings      yamlfile.Problems
	awaited       []netip.Addr // backends whose paths are not resolved yet
	done          chan error   // buffered: the loop never waits for the caller
}

// planeActuator applies the view to the data plane. It comes last, so that an earlier step that fails leaves the data
// plane unchanged.
type planeActuator struct{ *core }

func (p *planeActuator) Plan(before, next *view.View) (apply, cleanup []steps.Step) {
	return []steps.Step{{Do: func() error {
		next.Hairpin = p.hairpins(next)
		next.State.Hairpin = next.Hairpin.Hairpin
		next.State.Fresh = before.Joining != "" && !p.opt.TakesOver && next.WithdrawsAll()
		if !p.stale && next.SharesState(before) {
			p.setView(next)
			return nil
		}
		return view.TooLarge(next.Config, p.install(next))
	}}}, nil
}

// hairpins returns the clients that the next view serves by hairpinning.
func (p *planeActuator) hairpins(next *view.View) view.Hairpins {
	if len(next.Hairpinned) == 0 {
		return view.Hairpins{}
	}
	links := slices.Clone(next.Links)
	for i := range links {
		if at := slices.IndexFunc(p.links, func(l iface.State) bool { return view.SameLink(l, links[i]) }); at >= 0 {
			links[i] = p.links[at]
		}
	}
	ports, err := p.opt.Host.Sysctl(view.PortRange)
	if err != nil {
		ports = err.Error()
	}
	if p.view.Hairpin.IsOf(p.view, next, links, ports) {
		return p.view.Hairpin
	}
	return view.HairpinsOf(next, links, ports)
}
