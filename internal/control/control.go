// SPDX-License-Identifier: Apache-2.0

// Package control keeps a balancer as its configuration wants it: it puts the
// VIPs on the interface and announces them, learns where the backends are, and
// gives the data plane a new state when either the configuration or what is
// known about the backends and the interface changes.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/hostnet"
	"github.com/jeoul/jeoul/internal/iface"
	"github.com/jeoul/jeoul/internal/neigh"
)

// ErrStopped is what Reload returns when the controller does not run.
var ErrStopped = errors.New("the balancer is not running")

// DataPlane forwards packets.
type DataPlane interface {
	// Apply puts a state in place of the one before, whole or not at all.
	Apply(datapath.State) error
	Attachments() []datapath.Attachment
	Counters() (datapath.Counters, error)
}

// Neighbours finds the MAC addresses of backends, and follows them.
type Neighbours interface {
	// Watch replaces the set of addresses that are looked for.
	Watch([]netip.Addr) error
	Entries() map[netip.Addr]neigh.Entry
	Changes() <-chan struct{}
}

// Host changes the addresses of the host's interfaces, and remembers what it
// changed in order to take it back.
type Host interface {
	AddAddress(link string, addr netip.Addr, opt hostnet.AddressOptions) error
	RemoveAddress(link string, addr netip.Addr) error
	// Events are what was done since the last call.
	Events() []hostnet.Event
}

// Link is the interface that packets arrive on.
type Link interface {
	State() (iface.State, error)
	Changes() <-chan struct{}
}

// Options are the parts that a controller works with. They stay the caller's
// to close, after Run has returned.
type Options struct {
	DataPlane  DataPlane
	Neighbours Neighbours
	Host       Host
	Link       Link
	// Announce tells the segment that a VIP is here.
	Announce func(link string, vip netip.Addr) error
	Log      *slog.Logger
	// Version is shown in the status.
	Version string
}

