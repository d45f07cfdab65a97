// SPDX-License-Identifier: Apache-2.0

// Package paths finds out how packets reach an address: by which interface, through which router or none, to which MAC
// address, from which address of the host, and how large they may be. It asks the kernel's routing, so that routes that
// people set up there hold for balanced packets too, and follows its changes.
//
// A lookup for each address, and not one for each packet in the data plane:
// there the backends are few, known before, and packets many.
package paths

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/neigh"
)

// errClosed is the error of a caller's mistake, not for a caller's test.
var errClosed = errors.New("used after Close")

// Entry is the known path to an address.
type Entry struct {
	Address netip.Addr
	Route
	// MAC is the next hop's, nil while it is unknown; not to be written to.
	MAC net.HardwareAddr
	// Source is the interface's own.
	Source net.HardwareAddr
	// Neighbour is the state of the next hop, one of those of package neigh;
	// neigh.Unknown where there is no route.
	Neighbour string
	// Reason says why there is no MAC, as in
	// "does not answer ARP requests"; "" if there is one.
	Reason string
}

// Path returns the entry for the data plane; without a MAC the zero Path.
func (e Entry) Path() lb.Path {
	if e.MAC == nil {
		return lb.Path{}
	}
	return lb.Path{Interface: e.Index, MAC: e.MAC, Source: e.Source, MTU: uint16(min(e.MTU, 1<<16-1)), Local: e.Local}
}

// port is an interface that packets may leave by.
type port struct {
	name     string
	index    int
	resolver *neigh.Resolver
	hops     []netip.Addr // those that the resolver looks for
	err      error        // why it does not look for all of them
	stop     func()       // ends the passing on of its signals
}

// Paths keeps the paths to a set of addresses. It is safe for concurrent use.
type Paths struct {
	ns            *namespace.Namespace
	netlink       *netlink.Handle
	routeGet      func(net.IP) ([]netlink.Route, error) // netlink's
	listeners     []int                                 // for ICMP errors of routers about packets that are too big
	events        *nl.NetlinkSocket
	ports         []*port // replaced as a whole, by who holds lookupMu and mu
	changes       chan struct{}
	routesChanged chan struct{}   // routing may have changed
	outdated      atomic.Bool     // and was not looked up since
	ctx           context.Context // until Close
	cancel        context.CancelFunc
	running       sync.WaitGroup

	// lookupMu is held while the kernel is asked for routes, which takes its time where there are many addresses.
	// It is taken before mu.
	lookupMu sync.Mutex

	mu      sync.Mutex
	watched []netip.Addr
	// complete: the state of the watched addresses was read without an error.
	complete   bool
	pathMTUs   map[netip.Addr]pathMTU
	routes     map[netip.Addr]Route
	sources    map[int]string    // MAC addresses of the ports, by index
	ownMACs    map[string]string // this host's interfaces by their MAC addresses
	byRouter   map[hop][]netip.Addr
	allChanged bool // Changed has to tell of all
	closed     bool
}

// hop is a router on an interface.
type hop struct {
	index int
	addr  netip.Addr
}

// New returns Paths that leave by the interfaces of these names, in the calling
// thread's network namespace. It works until Close. Errors: neigh.ErrNoLink,
// neigh.ErrNoRights.
func New(ctx context.Context, interfaces []string) (*Paths, error) {
	p := &Paths{pathMTUs: map[netip.Addr]pathMTU{}, changes: make(chan struct{}, 1), routesChanged: make(chan struct{},
		1)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	if err := p.open(interfaces); err != nil {
		p.cancel()
		p.release()
		return nil, err
	}
	p.running.Go(p.listen)
	p.running.Go(func() { p.follow(p.ctx) })
	return p, nil
}

func (p *Paths) open(interfaces []string) (err error) {
	if p.ns, err = namespace.Current(); err != nil {
		return err
	}
	if p.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	p.routeGet = p.netlink.RouteGet
	if p.listeners, err = openListeners(p.ns); err != nil {
		return err
	}
	for _, name := range interfaces {
		port, err := p.openPort(name)
		if err != nil {
			return err
		}
		p.ports = append(p.ports, port)
	}
	p.events, err = nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV6_IFINFO, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
		unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return fmt.Errorf("listen to changes of routing: %w", err)
	}
	return nil
}

// openPort opens an interface of the calling thread's namespace.
func (p *Paths) openPort(name string) (*port, error) {
	resolver, err := neigh.New(p.ctx, name)
	if err != nil {
		return nil, err
	}
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look for the interface %s: %w", name, err), resolver.Close())
	}
	ctx, stop := context.WithCancel(p.ctx)
	p.running.Go(func() { p.forwardSignals(ctx, resolver.Changes()) })
	return &port{name: name, index: nic.Index, resolver: resolver, stop: stop}, nil
}

