// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/vips"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// ErrLeaving is the cause of a context that ends Run where another process is to go on with the work of this one.
var ErrLeaving = errors.New("the process ends, and its work goes on")

// DataPlane forwards packets.
type DataPlane interface {
	// Apply puts a state in place of the one before, whole or not at all.
	Apply(lb.State) error
	// Attachments returns the hooks in use, an entry for each interface.
	Attachments() []lb.Attachment
	// Counters returns all counters since the data plane was opened.
	Counters() (lb.Counters, error)
	// BackendCounts returns the part of Counters that is of packets of these services' backends.
	BackendCounts(services map[lb.ServiceKey]bool) (map[lb.BackendKey]lb.BackendCount, error)
}

// planner is a DataPlane that knows its memory.
type planner interface{ Memory() lb.MemoryPlan }

// portCounter is a DataPlane that counts how much of full NAT's pool is in use.
type portCounter interface {
	// FlowsCounted has something to receive after each new count.
	FlowsCounted() <-chan struct{}
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
	// Entries returns the known path to each watched address.
	Entries() map[netip.Addr]paths.Entry
	// Changed returns the entries that have changed since the last call; all says that any may have, and Entries has
	// them.
	Changed() (entries map[netip.Addr]paths.Entry, all bool)
	// Changes is signalled when Changed has something.
	Changes() <-chan struct{}
}

// Host changes the network settings of the host, and remembers its changes in order to undo them.
type Host interface {
	vips.Host
	// RetainAddresses takes all of ours off all links, but these on this one.
	RetainAddresses(link string, addrs []netip.Addr) error
	// Forward makes the host a router on links for the families that are true.
	Forward(links []string, four, six bool) error
	// Sysctl reads a setting of the kernel.
	Sysctl(name string) (string, error)
	// Events returns the changes made since the last call.
	Events() []hostnet.Event
}

// Links are the interfaces that packets arrive on and leave by.
type Links interface {
	// States are in the configuration's order; the first carries the VIPs.
	States() ([]iface.State, error)
	// Lookup returns the states of interfaces that may be followed or not.
	Lookup(names []string) ([]iface.State, error)
	// SetNames replaces the interfaces.
	SetNames(names []string) error
	// Changes is signalled when States may return something else.
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
	// Announce announces VIPs to the segment (ARP, neighbour discovery).
	Announce func(link string, vips ...netip.Addr) error
	// Checks ask the backends whether they serve; nil: a configuration that has checks is
	// refused.
	Checks Checks
	// Discovery finds backends of services that have an origin; nil: none is found.
	Discovery Discovery
	// Routes announces VIPs to routers; nil: none is announced, whatever the configuration says.
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
	// Identity takes changes of the first interface; nil: nothing goes by it.
	Identity Identity
	// Joined has a value once this balancer knows of the flows that others remember: before that, VIPs that are
	// announced, or taken, would break connections of others. nil: it waits for nothing.
	Joined <-chan struct{}
	// RequestEarly has other balancers send this one new flows early, for a while: packets are about to come here that
	// went there. It does not wait for that; nil: none is asked.
	RequestEarly func()
	// ReplyHops knows which next hops of replies do not answer; nil: nothing is known of them.
	ReplyHops ReplyHops
	// TakesOver: the data plane forwards already, as the previous process has left it.
	TakesOver bool
	// Memory keeps the overlays of operations; nil: they end with the process.
	Memory Memory
	// Ejections keeps which backends are ejected; nil: it ends with the process.
	Ejections Memory
	// Drained keeps that the balancer is drained; nil: it ends with the process.
	Drained Memory
	// Clock reads the machine's clocks, by which times in a Memory are converted; nil: clock.Read.
	Clock func() clock.Reading
	// Files report files that cannot be written, and write them again; nil: there are none.
	Files *durable.Files
	// Version is shown in the status.
	Version string
}

