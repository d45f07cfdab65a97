// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/host/neigh"
)

// world stands for everything around a controller, and notes the steps taken on it in one list, so that tests can see
// the order.
type world struct {
	t   *testing.T
	mu  sync.Mutex
	log bytes.Buffer
	did []string

	// applyErr, addErr and the others make the next calls fail.
	applyErr   error
	addErr     map[netip.Addr]error
	watchErr   error
	forwardErr error
	followErr  map[string]error // by the first interface

	// routes are the routes to addresses that are not on the link of eth9, known those that were looked up last; nil:
	// they may have changed. asked counts lookups.
	routes      map[netip.Addr]paths.Route
	known       map[netip.Addr]paths.Route
	asked       int
	entries     map[netip.Addr]paths.Entry
	changed     map[netip.Addr]paths.Entry // since the controller asked
	pathChanges chan struct{}

	// links has eth9, and after it the interfaces that a test adds.
	links       []iface.State
	others      []iface.State // that are not followed
	linkErr     error
	linkChanges chan struct{}

	events []hostnet.Event // that the controller has not asked for
	// forwards names the families that the host forwards: "IPv4", "IPv6", both or none.
	forwards   string
	forwarding []string // the interfaces
	attached   []string
	pool       lb.Pool // of the last state
	state      lb.State

	counters lb.Counters
	countErr error // of BackendCounts
	// countersErr is the error of Counters.
	countersErr error
	// attachment replaces that of eth9 in TC, and xdpLost the losses that its driver counts.
	attachment *lb.Attachment
	// moves are the attachments that result when the data plane is asked for a hook.
	moves   map[lb.Hook]lb.Attachment
	xdpLost uint64
	counted chan struct{}
	// lossDelay is how long the driver takes to answer, and countersRead when the counters were read last.
	lossDelay    time.Duration
	countersRead time.Time
}

func newWorld(t *testing.T) *world {
	return &world{
		t:           t,
		addErr:      map[netip.Addr]error{},
		routes:      map[netip.Addr]paths.Route{},
		entries:     map[netip.Addr]paths.Entry{},
		changed:     map[netip.Addr]paths.Entry{},
		pathChanges: make(chan struct{}, 1),
		linkChanges: make(chan struct{}, 1),
		counted:     make(chan struct{}, 1),
		links: []iface.State{{
			Name: "eth9", Index: 9, Up: true, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 0xff},
			Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.254/24")},
			Subnets:   []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		}},
	}
}

// routeTo returns the kernel's route; the caller holds the lock.
func (w *world) routeTo(addr netip.Addr) paths.Route {
	if r, other := w.routes[addr]; other {
		return r
	}
	r := paths.Route{Interface: "eth9", Index: 9, MTU: 1500, Local: netip.MustParseAddr("192.0.2.254")}
	if addr.Is6() {
		r.Local = netip.MustParseAddr("2001:db8::254")
	}
	return r
}

func (w *world) note(format string, args ...any) {
	w.did = append(w.did, fmt.Sprintf(format, args...))
}

// done returns the steps taken since the last call.
func (w *world) done() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	did := w.did
	w.did = nil
	return did
}

// expect waits until nothing more happens now, and compares.
func (w *world) expect(want ...string) {
	w.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, w.done()); diff != "" {
		w.t.Errorf("done (-want +got):\n%s", diff)
	}
}

// logged reports whether a line of the log holds all of the words.
func (w *world) logged(words ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.log.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return true
		}
	}
	return false
}

func (w *world) expectLog(words ...string) {
	w.t.Helper()
	synctest.Wait()
	if !w.logged(words...) {
		w.t.Errorf("no line of the log has %q:\n%s", words, w.log.String())
	}
}

// Write takes the log.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// Apply notes the state as "apply web: web01=1 web02=-", with "~" after a backend
// that is draining, "!" after one that is unhealthy, "!e" after one that is ejected, "^" after one on standby and "*20"
// after one of weight 20.
func (w *world) Apply(state lb.State) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, s := range state.Services {
		fmt.Fprintf(&b, " %s:", s.Name)
		for i, backend := range s.Backends {
			mac := "-"
			if len(s.Paths[i].MAC) > 0 {
				mac = fmt.Sprint(s.Paths[i].MAC[5])
			}
			fmt.Fprintf(&b, " %s=%s", backend.Name, mac)
			if backend.Draining {
				b.WriteString("~")
			}
			observed := s.Observed.Of(i)
			if observed.Unhealthy != "" {
				b.WriteString("!")
			}
			if observed.Ejected {
				b.WriteString("e")
			}
			if observed.Standby {
				b.WriteString("^")
			}
			if backend.Weight != 1 {
				fmt.Fprintf(&b, "*%d", backend.Weight)
			}
		}
	}
	w.pool, w.state = state.Pool, state
	if w.applyErr != nil {
		w.note("fail to apply%s", b.String())
		return w.applyErr
	}
	w.note("apply%s", b.String())
	w.attached = state.Interfaces
	if moved, ok := w.moves[state.Hook]; ok {
		w.attachment = &moved
	}
	return nil
}

