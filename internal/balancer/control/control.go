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
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/outliers"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// ErrStopped is what Reload returns when the controller does not run.
var ErrStopped = loop.ErrStopped

// ErrLeaving is the cause of a context that ends Run where another process is to go on with
// what this one has made.
var ErrLeaving = errors.New("the process ends, and its work goes on")

// DataPlane forwards packets.
type DataPlane interface {
	// Apply puts a state in place of the one before, whole or not at all.
	Apply(lb.State) error
	Attachments() []lb.Attachment
	Counters() (lb.Counters, error)
	// BackendCounts has what Counters has of packets of some services' backends.
	BackendCounts(services map[lb.ServiceKey]bool) (map[lb.BackendKey]lb.BackendCount, error)
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
	// Use has paths lead by the interfaces of these names, and no others.
	Use([]string) error
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
	// RenewAddresses has those of ours stay for opt.Lifetime more, or for good.
	RenewAddresses(link string, addrs []netip.Addr, opt hostnet.AddressOptions) error
	// KeepAddresses takes all of ours off all links, but these on this one.
	KeepAddresses(link string, addrs []netip.Addr) error
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
	// Look returns the states of interfaces that may be followed or not.
	Look(names []string) ([]iface.State, error)
	// Follow replaces the interfaces.
	Follow(names []string) error
	Changes() <-chan struct{}
}