// close ends the search for neighbours.
func (o *port) close() {
	o.stop()
	// It has nothing to say at the end.
	_ = o.resolver.Close()
}

// SetInterfaces has paths leave by the interfaces of these names from now on; those that stay keep the known state of
// their neighbours. On an error nothing has changed. Errors: neigh.ErrNoLink, neigh.ErrNoRights.
func (p *Paths) SetInterfaces(interfaces []string) error {
	p.lookupMu.Lock()
	defer p.lookupMu.Unlock()
	if p.isClosed() {
		return fmt.Errorf("find paths by %s: %w", strings.Join(interfaces, ", "), errClosed)
	}
	var next, made []*port
	err := p.ns.Do(func() error {
		for _, name := range interfaces {
			nic, err := net.InterfaceByName(name)
			if err != nil {
				// One that was deleted stays in the list, until there is one of its name again.
				if at := slices.IndexFunc(p.ports, func(o *port) bool { return o.name == name }); at >= 0 {
					next = append(next, p.ports[at])
					continue
				}
				return fmt.Errorf("look for the interface %s: %w", name, err)
			}
			there := p.portOf(nic.Index)
			if there == nil {
				if there, err = p.openPort(name); err != nil {
					return err
				}
				made = append(made, there)
			}
			next = append(next, there)
		}
		return nil
	})
	if err != nil {
		for _, port := range made {
			port.close()
		}
		return err
	}
	p.mu.Lock()
	before := p.ports
	p.ports, p.allChanged = next, true
	p.mu.Unlock()
	for _, port := range before {
		if !slices.Contains(next, port) {
			port.close()
		}
	}
	// A lookup that fails now is tried again later.
	if _, err := p.refresh(p.watched); err != nil {
		p.markOutdated()
	}
	signal(p.changes)
	return nil
}

// SetAddresses replaces the set of addresses. Addresses that stay keep their known paths. On an error the set may be in
// part the new one: call it again. Errors: neigh.ErrNoRights, those of reading the routes.
func (p *Paths) SetAddresses(addrs []netip.Addr) error {
	p.lookupMu.Lock()
	defer p.lookupMu.Unlock()
	if p.isClosed() {
		return fmt.Errorf("find the paths to the backends: %w", errClosed)
	}
	if p.isWatching(addrs) {
		return nil
	}
	if _, err := p.refresh(slices.Clone(addrs)); err != nil {
		return err
	}
	return p.failed()
}

// isWatching reports whether these addresses are watched, and nothing has failed or is to be read again: then their
// changes suffice. The caller holds lookupMu.
func (p *Paths) isWatching(addrs []netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complete && len(p.routesChanged) == 0 && slices.Equal(p.watched, addrs) && p.failed() == nil
}

// failed returns why the neighbours of an interface are not looked for; nil: they are, on all of them.
func (p *Paths) failed() error {
	for _, port := range p.ports {
		if port.err != nil {
			return port.err
		}
	}
	return nil
}