func (w *world) Attachments() []lb.Attachment {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attachment != nil {
		return []lb.Attachment{*w.attachment}
	}
	if len(w.attached) > 1 || len(w.attached) == 1 && w.attached[0] != "eth9" {
		var all []lb.Attachment
		for _, name := range w.attached {
			all = append(all, lb.Attachment{Interface: name, Hook: lb.HookTC, Driver: "veth",
				Reason: "the configuration asks for it"})
		}
		return all
	}
	return []lb.Attachment{{Interface: "eth9", Hook: lb.HookTC, Driver: "veth",
		Reason: "the configuration asks for it"}}
}

func (w *world) Counters() (lb.Counters, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.countersRead = time.Now()
	return w.counters, w.countersErr
}

// CountersOf has no other services than those asked for, though they have counters.
func (w *world) CountersOf(services map[lb.ServiceKey]bool) (lb.Counters, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counters := lb.Counters{Backends: maps.Clone(w.counters.Backends), Services: maps.Clone(w.counters.Services)}
	maps.DeleteFunc(counters.Backends, func(b lb.BackendKey, _ lb.BackendCount) bool { return !services[b.Service] })
	maps.DeleteFunc(counters.Services, func(key lb.ServiceKey, _ lb.ServiceCount) bool { return !services[key] })
	return counters, w.countersErr
}

func (w *world) BackendCounts(services map[lb.ServiceKey]bool) (map[lb.BackendKey]lb.BackendCount, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := map[lb.BackendKey]lb.BackendCount{}
	for key, count := range w.counters.Backends {
		if services[key.Service] {
			counts[key] = count
		}
	}
	return counts, w.countErr
}

func (w *world) FlowsCounted() <-chan struct{} { return w.counted }

func (w *world) PortsHeld(keys []lb.BackendKey) (held []uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		held = append(held, w.counters.Backends[key].PortsHeld)
	}
	return held
}

// hold sets how many ports of the pool the flows of backends hold, and lets them be counted.
func (w *world) hold(ports map[lb.BackendKey]uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counters.Backends = map[lb.BackendKey]lb.BackendCount{}
	for key, held := range ports {
		w.counters.Backends[key] = lb.BackendCount{PortsHeld: held}
	}
	signal(w.counted)
}

// fakePaths and the others below split the world into the parts that a controller
// knows, whose methods have the same names.
type fakePaths struct{ *world }

func (n fakePaths) SetAddresses(addrs []netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note("watch %s", list(addrs))
	return n.watchErr
}

func (n fakePaths) SetInterfaces(names []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note("use %s", strings.Join(names, " "))
	return nil
}

func (n fakePaths) KnownRoutes([]netip.Addr) (map[netip.Addr]paths.Route, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.known), n.known != nil
}

func (n fakePaths) Lookup(addrs []netip.Addr) (map[netip.Addr]paths.Route, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	routes := map[netip.Addr]paths.Route{}
	for _, addr := range addrs {
		routes[addr] = n.routeTo(addr)
	}
	return routes, nil
}

func (n fakePaths) Entries() map[netip.Addr]paths.Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.entries)
}

func (n fakePaths) Changed() (map[netip.Addr]paths.Entry, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := n.changed
	n.changed = map[netip.Addr]paths.Entry{}
	return changed, false
}

func (n fakePaths) Changes() <-chan struct{} { return n.pathChanges }

type host struct{ *world }