// ReplyHops confirms the routers and the clients that replies are sent to.
type ReplyHops interface {
	// Problems says which of them do not answer. It may be called from any goroutine.
	Problems() []string
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
	// Checks ask the backends whether they serve; nil: a configuration that has checks is
	// refused.
	Checks Checks
	// Discovery finds backends of services that have an origin; nil: none is found.
	Discovery Discovery
	// Routes tells routers of the VIPs; nil: none is told, whatever the configuration says.
	Routes Routes
	// Role says whether the VIPs are this balancer's to hold; nil: they are.
	Role Role
	// Election is the Role of a configuration that shares its VIPs by VRRP; it holds them for one that does not;
	// nil: there is none, and Role holds.
	Election Election
	Log      *slog.Logger
	// Cgroup checks the directory of a control group, or finds that of the root where its path is
	// empty; nil: a configuration that serves clients on this host is refused.
	Cgroup func(path string) (string, error)
	// Proxy runs the services of mode proxy; nil: a configuration that has any is refused.
	Proxy Proxy
	// ReadFile reads the files of certificates; nil: os.ReadFile.
	ReadFile func(path string) ([]byte, error)
	// Identity is told of another first interface; nil: nothing goes by it.
	Identity Identity
	// Joined has a value once this balancer knows of the flows that others remember: before that, VIPs that are announced,
	// or taken, would break connections of others. nil: it waits for nothing.
	Joined <-chan struct{}
	// Hasten has other balancers tell this one of flows as soon as may be, for a while: packets are about to come here that
	// went there. It does not wait for that; nil: none is asked.
	Hasten func()
	// ReplyHops knows which next hops of replies do not answer; nil: nothing is known of them.
	ReplyHops ReplyHops
	// TakesOver: the data plane forwards already, as a process before has left it.
	TakesOver bool
	// Memory keeps what operations have changed; nil: it ends with the process.
	Memory Memory
	// Ejections keeps which backends are ejected; nil: it ends with the process.
	Ejections Memory
	// Drained keeps that the balancer is drained; nil: it ends with the process.
	Drained Memory
	// Clock reads the machine's clocks, by which what is in a Memory is timed; nil: clock.Read.
	Clock func() clock.Reading
	// Files are told of files that cannot be written, and write them again; nil: there are none.
	Files *durable.Files
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
	// silence is how long a backend may stay without a path before that is logged.
	silence = 3 * time.Second
	// announceEvery is how far apart rounds of announcements begin at least.
	announceEvery = time.Second
	// announceAtOnce is how many announcements are made in one go, and announcePause
	// how long they are apart: 10,000 of them in a second are no load for a segment,
	// and leave time for what else there is to do.
	announceAtOnce = 500
	announcePause  = 50 * time.Millisecond
	// addressesStay is for how long addresses that balancers share stay without the process, at least, and stayRenewed how
	// often they are renewed: a process that is late twice loses none.
	addressesStay = 6 * time.Second
	stayRenewed   = 2 * time.Second
	// What failed is tried again after retryFirst, then twice as long each time
	// up to retryMost.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// announceAt are the times at which VIPs are announced after what makes it necessary. Frames get lost, other balancers
// answer for the VIPs until they have heard of this one, and a port passes nothing while a switch listens and learns:
// for 30 s by the spanning tree protocol's timers, and for 50 s after a failure elsewhere (IEEE 802.1D-2004 clause
// 17.14).
var announceAt = [...]time.Duration{0, announceEvery, 2 * time.Second, 5 * time.Second,
	15 * time.Second, 35 * time.Second, 55 * time.Second}

// Controller runs one balancer.
type Controller struct {
	opt     Options
	loop    *loop.Loop
	started time.Time
	reloads sync.Mutex // held by the one Reload under way

	// What follows is written by Start and Run only, and read by Status too.
	mu         sync.Mutex
	view       *view // before Start, without paths
	history    []operation
	links      []iface.State
	missing    []string // interfaces that went, and that the data plane is not attached to again; replaced as a whole
	generation uint64
	spared     map[lb.BackendKey]string // why backends that fail are not ejected
	outages    outages                  // has a lock of its own
	scarcity   scarcity                 // likewise
	failed     error                    // of the last attempt to bring things in order
	refused    error                    // of the last reload
	refusedAt  time.Time
	// undiscovered is why what was discovered is not in force.
	undiscovered error

	// What follows is the loop's own, but that Status reads the sets and what is refused of them.
	discovering discovering
	discovery   *loop.Source
	interfaces  *loop.Source
	paths       *loop.Source
	checks      *loop.Source
	// atStart are those that are read at the start: of the paths and the backends' health nothing is known before they
	// are watched.
	atStart   []*loop.Source
	actuators []actuator // in the order in which they bring in what is new
	vips      *vips      // one of them
	routes    *routes    // likewise
	election  *election  // likewise
	tasks     tasks
	pending   *reload
	// unsettled: an interface went or came back, and not all that follows from that is done.
	unsettled  bool
	remade     []string // interfaces that came back, by name, of which the settings are not made yet
	passive    bool     // others hold the VIPs
	joining    string   // why the VIPs are left to others yet: see arrival
	arrival    arrival
	news       map[int]*paths.Entry         // what was read of the paths, and is not in the view
	verdicts   map[lb.BackendKey]lb.Verdict // likewise of the health checks
	recheck    bool                         // the verdicts may be others, whatever Checks.Changed says
	ill        illnesses                    // what was logged of the backends' health
	reconciled time.Time                    // when a reconcile ended last
	stale      bool                         // the data plane needs its state again, even if it is the same
	relearn    bool                         // the paths may have changed, whatever Changed says
	wait       time.Duration                // until what failed is tried again
	memory     lb.MemoryPlan                // as it was logged last
	bare       map[lb.ServiceKey]bool       // services of which it was logged that they have no backend
	lost       map[string]uint64            // frames of XDP, by interface, as it was logged last
	notKept    string                       // why the data plane does not outlive the process, as it was logged last
	unwritten  map[string]durable.Fault     // files that cannot be written, by path, as it was logged last
	unsaved    error                        // why the operations in force may end with the process; nil: they do not
	// ports is nil where the data plane does not count them.
	ports    portCounter
	proxy    proxying
	outliers *outliers.Engine
	// absentees are backends that were discovered and are not any more.
	absentees absentees
	kept      []outliers.Remembered // what was saved of it last
}

// tasks are what the loop does at a time.
type tasks struct{ reconcile, deadline, pending, retry, silence, losses, keep, illness, steps, judged, outliers, discover, renew, routes *loop.Task }

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
	c := &Controller{
		opt:     opt,
		view:    &view{layout: newLayout(cfg)},
		loop:    loop.New(),
		started: time.Now(),
		bare:    map[lb.ServiceKey]bool{},
		lost:    map[string]uint64{},

		outliers:    outliers.New(),
		absentees:   absentees{},
		discovering: discovering{wanted: cfg},
		proxy:       proxying{stale: opt.Proxy != nil},
	}
	c.plan()
	c.vips = &vips{host: opt.Host, tell: opt.Announce, log: opt.Log, changed: c.logHost, turn: c.loop.Quiet(func() { c.vips.announceSome() }), renewal: c.loop.Quiet(func() { c.vips.renewSome() })}
	c.routes = &routes{c: c}
	c.election = &election{c: c}
	c.actuators = []actuator{c.routes, c.election, interfaces{c}, settings{c}, c.vips, proxies{c}, plane{c}}
	c.interfaces = c.loop.Follow("the interfaces", opt.Links.Changes(), c.takeLinks, c.soon)
	c.paths = c.loop.Follow("the paths", opt.Paths.Changes(), c.takePaths, c.soon)
	c.checks = c.loop.Follow("the health checks", opt.Checks.Changes(), c.takeVerdicts, c.promptly)
	c.discovery = c.loop.Follow("the discovered backends", opt.Discovery.Changes(), c.takeDiscovered, c.discoverSoon)
	c.atStart = []*loop.Source{c.interfaces, c.discovery}
	if opt.Election != nil {
		c.opt.Role = opt.Election
	}
	if c.opt.Role != nil {
		c.atStart = append(c.atStart, c.loop.Follow("the role", c.opt.Role.Changes(), c.takeRole, c.promptly))
	}
	c.joinLater()
	if opt.Proxy != nil {
		c.loop.On(opt.Proxy.Changes(), c.tellProxy)
	}
	if opt.Files != nil {
		c.loop.On(opt.Files.Changes(), c.tellStorage)
	}
	if plane, ok := opt.DataPlane.(portCounter); ok {
		c.ports = plane
		c.loop.On(plane.Counted(), c.watchPool)
	}
	return c
}

