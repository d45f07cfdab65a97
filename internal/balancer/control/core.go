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

// core is the state that the components of a controller share: its options and its loop, the view in force, and the one
// way to put another one in force. It knows none of them.
type core struct {
	opt  Options
	loop *loop.Loop

	// Only Start and the loop write the fields below; Status reads them under mu.
	mu         sync.Mutex
	view       *view.View // before Start, without paths
	links      []iface.State
	missing    []string // interfaces that went, and that the data plane is not attached to again; replaced as a whole
	generation uint64
	failed     error // of the last attempt to bring things in order

	// Only the loop uses the fields below.
	interfaces *loop.Source
	paths      *loop.Source
	checks     *loop.Source
	actuators  []actuator // in the order in which they bring in new parts
	// followers are called with a view that is about to be in force, and the one before.
	followers     []func(before, now *view.View)
	reconcileTask *loop.Task
	retryTask     *loop.Task
	remade        []string      // interfaces that came back, by name, of which the settings are not made yet
	passive       bool          // others hold the VIPs
	reconciled    time.Time     // when a reconcile ended last
	stale         bool          // the data plane needs its state again, even if it is the same
	recheck       bool          // the verdicts may be others, whatever Checks.Changed says
	relearn       bool          // the paths may have changed, whatever Changed says
	wait          time.Duration // until a failed change is tried again
}

// announceView calls the followers with a view that is about to be in force.
func (c *core) announceView(next *view.View) {
	for _, follow := range c.followers {
		follow(c.view, next)
	}
}

// attached takes note that the data plane is attached to all interfaces that there are.
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

// schedule arms a reconcile. Later changes do not put it off: a backend that
// flaps must not keep the others' from being applied.
func (c *core) schedule() {
	c.reconcileTask.Within(settle)
}

// scheduleNow arms a reconcile at once, or so late that changes within settle of the last one are applied together. It
// is for changes that are whole as they come: a verdict is, and each millisecond sends new flows to a backend that
// fails; the kernel reports a route in pieces.
func (c *core) scheduleNow() {
	c.reconcileTask.Within(max(0, time.Until(c.reconciled.Add(settle))))
}

// markStale has all sources read again.
func (c *core) markStale() {
	c.loop.MarkStale()
	c.schedule()
}

// settleFailure notes the present error, logs it where it is new, and arms another try.
func (c *core) settleFailure(err error) {
	before := c.failed
	c.mu.Lock()
	c.failed = err
	c.mu.Unlock()
	if err == nil {
		c.wait = 0
		c.retryTask.Off()
		if before != nil {
			c.opt.Log.Info("recovered: what had failed is done")
		}
		return
	}
	if before == nil || before.Error() != err.Error() {
		c.opt.Log.Error(loglines.OneLine(err))
	}
	c.wait = min(max(2*c.wait, retryFirst), retryMost)
	c.retryTask.In(c.wait)
}

func (c *core) setLinks(states []iface.State) {
	c.mu.Lock()
	c.links = states
	c.mu.Unlock()
	c.opt.Checks.Offline(view.Offline(states))
}

func (c *core) logHost() {
	changes := loglines.To(c.opt.Log.Info)
	for _, event := range c.opt.Host.Events() {
		changes.Say(events.About{}, "%s", event)
	}
	changes.End("%d more changes to the host's network settings")
}

// currentLinks are the view's interfaces as they were read last, if the last reading is of the same names: one that was
// made anew has another index there than in the view.
func (c *core) currentLinks() []iface.State {
	if slices.EqualFunc(c.links, c.view.Links, func(a, b iface.State) bool { return a.Name == b.Name }) {
		return c.links
	}
	return c.view.Links
}

// linkIsGone says whether an interface is gone, or its known settings are those of the deleted one of that name.
func (c *core) linkIsGone(name string) bool {
	return slices.Contains(c.remade, name) || slices.ContainsFunc(c.links, func(l iface.State) bool {
		return l.Gone && l.Name == name
	})
}

// requestEarly asks other members to send new flows early, while packets of these come to be routed here.
func (c *core) requestEarly() {
	if c.opt.RequestEarly != nil {
		c.opt.RequestEarly()
	}
}

// install gives the data plane a view.
func (c *core) install(v *view.View) error {
	if err := c.opt.DataPlane.Apply(v.Packets()); err != nil {
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

// setView puts a view in force whose state the data plane has.
func (c *core) setView(v *view.View) {
	c.announceView(v)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = v
}

// nextHopText says where packets for an entry go: "" if nowhere.
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

// excusedByLink says whether an interface that is down, which was reported, is the reason for a missing path.
func (c *core) excusedByLink(e *paths.Entry) bool {
	return slices.ContainsFunc(c.links, func(link iface.State) bool {
		return !link.Up && (e.Fault != paths.None || e.Interface == "" || e.Interface == link.Name)
	})
}

// applyView puts another desired state in force, whole or not at all. A step that cannot be retired is logged, and
// undone at the end with the rest.
func (c *core) applyView(next *view.View) error {
	before := c.view
	var bring, retire []steps.Step
	for _, a := range c.actuators {
		b, r := a.Change(before, next)
		bring, retire = append(bring, b...), append(r, retire...)
	}
	if err := steps.CarryOut(bring); err != nil {
		return err
	}
	for _, s := range retire {
		if err := s.Do(); err != nil {
			c.opt.Log.Warn(loglines.OneLine(err))
		}
	}
	return nil
}

// How long things take.
const (
	// settle lets changes that come together be applied together.
	settle = 20 * time.Millisecond
	// resolveBound is how long a reload waits for the paths to backends that are
	// new in it; without that, one that replaces them all would leave
	// the service without any for a moment.
	resolveBound = 3 * time.Second
	// pathLogDelay is how long a backend may stay without a path before that is logged.
	pathLogDelay = 3 * time.Second
	// retryFirst is the pause before the first retry of a failed change. Each later one is twice as long, up to
	// retryMost.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// actuator brings one part of the host or the data plane to the desired state.
type actuator interface {
	// Change returns the steps from one desired state to another: those of bring run before the next one is in force,
	// and leave the one before whole; those of retire run afterwards, the last actuator's first, and remove what only
	// the one before needed.
	Change(before, next *view.View) (bring, retire []steps.Step)
}

// reload is a configuration on its way into the loop.
type reload struct {
	new *view.Layout
	// wanting is the configuration as it was handed in, and refused the backends discovered for it that cannot be.
	// discovered: only discovered backends have changed.
	wanting    *config.Config
	refused    []config.RefusedBackend
	discovered bool
	announce   bool          // the VIPs, though they may be those of before
	links      []iface.State // of its interfaces
	looks      bool          // paths are looked for by these, too
	warnings   yamlfile.Problems
	wanted     []netip.Addr // backends that are not known yet
	done       chan error   // buffered: the loop never waits for who asked
}

// plane is the data plane. It is brought last: an earlier step may fail, and then the data plane was not touched.
type plane struct{ *core }

func (p *plane) Change(before, next *view.View) (bring, retire []steps.Step) {
	return []steps.Step{{Do: func() error {
		next.Hairpin = p.hairpins(next)
		next.State.Hairpin = next.Hairpin.Hairpin
		next.State.Fresh = before.Joining != "" && !p.opt.TakesOver && next.LeavesAll()
		if !p.stale && next.SharesState(before) {
			p.setView(next)
			return nil
		}
		return view.TooLarge(next.Config, p.install(next))
	}}}, nil
}

// hairpins returns the clients that the next view serves by hairpins.
func (p *plane) hairpins(next *view.View) view.Hairpins {
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