// KnownRoutes returns the routes to the watched addresses as they were looked up last. known is false where addrs are
// others, or the kernel has reported a change since, be the report read or not. Neighbours of the administrator's
// (nud permanent), of which nothing is reported, may have changed all the same.
func (p *Paths) KnownRoutes(addrs []netip.Addr) (routes map[netip.Addr]Route, known bool) {
	p.lookupMu.Lock()
	defer p.lookupMu.Unlock()
	if p.isClosed() || p.outdated.Load() || !p.isWatching(addrs) {
		return nil, false
	}
	unread := []unix.PollFd{{Fd: int32(p.events.GetFd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(unread, 0); n != 0 || err != nil {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.routes), true
}

// Lookup looks addresses up without watching them.
func (p *Paths) Lookup(addrs []netip.Addr) (map[netip.Addr]Route, error) {
	p.lookupMu.Lock()
	defer p.lookupMu.Unlock()
	if p.isClosed() {
		return nil, fmt.Errorf("find the routes to the backends: %w", errClosed)
	}
	routes, _, err := p.lookUp(addrs)
	return routes, err
}

func (p *Paths) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// refresh watches these addresses: it looks them up and has their next hops resolved. It reports whether a route or an
// interface's MAC changed; a resolver signals its findings itself. The caller holds lookupMu.
func (p *Paths) refresh(addrs []netip.Addr) (changed bool, err error) {
	p.outdated.Store(false) // before the kernel is asked: what is reported meanwhile may be of later
	routes, devices, err := p.lookUp(addrs)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched, p.complete = addrs, err == nil
	if err != nil {
		return false, err
	}
	sources := p.sourcesOf(devices)
	p.ownMACs = readOwnMACs(devices)
	changed = !maps.Equal(routes, p.routes) || !maps.Equal(sources, p.sources)
	p.routes, p.sources = routes, sources
	if changed {
		p.allChanged, p.byRouter = true, routersOf(routes)
	}
	for _, port := range p.ports {
		hops := p.nextHops(port.index)
		if port.err != nil || !slices.Equal(hops, port.hops) {
			port.hops, port.err = hops, port.resolver.SetAddresses(hops)
			p.allChanged = true
		}
	}
	return changed, nil
}

// routersOf returns which addresses are behind which router.
func routersOf(routes map[netip.Addr]Route) map[hop][]netip.Addr {
	behind := map[hop][]netip.Addr{}
	for addr, r := range routes {
		if r.Fault == None && r.Gateway.IsValid() {
			at := hop{r.Index, r.Gateway}
			behind[at] = append(behind[at], addr)
		}
	}
	return behind
}

// nextHops returns the neighbours on an interface that packets go to, each once.
func (p *Paths) nextHops(index int) []netip.Addr {
	var hops []netip.Addr
	seen := map[netip.Addr]bool{}
	for _, addr := range p.watched {
		r := p.routes[addr]
		if hop := r.nextHop(addr); r.Fault == None && r.Index == index && !seen[hop] {
			seen[hop] = true
			hops = append(hops, hop)
		}
	}
	return hops
}

// Entries returns the known path to each watched address.
func (p *Paths) Entries() map[netip.Addr]Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[int]map[netip.Addr]neigh.Entry{}
	failed := map[int]error{}
	for _, port := range p.ports {
		known[port.index], failed[port.index] = port.resolver.Entries(), port.err
	}
	entries := make(map[netip.Addr]Entry, len(p.watched))
	for _, addr := range p.watched {
		index := p.routes[addr].Index
		entries[addr] = p.entry(addr, known[index], failed[index])
	}
	return entries
}

// entry makes the entry of an address; the caller holds the lock.
func (p *Paths) entry(addr netip.Addr, neighbours map[netip.Addr]neigh.Entry, failed error) Entry {
	r := p.routes[addr]
	e := Entry{Address: addr, Route: r, Source: net.HardwareAddr(p.sources[r.Index]), Neighbour: neigh.Unknown,
		Reason: r.Reason}
	if r.Fault == None {
		e.resolve(neighbours, failed)
	}
	if name, own := p.ownMACs[string(e.MAC)]; own {
		// Frames to it would come back, or never leave.
		e.setReason(fmt.Sprintf("has the MAC address %s, which is that of this host's %s", e.MAC, name))
		e.MAC = nil
	}
	return e
}

// setReason sets the reason, of the address or of the router before it, for which packets do not reach it.
func (e *Entry) setReason(reason string) {
	e.Reason = reason
	if reason != "" && e.Gateway.IsValid() {
		e.Reason = fmt.Sprintf("is behind the router %s, which %s", e.Gateway, reason)
	}
}

// Changed returns the entries of addresses that may have changed since the last call; all says that any may have, and
// then Entries has it. It costs little for addresses of which nothing has changed.
func (p *Paths) Changed() (entries map[netip.Addr]Entry, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	entries, all = map[netip.Addr]Entry{}, p.allChanged
	p.allChanged = false
	for _, port := range p.ports {
		neighbours := port.resolver.Changed()
		if all {
			continue
		}
		for addr := range neighbours {
			for _, behind := range p.byRouter[hop{port.index, addr}] {
				entries[behind] = p.entry(behind, neighbours, port.err)
			}
			if r, there := p.routes[addr]; there && r.OnLink() && r.Index == port.index {
				entries[addr] = p.entry(addr, neighbours, port.err)
			}
		}
	}
	return entries, all
}

// resolve fills in the state of the next hop.
func (e *Entry) resolve(neighbours map[netip.Addr]neigh.Entry, failed error) {
	n, watched := neighbours[e.nextHop(e.Address)]
	switch {
	case !watched && failed != nil:
		e.Reason = "cannot be looked for: " + failed.Error()
		return
	case !watched:
		e.Reason = "was not asked yet"
		return
	}
	e.MAC, e.Neighbour = n.MAC, n.State
	e.setReason(n.Reason)
}

// Changes is signalled after Entries may have changed. Several changes may make
// one signal. It is never closed.
func (p *Paths) Changes() <-chan struct{} { return p.changes }

// Close stops following. Entries then stay as they are.
func (p *Paths) Close() error {
	p.lookupMu.Lock()
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	p.lookupMu.Unlock()
	if closed {
		return nil
	}
	p.cancel()
	p.events.Close()
	p.running.Wait()
	p.release()
	return nil
}

func (p *Paths) release() {
	for _, port := range p.ports {
		port.close()
	}
	for _, listener := range p.listeners {
		unix.Close(listener)
	}
	if p.netlink != nil {
		p.netlink.Close()
	}
	if p.ns != nil {
		p.ns.Close()
	}
}

// forwardSignals turns signals of a resolver into ours.
func (p *Paths) forwardSignals(ctx context.Context, from <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
			signal(p.changes)
		}
	}
}