// plan fills in the tasks.
func (c *Controller) plan() {
	c.tasks = tasks{
		reconcile: c.loop.Task(c.reconcile),
		deadline: c.loop.Quiet(func() {
			if err := c.expire(); err != nil {
				c.settleFailure(err)
			}
		}),
		pending:  c.loop.Quiet(c.commit),
		retry:    c.loop.Quiet(c.distrust),
		silence:  c.loop.Quiet(c.reportSilent),
		losses:   c.loop.Quiet(c.tellLosses),
		keep:     c.loop.Quiet(c.keepAgain),
		illness:  c.loop.Quiet(c.tellUntold),
		outliers: c.loop.Quiet(c.judgeOutliers),
		discover: c.loop.Quiet(c.discover),
		renew:    c.loop.Quiet(c.renew),
		routes:   c.loop.Quiet(func() { c.routes.follow(c.view) }),
		judged:   c.loop.Quiet(c.judgedInTime),
		steps: c.loop.Quiet(func() {
			if err := c.advance(); err != nil {
				c.settleFailure(err)
			}
		}),
	}
}

// Start checks the configuration against the machine, attaches the data plane
// and puts the VIPs on the interface. Backends are found later, in Run, whether or
// not there is a route to them yet; until one is found, its service drops packets
// under a name of its own. After an error,
// close the parts in order to take back what was done.
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
	warnings, err := c.check(l, c.links)
	if err != nil {
		return err
	}
	odd, err := c.checkProxy(l)
	if err != nil {
		return err
	}
	warnings = append(warnings, odd...)
	if err := c.opt.Paths.Watch(l.watched); err != nil {
		return err
	}
	c.opt.Checks.Watch(l.checking())
	c.opt.Discovery.Watch(l.cfg.Services)
	c.awaitPaths(l)
	overlays, tallies := c.recall(l)
	c.recallOutliers()
	first := newView(l, overlays, c.known(l, c.links, nil), c.verdictsFor(l), c.ejectionsOf(l), nil, time.Now())
	first.links, first.tallies = c.links, tallies
	first.passive = c.passive
	first.joining = c.arrive(first)
	if err := c.begin(first); err != nil {
		return err
	}
	c.dropAddresses(first)
	c.armDeadline()
	c.awaitOthers()
	c.welcome(warnings)
	return nil
}

