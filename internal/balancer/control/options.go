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

// ErrLeaving is the cause of a context that ends Run because another process takes over.
var ErrLeaving = errors.New("the process ends, and its work goes on")

// DataPlane is the part of the data plane that a controller needs.
type DataPlane interface {
	// Apply replaces the data plane's state atomically: on an error the previous state stays in force.
	Apply(lb.State) error
	// Attachments returns the hooks in use, one entry per interface.
	Attachments() []lb.Attachment
	// Counters returns all counters since the data plane was opened.
	Counters() (lb.Counters, error)
	// CountersOf returns the counters of the given services and of their backends only.
	CountersOf(services map[lb.ServiceKey]bool) (lb.Counters, error)
	// BackendCounts returns the counters of the backends of the given services only.
	BackendCounts(services map[lb.ServiceKey]bool) (map[lb.BackendKey]lb.BackendCount, error)
}

// planner is a DataPlane that reports its memory.
type planner interface{ Memory() lb.MemoryPlan }

// portCounter is a DataPlane that counts the ports of full NAT's pool that are in use.
type portCounter interface {
	// FlowsCounted is signalled after each count of flows.
	FlowsCounted() <-chan struct{}
	PortsHeld([]lb.BackendKey) []uint32
}

// Paths resolves the path to each backend (route, next hop, MAC address), and follows its changes.
type Paths interface {
	// SetAddresses replaces the set of addresses whose paths are resolved. Known addresses keep their entries.
	SetAddresses([]netip.Addr) error
	// SetInterfaces replaces the set of interfaces that paths may use.
	SetInterfaces([]string) error
	// Lookup returns the present routes to addresses, without adding these to the resolved set.
	Lookup([]netip.Addr) (map[netip.Addr]paths.Route, error)
	// KnownRoutes returns the routes to the resolved set as they were looked up last. known is false where addresses
	// are another set, or where a route may have changed since.
	KnownRoutes(addresses []netip.Addr) (routes map[netip.Addr]paths.Route, known bool)
	// Entries returns the known path to each resolved address.
	Entries() map[netip.Addr]paths.Entry
	// Changed returns the entries that have changed since the last call. all: any entry may have changed, and the
	// caller reads Entries.
	Changed() (entries map[netip.Addr]paths.Entry, all bool)
	// Changes is signalled when Changed has entries to return.
	Changes() <-chan struct{}
}

// Host changes the network settings of the host, and records its changes in order to undo them.
type Host interface {
	vips.Host
	// RetainAddresses removes the balancer's addresses from all links, except addrs on link.
	RetainAddresses(link string, addrs []netip.Addr) error
	// EnableForwarding enables IP forwarding on links for the families that are true, and restores the other settings
	// that it had changed before.
	EnableForwarding(links []string, four, six bool) error
	// Sysctl reads a setting of the kernel.
	Sysctl(name string) (string, error)
	// Events returns the changes made to the host since the last call.
	Events() []hostnet.Event
}

// Links watches the state of the interfaces that the balancer is attached to.
type Links interface {
	// States returns the interfaces' states in the configuration's order; the first interface carries the VIPs.
	States() ([]iface.State, error)
	// Lookup returns the present states of any interfaces, without following them.
	Lookup(names []string) ([]iface.State, error)
	// SetInterfaces replaces the set of interfaces that are followed.
	SetInterfaces(names []string) error
	// Changes is signalled when States may return something else.
	Changes() <-chan struct{}
}

// ReplyHops verifies that the next hops of replies are reachable.
type ReplyHops interface {
	// Problems names the next hops that do not answer. It may be called from any goroutine.
	Problems() []string
}

// Options are the parts that a controller works with. The caller owns them, and closes them after Run has returned.
type Options struct {
	DataPlane DataPlane
	Paths     Paths
	Host      Host
	Links     Links
	// Announce sends gratuitous ARP or unsolicited neighbour advertisements for VIPs.
	Announce func(link string, vips ...netip.Addr) error
	// Checks runs the health checks; nil: a configuration that has checks is refused.
	Checks Checks
	// Discovery discovers the backends of services that have an origin; nil: none are discovered.
	Discovery Discovery
	// Routes announces VIPs to routers; nil: no VIP is announced, whatever the configuration says.
	Routes Routes
	// Role reports whether this balancer holds its VIPs; nil: it always does.
	Role Role
	// Election takes the place of Role, and shares the VIPs by VRRP where the configuration says so; nil: there is no
	// election, and Role decides.
	Election Election
	Log      *slog.Logger
	// Cgroup validates the directory of a control group, or returns that of the root where the path is empty; nil: a
	// configuration that serves clients on this host is refused.
	Cgroup func(path string) (string, error)
	// Proxy runs the services of mode proxy; nil: a configuration that has any is refused.
	Proxy Proxy
	// ReadFile reads the files of certificates; nil: os.ReadFile.
	ReadFile func(path string) ([]byte, error)
	// Identity records changes of the first interface; nil: nothing is recorded.
	Identity Identity
	// Joined is signalled once this balancer has received the flows of the other members: announcing or taking the VIPs
	// before that would break their connections. nil: the controller does not wait.
	Joined <-chan struct{}
	// RequestEarly asks the other members to send new flows to this balancer early, for a while, because their packets
	// are about to be routed here. It does not block; nil: this balancer has no other members.
	RequestEarly func()
	// ReplyHops reports the next hops of replies that do not answer; nil: none are monitored.
	ReplyHops ReplyHops
	// TakesOver: the data plane was left by the previous process, and is forwarding already.
	TakesOver bool
	// Memory stores the overlays of operations; nil: they end with the process.
	Memory Memory
	// Ejections stores the ejections of backends; nil: they end with the process.
	Ejections Memory
	// Drained stores whether the balancer is drained; nil: a drain ends with the process.
	Drained Memory
	// Clock reads the machine's clocks, which convert the times in a Memory; nil: clock.Read.
	Clock func() clock.Reading
	// Files reports files that cannot be written, and retries them; nil: there are none.
	Files *durable.Files
	// Version is shown in the status.
	Version string
}