// listen turns the kernel's messages into signals, until Close.
func (p *Paths) listen() {
	for {
		messages, _, err := p.events.Receive()
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case err == nil && len(messages) > 0 && !slices.ContainsFunc(messages, func(m syscall.NetlinkMessage) bool {
			return !iface.IsRenewal(m)
		}):
			// Addresses stay for longer: no path has changed.
		case err == nil, errors.Is(err, unix.ENOBUFS): // the latter: messages were lost
			p.markOutdated()
		default:
			return
		}
	}
}

// How often to look addresses up.
const (
	// debounce lets changes that come together be followed together.
	debounce = 50 * time.Millisecond
	// idleFactor bounds the cost of following where routes change all the time, as on a router: the time between
	// lookups is this many times their own.
	idleFactor = 20
	// recheckInterval is for changes behind routers that the kernel does not report: path MTUs that it learned. Of
	// neighbours there is hardly anything to learn, and there may be thousands.
	recheckInterval, recheckAllInterval = 30 * time.Second, 5 * time.Minute
	// retryInterval is for lookups that failed.
	retryInterval = time.Second
)

// follow looks all addresses up again when routing has changed, until ctx is
// done.
func (p *Paths) follow(ctx context.Context) {
	timer, readErrors := time.NewTimer(recheckInterval), time.NewTicker(icmpInterval)
	defer timer.Stop()
	defer readErrors.Stop()
	var earliest time.Time
	armed := false // for a change, and not only for the next time that it is due
	whole := time.Now().Add(recheckAllInterval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-readErrors.C:
			if p.readICMPErrors() {
				p.markOutdated()
			}
		case <-p.routesChanged:
			if !armed {
				armed = true
				timer.Reset(max(debounce, time.Until(earliest)))
			}
		case <-timer.C:
			began, wait := time.Now(), recheckInterval
			if armed || !began.Before(whole) || p.routesLearned() {
				wait = p.followOnce()
				whole = time.Now().Add(recheckAllInterval)
			}
			if wait == retryInterval {
				whole = began
			}
			armed = false
			earliest = time.Now().Add(idleFactor * time.Since(began))
			timer.Reset(wait)
		}
	}
}

// routesLearned reports whether the path to an address behind a router, or to one that is bounded for a while, has
// changed, or could not be looked up. To look up all addresses each time would be most of the work of an idle balancer
// of many backends.
func (p *Paths) routesLearned() bool {
	p.lookupMu.Lock()
	defer p.lookupMu.Unlock()
	p.mu.Lock()
	known, far := p.routes, slices.Concat(slices.Collect(maps.Values(p.byRouter))...)
	far = slices.AppendSeq(far, maps.Keys(p.pathMTUs))
	p.mu.Unlock()
	if len(far) == 0 {
		return false
	}
	routes, _, err := p.lookUp(far)
	if err != nil {
		return true
	}
	for addr, r := range routes {
		if was, watched := known[addr]; watched && was != r {
			return true
		}
	}
	return false
}

// followOnce returns when to look again, if nothing changes before.
func (p *Paths) followOnce() time.Duration {
	p.lookupMu.Lock()
	defer p.lookupMu.Unlock()
	changed, err := p.refresh(p.watched)
	if changed {
		signal(p.changes)
	}
	for _, port := range p.ports {
		err = errors.Join(err, port.err)
	}
	if err != nil {
		return retryInterval
	}
	return recheckInterval
}

// markOutdated has all addresses looked up again soon.
func (p *Paths) markOutdated() {
	p.outdated.Store(true)
	signal(p.routesChanged)
}

// signal makes c readable, if it is not yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