// begin puts the first desired state in force. What was done before an error is taken back when
// the parts are closed.
//
// The data plane comes before the VIPs: a packet of a connection that has
// outlived our last run would otherwise reach the kernel, which knows the
// VIP and no such connection, and resets it. Forwarding comes last: until then
// the kernel drops the replies that are not rewritten yet. The proxy listens at the VIPs, so it follows them.
func (c *Controller) begin(first *view) error {
	nothing := &view{layout: newLayout(&config.Config{})}
	for _, a := range []actuator{plane{c}, c.vips, proxies{c}, settings{c}, interfaces{c}} {
		bring, _ := a.change(nothing, first)
		for _, s := range bring {
			if err := s.do(); err != nil {
				return err
			}
		}
	}
	return nil
}

// welcome says what was started, and arms what Run needs first.
func (c *Controller) welcome(warnings yamlfile.Problems) {
	c.tellAttachments(nil)
	c.describe(nil, warnings)
	c.tellMemory()
	c.tellMoves(nil, c.view.all())
	c.warned()
	c.tellHealth(&view{verdicts: make([][]verdict, len(c.view.verdicts))}, c.view.failing())
	c.tellAllServing()
	tellWithdrawn(c.opt.Log, &view{layout: newLayout(&config.Config{})}, c.view)
	c.tellDown(nil)
	c.vips.announceAll()
	if c.vips.lifetime > 0 || c.opt.TakesOver {
		c.vips.renewAll()
	}
	c.routes.begin(c.view)
	c.election.follow(c.view)
	c.tasks.losses.In(lossEvery)
	c.tasks.keep.In(keepEvery)
	c.tasks.silence.In(silence)
	c.armOutliers()
	c.paths.MarkStale() // some may have been found meanwhile
	c.soon()
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

// Run follows changes until the context ends, which is no error. Call it once, after Start.
func (c *Controller) Run(ctx context.Context) error {
	return c.loop.Run(ctx, func() { c.finish(ctx) })
}

// Responds returns when the loop has come by: what hangs in it stops every change. Errors:
// ErrStopped, the context's.
func (c *Controller) Responds(ctx context.Context) error { return c.loop.Call(ctx, func() {}) }

// soon arms a reconcile. Later changes do not put it off: a backend that
// flaps must not keep the others' from being applied.
func (c *Controller) soon() {
	c.tasks.reconcile.Within(settle)
}

// promptly arms a reconcile at once, or as late as lets what comes within settle of the last one
// be applied together. It is for what is whole as it comes: a verdict is, and each millisecond
// sends new flows to a backend that fails; the kernel tells of a route in pieces.
func (c *Controller) promptly() {
	c.tasks.reconcile.Within(max(0, time.Until(c.reconciled.Add(settle))))
}

// reconcile reads the sources that may have changed, and puts the desired state in force that
// follows. Its error is one that ends the balancer; others are logged, and tried again later.
func (c *Controller) reconcile() error {
	c.news, c.verdicts = nil, nil
	err := c.loop.Refresh()
	c.settleFailure(errors.Join(err, c.vips.mend(), c.converge(), c.expire(), c.advance()))
	if c.pending != nil && c.resolved(c.pending) {
		c.commit()
	}
	c.reconciled = time.Now()
	return nil
}

// distrust has all sources read again.
func (c *Controller) distrust() {
	c.loop.MarkStale()
	c.soon()
}

// settleFailure notes what is wrong now, says what is new in that, and arms
// another try.
func (c *Controller) settleFailure(err error) {
	before := c.failed
	c.mu.Lock()
	c.failed = err
	c.mu.Unlock()
	if err == nil {
		c.wait = 0
		c.tasks.retry.Off()
		if before != nil {
			c.opt.Log.Info("recovered: what had failed is done")
		}
		return
	}
	if before == nil || before.Error() != err.Error() {
		c.opt.Log.Error(oneLine(err))
	}
	c.wait = min(max(2*c.wait, retryFirst), retryMost)
	c.tasks.retry.In(c.wait)
}

// takeLinks reads the interfaces' states.
func (c *Controller) takeLinks() error {
	states, err := c.opt.Links.States()
	if err != nil {
		return err
	}
	before := c.links
	c.setLinks(states)
	for _, now := range states {
		if at := indexOfLink(before, now); at >= 0 {
			c.followLink(before[at], now)
		}
	}
	c.vips.follow(states[0])
	return c.settleLinks()
}

// followLink says what is new about an interface.
func (c *Controller) followLink(before, now iface.State) {
	switch {
	case now.Gone || before.Gone || !sameLink(before, now):
		c.followAbsence(before, now)
		return
	case before.Up && !now.Up:
		c.opt.Log.Warn(downMessage(now.Name))
	case !before.Up && now.Up:
		c.opt.Log.Info(fmt.Sprintf("interface %s is up", now.Name))
		c.tasks.silence.In(silence) // a backend that is silent now has no excuse
	}
	if moved(before, now) {
		c.opt.Log.Info(fmt.Sprintf("interface %s has a new MAC address: %s → %s", now.Name, before.MAC, now.MAC))
		c.stale = true // the data plane holds the old one
	}
	if !slices.Equal(before.Subnets, now.Subnets) {
		c.stale = true // who is near may be another
	}
}

// sameLink says whether two states are of one interface.
func sameLink(a, b iface.State) bool { return a.Index == b.Index }

func moved(before, now iface.State) bool { return before.MAC.String() != now.MAC.String() }

// tellDown says which interfaces are down that were not there before.
func (c *Controller) tellDown(before []iface.State) {
	for _, link := range c.links {
		if !link.Up && !link.Gone && !slices.ContainsFunc(before, func(o iface.State) bool { return sameLink(o, link) }) {
			c.opt.Log.Warn(downMessage(link.Name))
		}
	}
}

func downMessage(name string) string {
	return fmt.Sprintf("interface %s is down: no packets until it is up", name)
}

func (c *Controller) setLinks(states []iface.State) {
	c.mu.Lock()
	c.links = states
	c.mu.Unlock()
	c.opt.Checks.CutOff(cutOff(states))
}

// cutOff says why no backend can be reached, or "". While one interface of several is up, it leads
// to some backends, and which of them the checks would reach is the routes' to say.
func cutOff(links []iface.State) string {
	switch {
	case len(links) == 0 || slices.ContainsFunc(links, func(l iface.State) bool { return l.Up }):
		return ""
	case len(links) == 1:
		return fmt.Sprintf("interface %s is down", links[0].Name)
	}
	return fmt.Sprintf("interfaces %s are down", listLinks(links))
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

// takePaths reads what is new about the paths to the backends of the view.
func (c *Controller) takePaths() error {
	entries, all := c.opt.Paths.Changed()
	if all || c.relearn {
		entries = c.opt.Paths.Entries()
	}
	c.news = c.view.news(c.currentLinks(), entries, all || c.relearn)
	return nil
}

// converge puts the desired state in force that follows from what the sources say, if it is
// another than the one that is.
func (c *Controller) converge() error {
	before, now := c.view, time.Now()
	next, judged := before.withVerdicts(c.verdicts, now)
	if !c.stale && len(c.news)+len(judged) == 0 && before.passive == c.passive && before.joining == c.joining {
		c.recheck = false
		return nil
	}
	next = next.withPaths(c.news, now)
	next.links = c.currentLinks()
	next.passive, next.joining = c.passive, c.joining
	if err := c.become(next); err != nil {
		// What is new will not be told again.
		c.relearn = true
		c.paths.MarkStale()
		c.recheck = true
		c.checks.MarkStale()
		return err
	}
	c.relearn, c.recheck = false, false
	c.judged()
	c.tellHealth(before, judged)
	numbers := slices.Sorted(maps.Keys(c.news))
	c.tellMoves(before, slices.Values(numbers))
	c.tellServices(before, numbers)
	for i := range c.view.touched(numbers) {
		c.tellServing(i)
	}
	return nil
}

// forward makes the host forward what the views' services need, on their interfaces, and
// nothing else. The VIPs are on the first one's first.
func (c *Controller) forward(views ...*view) error {
	var four, six bool
	var names []string
	for _, v := range views {
		for _, name := range linkNames(v.links) {
			if !slices.Contains(names, name) && !c.absentLink(name) {
				names = append(names, name)
			}
		}
		for _, s := range v.cfg.Services {
			four = four || s.Mode.Translates() && s.VIP.Is4()
			six = six || s.Mode.Translates() && s.VIP.Is6()
		}
	}
	err := c.opt.Host.Forward(names, four, six)
	c.logHost()
	return err
}

func (c *Controller) logHost() {
	changes := tale{log: c.opt.Log.Info}
	for _, event := range c.opt.Host.Events() {
		changes.say(events.About{}, "%s", event)
	}
	changes.end("%d more changes to the host's network settings")
}
