// SPDX-License-Identifier: Apache-2.0

// Package control keeps a balancer as its configuration wants it: it puts the
// VIPs on the first interface and announces them, makes the host forward where a
// mode needs that, learns the paths to the backends, and gives the data plane a
// new state when either the configuration or what is known about the backends
// and the interfaces changes.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/hostnet"
	"github.com/jeoul/jeoul/internal/iface"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/paths"
	"github.com/jeoul/jeoul/internal/yamlfile"
)

// ErrStopped is what Reload returns when the controller does not run.
var ErrStopped = errors.New("the balancer is not running")

// DataPlane forwards packets.
type DataPlane interface {
	// Apply puts a state in place of the one before, whole or not at all.
	Apply(lb.State) error
	Attachments() []lb.Attachment
	Counters() (lb.Counters, error)
}

// planner is a DataPlane that knows what memory it has taken.
type planner interface{ Memory() lb.MemoryPlan }

// portCounter is a DataPlane that counts how much of full NAT's pool is in use.
type portCounter interface {
	// Counted has something to receive after each new count.
	Counted() <-chan struct{}
	PortsHeld([]lb.BackendKey) []uint32
}

// Paths finds how packets reach the backends, and follows that.
type Paths interface {
	// Watch replaces the set of addresses that are looked for.
	Watch([]netip.Addr) error
	// Routes looks addresses up without watching them.
	Routes([]netip.Addr) (map[netip.Addr]paths.Route, error)
	Entries() map[netip.Addr]paths.Entry
	// Changed returns what is new since the last call; all says that this may be
	// anything, and Entries has it.
	Changed() (entries map[netip.Addr]paths.Entry, all bool)
	Changes() <-chan struct{}
}

// Host changes the network settings of the host, and remembers what it changed
// in order to take it back.
type Host interface {
	// AddAddresses puts all of them on a link, or none.
	AddAddresses(link string, addrs []netip.Addr, opt hostnet.AddressOptions) error
	// RemoveAddresses takes them off a link, as many as it can.
	RemoveAddresses(link string, addrs []netip.Addr) error
	// Forward makes the host a router on links for the families that are true.
	Forward(links []string, four, six bool) error
	Sysctl(name string) (string, error)
	// Events are what was done since the last call.
	Events() []hostnet.Event
}

// Links are the interfaces that packets arrive on and leave by.
type Links interface {
	// States are in the configuration's order; the first carries the VIPs.
	States() ([]iface.State, error)
	Changes() <-chan struct{}
}

// Options are the parts that a controller works with. They stay the caller's
// to close, after Run has returned.
type Options struct {
	DataPlane DataPlane
	Paths     Paths
	Host      Host
	Links     Links
	// Announce tells the segment that VIPs are here.
	Announce func(link string, vips ...netip.Addr) error
	Log      *slog.Logger
	// Version is shown in the status.
	Version string
}