func (h host) AddAddresses(link string, addrs []netip.Addr, opt hostnet.AddressOptions) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, addr := range addrs {
		if err := h.addErr[addr]; err != nil {
			h.note("fail to add %s", addr)
			h.drop(addrs[:i]...)
			return err
		}
		h.note("add %s%s", addr, on(link))
		h.events = append(h.events, hostnet.Event{Subject: addr.String(), Old: "absent", New: "present"})
		h.links = slices.Clone(h.links)
		if at := slices.IndexFunc(h.links, func(s iface.State) bool { return s.Name == link }); at >= 0 {
			h.links[at].Addresses = append(slices.Clone(h.links[at].Addresses), netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return nil
}

// RenewAddresses notes only those that stay for a while.
func (h host) RenewAddresses(link string, addrs []netip.Addr, opt hostnet.AddressOptions) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, addr := range addrs {
		if opt.Lifetime > 0 {
			h.note("renew %s%s for %s", addr, on(link), opt.Lifetime)
		}
	}
	return nil
}

// on names an interface, unless it is the usual one.
func on(link string) string {
	if link == "eth9" {
		return ""
	}
	return " on " + link
}

// EnableForwarding notes changes only, as the host makes them only.
func (h host) EnableForwarding(links []string, four, six bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var families []string
	if four {
		families = append(families, "IPv4")
	}
	if six {
		families = append(families, "IPv6")
	}
	want := strings.Join(families, " and ")
	moved := want != "" && !slices.Equal(links, h.forwarding)
	if h.forwarding = links; len(links) == 0 {
		h.forwarding = nil
	}
	switch {
	case want == h.forwards && !moved:
		return nil
	case h.forwardErr != nil && want != "":
		h.note("fail to forward %s", want)
		return h.forwardErr
	case want == "":
		h.note("forward nothing")
	default:
		h.note("forward %s on %s", want, strings.Join(links, " "))
	}
	h.forwards = want
	return nil
}

func (h host) Sysctl(name string) (string, error) {
	if name != view.PortRange {
		return "", errors.New("no such sysctl")
	}
	return "32768 60999", nil
}

func (h host) RemoveAddresses(link string, addrs []netip.Addr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, addr := range addrs {
		h.note("remove %s%s", addr, on(link))
	}
	h.drop(addrs...)
	return nil
}

// RetainAddresses counts the addresses on the link as ours.
func (h host) RetainAddresses(link string, addrs []netip.Addr) error {
	h.mu.Lock()
	var have []netip.Addr
	for _, p := range h.links[0].Addresses {
		if p.IsSingleIP() {
			have = append(have, p.Addr())
		}
	}
	h.mu.Unlock()
	return h.RemoveAddresses(link, view.Without(have, addrs))
}

// Events are one for each address that was put there.
func (h host) Events() []hostnet.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	return events
}

type links struct{ *world }

func (l links) States() ([]iface.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.links), l.linkErr
}

func (l links) Lookup(names []string) (states []iface.State, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		at := slices.IndexFunc(slices.Concat(l.links, l.others), func(s iface.State) bool { return s.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("interface %q: %w: `ip link` lists those there are", name, iface.ErrNotFound)
		}
		states = append(states, slices.Concat(l.links, l.others)[at])
	}
	return states, nil
}

func (l links) SetInterfaces(names []string) error {
	l.mu.Lock()
	if err := l.followErr[names[0]]; err != nil {
		l.note("fail to follow %s", strings.Join(names, " "))
		l.mu.Unlock()
		return err
	}
	l.note("follow %s", strings.Join(names, " "))
	l.mu.Unlock()
	states, err := l.Lookup(names)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others = slices.DeleteFunc(slices.Concat(l.links, l.others), func(s iface.State) bool {
		return slices.Contains(names, s.Name)
	})
	l.links = states
	return err
}

func (l links) Changes() <-chan struct{} { return l.linkChanges }

func (l links) XDPLost() []uint64 {
	time.Sleep(l.lossDelay)
	l.mu.Lock()
	defer l.mu.Unlock()
	return []uint64{l.xdpLost}
}

// lose sets the driver's count of lost frames.
func (w *world) lose(frames uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.xdpLost = frames
}

// drop takes addresses off the interface.
func (w *world) drop(addrs ...netip.Addr) {
	w.links = slices.Clone(w.links)
	w.links[0].Addresses = slices.DeleteFunc(slices.Clone(w.links[0].Addresses), func(p netip.Prefix) bool {
		return slices.Contains(addrs, p.Addr())
	})
}

func list(addrs []netip.Addr) string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return strings.Join(all, " ")
}

// found makes a next hop answer with a MAC that ends in last; 0 makes it fail.
func (w *world) found(addr string, last byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := paths.Entry{Address: netip.MustParseAddr(addr), Source: w.links[0].MAC}
	e.Route = w.routeTo(e.Address)
	switch {
	case e.Fault != paths.None:
		e.Neighbour, e.Reason = neigh.Unknown, e.Route.Reason
	case last > 0:
		e.Neighbour, e.MAC = neigh.Reachable, net.HardwareAddr{2, 0, 0, 0, 0, last}
	default:
		e.Neighbour, e.Reason = neigh.Failed, "does not answer"
	}
	w.entries[e.Address], w.changed[e.Address] = e, e
	signal(w.pathChanges)
}

// routed changes the route to an address.
func (w *world) routed(addr string, r paths.Route) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes[netip.MustParseAddr(addr)] = r
}

// changeLink changes the interface.
func (w *world) changeLink(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	signal(w.linkChanges)
}

// unrouted lets the link of eth9 lead to an address again.
func (w *world) unrouted(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.routes, netip.MustParseAddr(addr))
}

func (w *world) failApply(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applyErr = err
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// parse returns a checked configuration.
func parse(t *testing.T, file string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("f", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