// Checks runs health checks against backends.
type Checks interface {
	// Unsupported returns why this host cannot run a check, and the remedy; "" if it can.
	Unsupported(lb.Check) string
	// SetTargets replaces all targets. A target that stays keeps its verdict.
	SetTargets([]lb.CheckTarget)
	// UpdateTargets is SetTargets by differences: put replaces the targets of its backends, and the backends in removed
	// that put does not have are no longer checked.
	UpdateTargets(put []lb.CheckTarget, removed []lb.BackendKey)
	// SetOffline suspends failing verdicts while the host has no link, for the given reason: a check that fails then
	// says nothing about its backend. "" resumes them, of endpoints that do not answer some seconds later.
	SetOffline(why string)
	// Changes is signalled when Changed has entries to return.
	Changes() <-chan struct{}
	// Changed returns the verdicts that have changed since the last call.
	Changed() map[lb.BackendKey]lb.Verdict
	// Verdicts returns all verdicts.
	Verdicts() map[lb.BackendKey]lb.Verdict
	// Verdict returns the verdict on one backend; false if the backend is not checked.
	Verdict(lb.BackendKey) (lb.Verdict, bool)
	// CheckNow runs the checks of one target at once, reports every step, and does not affect the verdict. The only
	// error is the context's.
	CheckNow(context.Context, lb.CheckTarget, func(lb.CheckStep)) ([]lb.CheckResult, error)
}

// Discovered backends come into force as a configuration does: by a reload, which the loop itself requests. Such a
// reload waits for one that is in progress, and is never refused because of a discovered backend: unusable ones are
// left out and logged.

// Discovery discovers the backends of services.
type Discovery interface {
	// SetServices replaces the services whose backends are discovered. A service that stays keeps its sets.
	SetServices([]lb.Service)
	// Sets returns the discovered sets of the services' origins, also of services that SetServices does not have.
	Sets([]lb.Service) []lb.Discovered
	// Changes is signalled when Sets may have changed.
	Changes() <-chan struct{}
}

// Routes announces VIPs to routers.
type Routes interface {
	// PreviouslyAnnounced returns the VIPs that the previous process's speaker still announces.
	PreviouslyAnnounced() []netip.Addr
	// SetDesired replaces the routes to announce. It does not wait until they are announced: see WaitAnnounced.
	SetDesired(ops.Routes)
	// WaitAnnounced waits until the desired routes are announced, or until the timeout.
	WaitAnnounced(time.Duration)
	// FillStatus writes the state of the peers into a status.
	FillStatus(*ops.BGP)
}

// Role is the role of this balancer among those that share its VIPs.
type Role interface {
	// Holds reports whether this balancer holds its VIPs now.
	Holds() (bool, error)
	// Changes is signalled after Holds may have changed.
	Changes() <-chan struct{}
}

// Election is a Role that the balancers of a segment elect.
type Election interface {
	Role
	// HoldingUndecided reports that the VIPs are on the interface although the election has no result yet: the previous
	// process, or a configuration without VRRP, has put them there. Another balancer may hold them, so they are not
	// announced.
	HoldingUndecided() bool
	// Announcements counts the requests to announce the VIPs to the neighbours again, besides when this balancer
	// becomes active; Changes is signalled after each.
	Announcements() uint64
	// SetDesired sets how this balancer takes part in the election. It does not wait for the result.
	SetDesired(ops.Election)
	// FillStatus writes the state of the election into a status.
	FillStatus(*ops.VRRP)
}

// Services of mode proxy are part of every view: operations, checks, backups, slow start and the panic threshold apply
// to their backends. The proxy engine applies the result instead of the data plane, which passes their packets to the
// kernel.

// Proxy runs the services of mode proxy: it is the part of proxy.Engine that a controller needs, and its methods are
// documented there. The owner of the engine detaches or stops it.
type Proxy interface {
	Validate(ctx context.Context, d proxy.Desired) error
	Apply(ctx context.Context, d proxy.Desired) error
	Stats(ctx context.Context) (proxy.Stats, error)
	State() proxy.State
	Changes() <-chan struct{}
	RenewCertificates(ctx context.Context) error
}

// Identity registers the interfaces by which other balancers on the host, and later commands, find this process: the
// interface that carries its VIPs.
type Identity interface {
	// Register adds an interface. On an error nothing has changed.
	Register(link string) error
	// Unregister removes an interface.
	Unregister(link string) error
}

// Memory stores data, such as the overlays of operations, for the next process.
type Memory interface {
	// Load returns the data saved last; no data, and no error, if nothing was saved.
	Load() ([]byte, error)
	// Save replaces the data saved last.
	Save([]byte) error
}

// ErrStopped is Reload's error when the controller does not run.
var ErrStopped = loop.ErrStopped