// How long things take.
const (
	// settle lets changes that come together be applied together.
	settle = 20 * time.Millisecond
	// resolveBound is how long a reload waits for the MAC addresses of backends
	// that are new in it; without that, one that replaces them all would leave
	// the service without any for a moment.
	resolveBound = 3 * time.Second
	// silence is how long a backend may stay without a MAC before that is said.
	silence = 3 * time.Second
	// Announcements may be lost, so each is made a few times.
	announceTimes = 3
	announceEvery = time.Second
	// What failed is tried again after retryFirst, then twice as long each time
	// up to retryMost.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// Controller runs one balancer.
type Controller struct {
	opt      Options
	requests chan *reload
	started  time.Time
	reloads  sync.Mutex // held by the one Reload under way
	stopped  chan struct{}

	// What follows is written by Start and Run only, and read by Status too.
	mu         sync.Mutex
	cfg        *config.Config
	link       iface.State
	applied    map[netip.Addr]string // MAC addresses in the data plane, as 6 bytes
	generation uint64
	failed     error // of the last attempt to bring things in order
	refused    error // of the last reload
	refusedAt  time.Time

	// What follows is the loop's own.
	pending  *reload
	stale    bool // the data plane needs its state again, even if it is the same
	due      bool // the settle timer runs
	retry    time.Duration
	announce int                 // announcements still to make
	silent   map[netip.Addr]bool // backends whose silence was said
	timers   timers
}

// timers are all stopped until something arms them.
type timers struct{ settle, pending, announce, retry, silence *time.Timer }

func newTimers() timers {
	stopped := func() *time.Timer {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return t
	}
	return timers{stopped(), stopped(), stopped(), stopped(), stopped()}
}

// New returns a controller for a configuration. Nothing happens before Start.
func New(opt Options, cfg *config.Config) *Controller {
	return &Controller{
		opt:      opt,
		cfg:      cfg,
		requests: make(chan *reload),
		stopped:  make(chan struct{}),
		started:  time.Now(),
		timers:   newTimers(),
		silent:   map[netip.Addr]bool{},
	}
}

// Start checks the configuration against the interface, attaches the data plane
// and puts the VIPs on the interface. Backends are found later, in Run; until
// then their services drop packets under a name of their own. After an error,
// close the parts in order to take back what was done.
func (c *Controller) Start() error {
	state, err := c.opt.Link.State()
	if err != nil {
		return err
	}
	c.setLink(state)
	if err := checkLink(c.cfg, state).Err(); err != nil {
		return err
	}
	if err := c.opt.Neighbours.Watch(backendAddresses(c.cfg)); err != nil {
		return err
	}
	// The data plane comes before the VIPs: a packet of a connection that has
	// outlived our last run would otherwise reach the kernel, which knows the
	// VIP and no such connection, and resets it.
	if err := c.apply(c.cfg); err != nil {
		return err
	}
	if err := c.addVIPs(c.link, vips(c.cfg)); err != nil {
		return err
	}
	c.welcome()
	return nil
}

// welcome says what was started, and arms what Run needs first.
func (c *Controller) welcome() {
	attachment := c.opt.DataPlane.Attachments()[0] // one way for all interfaces
	c.opt.Log.Info(fmt.Sprintf("balancing on %s in %s", c.link.Name, attachment), "why", attachment.Reason)
	c.describe(c.cfg)
	c.tellMoves(nil)
	if !c.link.Up {
		c.opt.Log.Warn(downMessage(c.link.Name))
	}
	c.announceVIPs()
	c.timers.silence.Reset(silence)
	c.soon() // neighbours may have been found meanwhile
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
		case <-c.opt.Neighbours.Changes():
			c.soon()
		case <-c.opt.Link.Changes():
			c.soon()
		case <-c.timers.settle.C:
			c.due = false
			if err := c.reconcile(); err != nil {
				c.finish()
				return err
			}
		case <-c.timers.retry.C:
			c.soon()
		case r := <-c.requests:
			c.begin(r)
		case <-c.timers.pending.C:
			c.commit()
		case <-c.timers.announce.C:
			c.announceOnce()
		case <-c.timers.silence.C:
			c.reportSilent()
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

// reconcile brings the interface and the data plane in order. Its error is one
// that ends the balancer; others are said, and tried again later.
func (c *Controller) reconcile() error {
	state, err := c.opt.Link.State()
	if errors.Is(err, iface.ErrGone) {
		return fmt.Errorf("%w: %s; there is nothing left to balance on, start again when it is back", iface.ErrGone, c.link.Name)
	}
	if err == nil {
		err = errors.Join(c.followLink(state), c.followNeighbours())
	}
	c.settleFailure(err)
	if c.pending != nil && c.resolved(c.pending.cfg) {
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

// followLink takes up a new state of the interface.
func (c *Controller) followLink(state iface.State) error {
	before := c.link
	c.setLink(state)
	moved := state.MAC.String() != before.MAC.String()
	switch {
	case before.Up && !state.Up:
		c.opt.Log.Warn(downMessage(state.Name))
	case !before.Up && state.Up:
		c.opt.Log.Info(fmt.Sprintf("interface %s is up", state.Name))
	}
	if moved {
		c.opt.Log.Info(fmt.Sprintf("interface %s has a new MAC address: %s → %s", state.Name, before.MAC, state.MAC))
		c.stale = true // the data plane holds the old one
	}
	if !state.Up {
		// Switching an interface off takes its IPv6 addresses away; they could
		// be put back now, but not announced.
		return nil
	}
	lost := missing(state, vips(c.cfg))
	if err := c.addVIPs(state, lost); err != nil {
		return err
	}
	if moved || !before.Up || len(lost) > 0 {
		c.announceVIPs()
	}
	return nil
}

func downMessage(name string) string {
	return fmt.Sprintf("interface %s is down: no packets until it is up", name)
}

func (c *Controller) setLink(state iface.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = state
}

// followNeighbours gives the data plane the MAC addresses that are known now,
// if they are others than it has.
func (c *Controller) followNeighbours() error {
	known := macs(c.cfg, c.opt.Neighbours.Entries())
	if !c.stale && maps.Equal(known, c.applied) {
		return nil
	}
	before := c.applied
	if err := c.apply(c.cfg); err != nil {
		return err
	}
	c.tellMoves(before)
	return nil
}

// announceVIPs tells the segment where the VIPs are, a few times.
func (c *Controller) announceVIPs() {
	c.announce = announceTimes
	c.timers.announce.Reset(0)
}

func (c *Controller) announceOnce() {
	if c.announce--; c.announce < 0 || !c.link.Up {
		return
	}
	for _, vip := range vips(c.cfg) {
		if err := c.opt.Announce(c.link.Name, vip); err != nil {
			c.opt.Log.Warn(fmt.Sprintf("announcing %s on %s: %v", vip, c.link.Name, err))
		}
	}
	if c.announce > 0 {
		c.timers.announce.Reset(announceEvery)
	}
}

// addVIPs puts addresses on the interface, all of them or none.
func (c *Controller) addVIPs(link iface.State, addrs []netip.Addr) error {
	for i, vip := range addrs {
		// A VIP is never the source of what the host itself sends: a backend
		// that was probed from it would answer to itself. Nor is it looked for
		// elsewhere first: the backends have it too, and keep quiet about it.
		err := c.opt.Host.AddAddress(link.Name, vip, hostnet.AddressOptions{ScopeHost: true, Deprecated: true, NoDAD: true})
		if err != nil {
			c.removeVIPs(link, addrs[:i])
			return err
		}
	}
	c.logHost()
	return nil
}

// removeVIPs takes addresses off the interface. One that stays is said here and
// removed at the end with the rest.
func (c *Controller) removeVIPs(link iface.State, addrs []netip.Addr) {
	for _, vip := range addrs {
		if err := c.opt.Host.RemoveAddress(link.Name, vip); err != nil {
			c.opt.Log.Warn(err.Error())
		}
	}
	c.logHost()
}

func (c *Controller) logHost() {
	for _, event := range c.opt.Host.Events() {
		c.opt.Log.Info(event.String())
	}
}