// How long things take.
const (
	// settle lets changes that come together be applied together.
	settle = 20 * time.Millisecond
	// resolveBound is how long a reload waits for the paths to backends that are
	// new in it; without that, one that replaces them all would leave
	// the service without any for a moment.
	resolveBound = 3 * time.Second
	// silence is how long a backend may stay without a path before that is said.
	silence = 3 * time.Second
	// Announcements may be lost, so each is made a few times.
	announceTimes = 3
	announceEvery = time.Second
	// announceAtOnce is how many announcements are made in one go, and announcePause
	// how long they are apart: 10,000 of them in a second are no load for a segment,
	// and leave time for what else there is to do.
	announceAtOnce = 500
	announcePause  = 50 * time.Millisecond
	// What failed is tried again after retryFirst, then twice as long each time
	// up to retryMost.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// Controller runs one balancer.
type Controller struct {
	opt      Options
	requests chan *reload
	calls    chan func() // what others want done in the loop
	started  time.Time
	reloads  sync.Mutex // held by the one Reload under way
	stopped  chan struct{}

	// What follows is written by Start and Run only, and read by Status too.
	mu         sync.Mutex
	view       *view // before Start, without paths
	history    []operation
	links      []iface.State
	generation uint64
	outages    outages  // has a lock of its own
	scarcity   scarcity // likewise
	failed     error    // of the last attempt to bring things in order
	refused    error    // of the last reload
	refusedAt  time.Time

	// What follows is the loop's own.
	pending   *reload
	stale     bool // the data plane needs its state again, even if it is the same
	due       bool // the settle timer runs
	relink    bool // the interfaces may have changed
	relearn   bool // the paths may have changed, whatever Changed says
	retry     time.Duration
	announce  int                    // rounds of announcements still to make
	announced int                    // of this round
	memory    lb.MemoryPlan          // as it was said last
	bare      map[lb.ServiceKey]bool // services of which it was said that they have no backend
	lost      map[string]uint64      // frames of XDP, by interface, as it was said last
	timers    timers
	// ports and counted are nil where the data plane does not count ports.
	ports   portCounter
	counted <-chan struct{}
}

// timers are all stopped until something arms them.
type timers struct{ settle, pending, announce, retry, silence, deadline, losses *time.Timer }

func newTimers() timers {
	stopped := func() *time.Timer {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return t
	}
	return timers{stopped(), stopped(), stopped(), stopped(), stopped(), stopped(), stopped()}
}

// New returns a controller for a configuration. Nothing happens before Start.
func New(opt Options, cfg *config.Config) *Controller {
	c := &Controller{
		opt:      opt,
		view:     &view{layout: newLayout(cfg)},
		requests: make(chan *reload),
		calls:    make(chan func()),
		stopped:  make(chan struct{}),
		started:  time.Now(),
		timers:   newTimers(),
		bare:     map[lb.ServiceKey]bool{},
		lost:     map[string]uint64{},
	}
	if plane, ok := opt.DataPlane.(portCounter); ok {
		c.ports, c.counted = plane, plane.Counted()
	}
	return c
}

// Start checks the configuration against the machine, attaches the data plane
// and puts the VIPs on the interface. Backends are found later, in Run, whether or
// not there is a route to them yet; until one is found, its service drops packets
// under a name of its own. After an error,
// close the parts in order to take back what was done.
func (c *Controller) Start() error {
	states, err := c.opt.Links.States()
	if err != nil {
		return err
	}
	c.setLinks(states)
	l := c.view.layout
	warnings, err := c.check(l)
	if err != nil {
		return err
	}
	if err := c.opt.Paths.Watch(l.backends); err != nil {
		return err
	}
	// The data plane comes before the VIPs: a packet of a connection that has
	// outlived our last run would otherwise reach the kernel, which knows the
	// VIP and no such connection, and resets it. Forwarding comes last: until then
	// the kernel drops the replies that nobody rewrites.
	if err := c.install(newView(l, nil, c.known(l, nil), nil)); err != nil {
		return tooLarge(l.cfg, err)
	}
	if err := c.addAddresses(l.addresses); err != nil {
		return err
	}
	if err := c.forward(l.cfg); err != nil {
		return err
	}
	c.welcome(warnings)
	return nil
}

// welcome says what was started, and arms what Run needs first.
func (c *Controller) welcome(warnings yamlfile.Problems) {
	c.tellAttachments(nil)
	c.describe(nil, warnings)
	c.tellMemory()
	c.tellMoves(nil, c.view.all())
	c.warned()
	for _, link := range c.links {
		if !link.Up {
			c.opt.Log.Warn(downMessage(link.Name))
		}
	}
	c.announceAll()
	c.timers.losses.Reset(lossEvery)
	c.timers.silence.Reset(silence)
	c.soon() // paths may have been found meanwhile
}

// tellAttachments says where packets are taken now, and what may be lost by it, unless that
// is as it was.
func (c *Controller) tellAttachments(before []lb.Attachment) {
	now := c.opt.DataPlane.Attachments()
	if slices.Equal(before, now) {
		return
	}
	at := now[0] // one way for all interfaces
	c.opt.Log.Info(fmt.Sprintf("balancing on %s in %s", listLinks(c.links), at), "why", at.Reason)
	for _, message := range lossMessages(now, nil) {
		if message != "" {
			c.opt.Log.Warn(message)
		}
	}
}

// tellMemory says what memory is taken, where that is new: it is planned from the
// configuration, and flows that come and go change nothing.
func (c *Controller) tellMemory() {
	plane, ok := c.opt.DataPlane.(planner)
	if !ok {
		return
	}
	if plan := plane.Memory(); plan != c.memory {
		c.memory = plan
		c.opt.Log.Info(plan.String())
	}
}

// Run follows changes until the context ends, which is no error. It ends with
// iface.ErrGone when the interface is deleted. Call it once, after Start.
func (c *Controller) Run(ctx context.Context) error {
	defer close(c.stopped)
	for {
		select {
		case <-ctx.Done():
			c.finish()
			return nil
		case <-c.opt.Paths.Changes():
			c.soon()
		case <-c.opt.Links.Changes():
			c.relink = true
			c.soon()
		case <-c.timers.settle.C:
			c.due = false
			if err := c.reconcile(); err != nil {
				c.finish()
				return err
			}
		case <-c.timers.retry.C:
			c.relink = true
			c.soon()
		case r := <-c.requests:
			c.begin(r)
		case call := <-c.calls:
			call()
		case <-c.timers.deadline.C:
			if err := c.expire(); err != nil {
				c.settleFailure(err)
			}
		case <-c.timers.pending.C:
			c.commit()
		case <-c.timers.announce.C:
			c.announceSome()
		case <-c.timers.silence.C:
			c.reportSilent()
		case <-c.timers.losses.C:
			c.tellLosses()
		case <-c.counted:
			c.watchPool()
		}
	}
}

// soon arms a reconcile. Later changes do not put it off: a backend that
// flaps must not keep the others' from being applied.
func (c *Controller) soon() {
	if !c.due {
		c.due = true
		c.timers.settle.Reset(settle)
	}
}

// reconcile brings the interfaces and the data plane in order. Its error is one
// that ends the balancer; others are said, and tried again later.
func (c *Controller) reconcile() error {
	err := c.followInterfaces()
	if errors.Is(err, iface.ErrGone) {
		return fmt.Errorf("%w; start again when it is back, or without it", err)
	}
	c.settleFailure(errors.Join(err, c.followPaths(), c.expire()))
	if c.pending != nil && c.resolved(c.pending) {
		c.commit()
	}
	return nil
}

// settleFailure notes what is wrong now, says what is new in that, and arms
// another try.
func (c *Controller) settleFailure(err error) {
	before := c.failed
	c.mu.Lock()
	c.failed = err
	c.mu.Unlock()
	if err == nil {
		c.retry = 0
		c.timers.retry.Stop()
		if before != nil {
			c.opt.Log.Info("in order again")
		}
		return
	}
	if before == nil || before.Error() != err.Error() {
		c.opt.Log.Error(oneLine(err))
	}
	c.retry = min(max(2*c.retry, retryFirst), retryMost)
	c.timers.retry.Reset(c.retry)
}

// followInterfaces asks for the interfaces' states where they may have changed:
// with many VIPs that takes longer than all else.
func (c *Controller) followInterfaces() error {
	if !c.relink {
		return nil
	}
	states, err := c.opt.Links.States()
	if err == nil {
		err = c.followLinks(states)
	}
	c.relink = err != nil
	return err
}

// followLinks takes up new states of the interfaces.
func (c *Controller) followLinks(states []iface.State) error {
	before := c.links
	c.setLinks(states)
	for i, state := range states {
		c.followLink(before[i], state)
	}
	first, was := states[0], before[0]
	if !first.Up {
		// Switching an interface off takes its IPv6 addresses away; they could
		// be put back now, but not announced.
		return nil
	}
	lost := missing(first, c.view.addresses)
	if err := c.addAddresses(lost); err != nil {
		return err
	}
	if !was.Up || moved(was, first) || len(lost) > 0 {
		c.announceAll()
	}
	return nil
}

// followLink says what is new about an interface.
func (c *Controller) followLink(before, now iface.State) {
	switch {
	case before.Up && !now.Up:
		c.opt.Log.Warn(downMessage(now.Name))
	case !before.Up && now.Up:
		c.opt.Log.Info(fmt.Sprintf("interface %s is up", now.Name))
		c.timers.silence.Reset(silence) // who is silent now has no excuse
	}
	if moved(before, now) {
		c.opt.Log.Info(fmt.Sprintf("interface %s has a new MAC address: %s → %s", now.Name, before.MAC, now.MAC))
		c.stale = true // the data plane holds the old one
	}
}

func moved(before, now iface.State) bool { return before.MAC.String() != now.MAC.String() }

func downMessage(name string) string {
	return fmt.Sprintf("interface %s is down: no packets until it is up", name)
}

func (c *Controller) setLinks(states []iface.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links = states
}

// listLinks names the interfaces.
func listLinks(links []iface.State) string {
	return strings.Join(linkNames(links), ", ")
}

func linkNames(links []iface.State) []string {
	names := make([]string, len(links))
	for i, link := range links {
		names[i] = link.Name
	}
	return names
}

// followPaths gives the data plane the paths that are known now, if they are
// others than it has.
func (c *Controller) followPaths() error {
	before := c.view
	entries, all := c.opt.Paths.Changed()
	if all || c.relearn {
		entries = c.opt.Paths.Entries()
	}
	news := before.news(entries, all || c.relearn)
	if !c.stale && len(news) == 0 {
		return nil
	}
	c.relearn = true // unless it goes well, what is new will not be told again
	if err := c.install(before.withPaths(news)); err != nil {
		return err
	}
	c.relearn = false
	numbers := slices.Sorted(maps.Keys(news))
	c.tellMoves(before, slices.Values(numbers))
	c.tellServices(before, numbers)
	return nil
}

// announceAll tells the segment where our addresses are, a few times.
func (c *Controller) announceAll() {
	c.announce, c.announced = announceTimes, 0
	c.timers.announce.Reset(0)
}

// announceSome makes the next announcements of a round: not all at once, for what
// else there is to do would wait.
func (c *Controller) announceSome() {
	link := c.links[0]
	if c.announce <= 0 || !link.Up {
		return
	}
	addrs := c.view.addresses
	end := min(c.announced+announceAtOnce, len(addrs))
	if some := addrs[min(c.announced, end):end]; len(some) > 0 {
		if err := c.opt.Announce(link.Name, some...); err != nil {
			c.opt.Log.Warn(oneLine(err))
		}
	}
	if c.announced = end; end < len(addrs) {
		c.timers.announce.Reset(announcePause)
		return
	}
	c.announced = 0
	if c.announce--; c.announce > 0 {
		c.timers.announce.Reset(announceEvery)
	}
}

// addAddresses puts addresses on the first interface, all of them or none.
func (c *Controller) addAddresses(addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	// A VIP is never the source of what the host itself sends: a backend
	// that was probed from it would answer to itself. Nor is it looked for
	// elsewhere first: the backends have it too, and keep quiet about it. An
	// address of full NAT is not the host's to send from either, for its
	// ports are given away.
	err := c.opt.Host.AddAddresses(c.links[0].Name, addrs, hostnet.AddressOptions{ScopeHost: true, Deprecated: true, NoDAD: true})
	c.logHost()
	return err
}

// removeAddresses takes addresses off the first interface. One that stays is
// said here and removed at the end with the rest.
func (c *Controller) removeAddresses(addrs []netip.Addr) {
	if len(addrs) == 0 {
		return
	}
	if err := c.opt.Host.RemoveAddresses(c.links[0].Name, addrs); err != nil {
		c.opt.Log.Warn(oneLine(err))
	}
	c.logHost()
}

// forward makes the host forward what the configurations' services need, and
// nothing else.
func (c *Controller) forward(cfgs ...*config.Config) error {
	var four, six bool
	for _, cfg := range cfgs {
		for _, s := range cfg.Services {
			four = four || s.Mode.Translates() && s.VIP.Is4()
			six = six || s.Mode.Translates() && s.VIP.Is6()
		}
	}
	err := c.opt.Host.Forward(linkNames(c.links), four, six)
	c.logHost()
	return err
}

func (c *Controller) logHost() {
	changes := tale{log: c.opt.Log.Info}
	for _, event := range c.opt.Host.Events() {
		changes.say("%s", event)
	}
	changes.end("%d more changes to the host's network settings")
}