// Checks ask backends whether they serve.
type Checks interface {
	// Unsupported returns the reason for which a check cannot be made on this host, and the remedy; "" if it can.
	Unsupported(lb.Check) string
	// Watch replaces the checks. A check that stays keeps its verdict.
	Watch([]lb.CheckTarget)
	// Amend is Watch by the differences: put takes the places of the checks of its backends, and removed are no longer
	// checked, but for those of put.
	Amend(put []lb.CheckTarget, removed []lb.BackendKey)
	// Offline says why this host reaches no backend, or with "" that it does. Until then no check that
	// fails is evidence.
	Offline(why string)
	// Changes is signalled when Changed has something.
	Changes() <-chan struct{}
	// Changed returns the verdicts that say something else than at the last call.
	Changed() map[lb.BackendKey]lb.Verdict
	// Verdicts returns all verdicts.
	Verdicts() map[lb.BackendKey]lb.Verdict
	// Verdict returns the verdict on one backend, if it is watched.
	Verdict(lb.BackendKey) (lb.Verdict, bool)
	// Ask checks a backend now, without consequence for its verdict, and reports every step.
	// The error is the context's.
	Ask(context.Context, lb.CheckTarget, func(lb.CheckStep)) ([]lb.CheckResult, error)
}

// Discovered backends enter as the configuration does, by a reload that the loop itself asks for. Such a change waits
// for one that is under way, and is never refused for a discovered backend: unusable ones are left out, and named.

// Discovery finds backends of services.
type Discovery interface {
	// Watch replaces the services for which backends are looked for. A service that stays keeps its sets.
	Watch([]lb.Service)
	// Sets returns the discovered sets of the origins of services, watched or not.
	Sets([]lb.Service) []lb.Discovered
	// Changes is signalled when Sets may return something else.
	Changes() <-chan struct{}
}

// Routes announces VIPs to routers.
type Routes interface {
	// Found are the VIPs that routers know of by the previous process.
	Found() []netip.Addr
	// Want sets the routes to announce from now on, and does not wait for that.
	Want(ops.Routes)
	// Await waits until the wanted routes are announced, for so long at most.
	Await(time.Duration)
	// Show fills in the state of the routers.
	Show(*ops.BGP)
}

// Role says whether this balancer holds its VIPs, where several balancers share them.
type Role interface {
	// Holds says whether this balancer holds its VIPs now.
	Holds() (bool, error)
	// Changes is signalled after Holds may have changed.
	Changes() <-chan struct{}
}

// Election is a Role that balancers of a segment agree on.
type Election interface {
	Role
	// HoldingUndecided says that the VIPs are held as the previous process has left them, or as before there was an
	// election. Another balancer may have them: they are not announced.
	HoldingUndecided() bool
	// Announcements counts how often the VIPs are to be announced to the neighbours again, beside when they are taken;
	// Changes is signalled after each.
	Announcements() uint64
	// Want sets how this balancer takes part from now on. It does not wait for the result.
	Want(ops.Election)
	// Show fills in the state of the election.
	Show(*ops.VRRP)
}

// Services of mode proxy are a part of every view as others are: operations, checks, backups, slow start and the panic
// threshold decide about their backends. The proxy engine carries that out, and not the data plane, which leaves
// packets for them to the kernel.

// Proxy runs the services of mode proxy: the part of proxy.Engine that a controller needs, whose methods are
// documented there. To leave and to stop the engine is for its owner.
type Proxy interface {
	Check(ctx context.Context, d proxy.Desired) error
	Apply(ctx context.Context, d proxy.Desired) error
	Stats(ctx context.Context) (proxy.Stats, error)
	State() proxy.State
	Changes() <-chan struct{}
	RenewCertificates(ctx context.Context) error
}

// Identity makes the process known to other balancers of the host that start later: by the interface that carries its
// VIPs.
type Identity interface {
	// Take has it known by another interface, too. On an error nothing has changed.
	Take(link string) error
	// Release has it not known by an interface any more.
	Release(link string) error
}

// Memory keeps data, such as the overlays of operations, for the next process.
type Memory interface {
	// Load returns the data saved last; nothing if nothing was saved.
	Load() ([]byte, error)
	// Save replaces the data saved last.
	Save([]byte) error
}

// ErrStopped is Reload's error when the controller does not run.
var ErrStopped = loop.ErrStopped
