// SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// eachKind calls do for each way to be a client.
func eachKind(do func(name string, f family, protocol lb.Protocol, connected bool)) {
	for _, f := range families {
		do(f.name+" TCP", f, lb.TCP, true)
		do(f.name+" UDP connected", f, lb.UDP, true)
		do(f.name+" UDP unconnected", f, lb.UDP, false)
	}
}

// all are the services of both families and protocols.
func all(scheduler lb.Scheduler) (list []lb.RoutedService) {
	for _, ipv6 := range []bool{false, true} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			list = append(list, service(ipv6, protocol, scheduler))
		}
	}
	return list
}

// TestServed: clients of every kind are served by the backends in turn, see the VIP, and are counted for
// as long as their socket is open.
func TestServed(t *testing.T) {
	r := newTestBalancer(t)
	r.apply(all(lb.RoundRobin)...)
	eachKind(func(kind string, f family, protocol lb.Protocol, connected bool) {
		key := lb.ServiceKey{VIP: f.vip(), Port: port, Protocol: protocol}
		seen := map[string]bool{}
		var open []*client
		for range backends {
			c, word, err := r.open(f, protocol, connected)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if want := netip.AddrPortFrom(f.vip(), port); connected && c.peer() != want {
				t.Errorf("%s: its peer is %s, not %s", kind, c.peer(), want)
			}
			seen[word] = true
			open = append(open, c)
		}
		if len(seen) != backends {
			t.Errorf("%s: served by %v", kind, seen)
		}
		if active := r.counters().Services[key].Active; active != backends {
			t.Errorf("%s: %d are active", kind, active)
		}
		for _, c := range open {
			c.close()
		}
		if active := r.counters().Services[key].Active; active != 0 {
			t.Errorf("%s: %d are active after all were closed", kind, active)
		}
	})
	c := r.counters()
	if c.Local.Sockets != 0 || r.event("served") != 9*backends {
		t.Errorf("%d sockets, %d served", c.Local.Sockets, r.event("served"))
	}
	var connections uint64
	for _, b := range c.Backends {
		connections += b.Connections
	}
	if connections != 9*backends {
		t.Errorf("%d connections are counted", connections)
	}
}

// TestSchedulers: each scheduler serves; one that fails over, the first backend.
func TestSchedulers(t *testing.T) {
	r := newTestBalancer(t)
	for _, scheduler := range lb.Schedulers {
		r.apply(service(false, lb.TCP, scheduler))
		seen := map[string]int{}
		for range 12 {
			_, word, err := r.open(families[0], lb.TCP, true)
			if err != nil {
				t.Fatalf("%s: %v", scheduler, err)
			}
			seen[word]++
		}
		switch scheduler {
		case lb.SourceHash, lb.Failover:
			if len(seen) != 1 || scheduler == lb.Failover && seen[name(1)] != 12 {
				t.Errorf("%s: %v", scheduler, seen)
			}
		case lb.RoundRobin, lb.WeightedRoundRobin, lb.LeastConnections, lb.WeightedLeastConnections:
			if len(seen) != backends || seen[name(1)] != 4 {
				t.Errorf("%s: %v", scheduler, seen)
			}
		}
	}
}

// TestNoBackend: without a backend a client is refused at once, of whatever kind.
func TestNoBackend(t *testing.T) {
	r := newTestBalancer(t)
	var empty []lb.RoutedService
	for _, s := range all(lb.Maglev) {
		for n := 1; n <= backends; n++ {
			s.Observed = s.Observed.With(n-1, lb.Observed{Unhealthy: "dead"})
		}
		s.Checks.OnDown = lb.MoveFlows
		empty = append(empty, s)
	}
	r.apply(empty...)
	eachKind(func(kind string, f family, protocol lb.Protocol, connected bool) {
		if _, word, err := r.open(f, protocol, connected); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %q, %v", kind, word, err)
		}
	})
	if n := r.event("refused_no_backend"); n != 9 {
		t.Errorf("%d refused", n)
	}
}

// TestLeftAlone: other ports of the VIP, sockets that are bound to a VIP, and those of other network namespaces reach
// the same hosts as without a balancer.
func TestLeftAlone(t *testing.T) {
	r := newTestBalancer(t)
	r.apply(service(false, lb.TCP, lb.RoundRobin))
	r.listen(netip.AddrPortFrom(vip4, 81), "own")
	c := r.socket(families[0], unix.SOCK_STREAM)
	if err := c.connect(81); err != nil {
		t.Fatal(err)
	}
	if word, err := c.read(); word != "own" {
		t.Errorf("another port: %q, %v", word, err)
	}
	r.listen(netip.AddrPortFrom(vip4, port), "own")
	c = r.socket(families[0], unix.SOCK_STREAM)
	if err := errors.Join(unix.Bind(c.fd, c.sockaddr(vip4, 0)), c.connect(port)); err != nil {
		t.Fatal(err)
	}
	if word, err := c.read(); word != "own" {
		t.Errorf("bound to the VIP: %q, %v", word, err)
	}
	elsewhere := &testBalancer{t: t, ns: testenv.Namespace(t)}
	if err := elsewhere.socket(families[0], unix.SOCK_STREAM).connect(port); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("in another network namespace: %v", err)
	}
	if n := r.event("served"); n != 0 {
		t.Errorf("%d were served", n)
	}
}

// TestMoves: the datagrams of an unconnected socket go to one backend, and to another when that is gone, is unhealthy,
// or comes back under another address; late answers of the previous come from the VIP.
func TestMoves(t *testing.T) {
	r := newTestBalancer(t) // verified once, for all of them
	for _, f := range families {
		s := service(f.ipv6, lb.UDP, lb.RoundRobin)
		r.apply(s)
		moved := r.event("moved")
		c, first, err := r.open(f, lb.UDP, false)
		if err != nil {
			t.Fatal(f.name, err)
		}
		for range 3 {
			if word, from, err := c.query(); word != first || from.Addr() != f.vip() {
				t.Fatalf(f.name+": %q from %s, %v; the first was %q", word, from, err, first)
			}
		}
		was := int(first[1] - '0')
		s = without(s, was)
		r.apply(s)
		second, from, err := c.query()
		if err != nil || second == first || from.Addr() != f.vip() {
			t.Fatalf(f.name+": %q from %s, %v; that is gone", second, from, err)
		}
		if n := r.event("moved") - moved; n != 1 {
			t.Errorf(f.name+": %d moved", n)
		}
		s.Checks.OnDown = lb.MoveFlows
		for i := range s.Backends {
			if s.Backends[i].Name == second {
				s.Observed = s.Observed.With(i, lb.Observed{Unhealthy: "dead"})
			}
		}
		r.apply(s)
		if third, _, err := c.query(); err != nil || third == first || third == second {
			t.Errorf(f.name+": %q, %v", third, err)
		}
		if active := r.counters().Services[s.Key()].Active; active != 1 {
			t.Errorf(f.name+": %d are active", active)
		}
		c.close()
	}
}

// TestDrain: a backend that drains gets no new socket, and keeps those that it has.
func TestDrain(t *testing.T) {
	r := newTestBalancer(t)
	s := service(false, lb.UDP, lb.RoundRobin)
	r.apply(s)
	var on1 *client
	for on1 == nil {
		c, word, err := r.open(families[0], lb.UDP, false)
		if err != nil {
			t.Fatal(err)
		}
		if word == name(1) {
			on1 = c
		}
	}
	s = changed(s, 1, func(b *lb.Backend) { b.Draining = true })
	r.apply(s)
	for range 2 * backends {
		if _, word, err := r.open(families[0], lb.UDP, true); err != nil || word == name(1) {
			t.Errorf("%q, %v", word, err)
		}
	}
	if word, _, err := on1.query(); word != name(1) {
		t.Errorf("%q, %v", word, err)
	}
}

// TestLimits: a cap, a rate and a backend's upper threshold hold for sockets, and a socket counts until it is closed.
func TestLimits(t *testing.T) {
	r := newTestBalancer(t)
	s := service(false, lb.TCP, lb.RoundRobin)
	s.Limits.Connections = 1
	r.apply(s)
	c, _, err := r.open(families[0], lb.TCP, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, word, err := r.open(families[0], lb.TCP, true); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("beyond the cap: %q, %v", word, err)
	}
	c.close()
	if _, _, err := r.open(families[0], lb.TCP, true); err != nil {
		t.Errorf("after the first was closed: %v", err)
	}
	s = service(true, lb.TCP, lb.RoundRobin)
	for n := 1; n <= backends; n++ {
		s = changed(s, n, func(b *lb.Backend) { b.Upper = 1 })
	}
	r.apply(s)
	seen := map[string]bool{}
	for range backends {
		_, word, err := r.open(families[1], lb.TCP, true)
		if err != nil {
			t.Fatal(err)
		}
		seen[word] = true
	}
	if _, word, err := r.open(families[1], lb.TCP, true); len(seen) != backends || !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%v, and then %q, %v", seen, word, err)
	}
	if n := r.event("refused_connection_limit"); n != 2 {
		t.Errorf("%d were refused for a limit", n)
	}
	s = service(false, lb.UDP, lb.RoundRobin)
	s.Limits.Rate = 1
	r.apply(s)
	if _, _, err := r.open(families[0], lb.UDP, true); err != nil {
		t.Fatal(err)
	}
	before := r.event("refused_rate_limit")
	testenv.Eventually(t, waitTimeout, "a rate of 1 a second to be met", func() bool {
		_, _, _ = r.open(families[0], lb.UDP, true)
		return r.event("refused_rate_limit") > before
	})
}

// TestClients: lists of clients go by the address that a socket is bound to, or else by the VIP, and so does
// persistence.
func TestClients(t *testing.T) {
	r := newTestBalancer(t) // verified once, for both
	for _, f := range families[:2] {
		s := service(f.ipv6, lb.UDP, lb.RoundRobin)
		s.Deny = []netip.Prefix{netip.PrefixFrom(address(f.ipv6, 1), f.vip().BitLen())}
		s.Persistence = lb.Persistence{Timeout: time.Hour, Prefix: uint8(f.vip().BitLen())}
		r.apply(s)
		denied := r.event("refused_denied")
		bound := func(to netip.Addr) (string, error) {
			c := r.socket(f, unix.SOCK_DGRAM)
			if err := unix.Bind(c.fd, c.sockaddr(to, 0)); err != nil {
				return "", err
			}
			word, _, err := c.query()
			return word, err
		}
		if word, err := bound(address(f.ipv6, 1)); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: denied: %q, %v", f.name, word, err)
		}
		if n := r.event("refused_denied") - denied; n != 1 {
			t.Errorf("%s: %d denied", f.name, n)
		}
		for _, from := range []func() (string, error){
			func() (string, error) { return bound(address(f.ipv6, 2)) },
			func() (string, error) { _, word, err := r.open(f, lb.UDP, true); return word, err },
		} {
			first, err := from()
			if err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
			for range 4 {
				if word, err := from(); word != first {
					t.Errorf("%s: %q, %v; its client went to %s before", f.name, word, err, first)
				}
			}
		}
	}
}

// TestReconnect: a socket that is connected again is counted where it is now.
func TestReconnect(t *testing.T) {
	r := newTestBalancer(t)
	s := service(false, lb.UDP, lb.RoundRobin)
	r.apply(s)
	c, _, err := r.open(families[0], lb.UDP, true)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.connect(port); err != nil {
			t.Fatal(err)
		}
	}
	if active := r.counters().Services[s.Key()].Active; active != 1 {
		t.Errorf("%d are active", active)
	}
	if err := unix.Connect(c.fd, c.sockaddr(address(false, 1), backendPort)); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(r.counters().Services[s.Key()].Active, c.peer()),
		fmt.Sprint(0, " ", address(false, 1), ":", backendPort); got != want {
		t.Errorf("connected to a backend itself: %s, not %s", got, want)
	}
}

// TestStranded: a UDP socket that is connected to a backend which is gone is ended, at once: its program gets an error,
// connects again, and is served by another. Others stay.
func TestStranded(t *testing.T) {
	r := newTestBalancer(t) // verified once, for all of them
	for _, f := range families {
		s := service(f.ipv6, lb.UDP, lb.RoundRobin)
		r.apply(s)
		ended := r.event("ended")
		on := map[string]*client{}
		for len(on) < backends {
			c, word, err := r.open(f, lb.UDP, true)
			if err != nil {
				t.Fatal(f.name, err)
			}
			on[word] = c
		}
		if w := r.counters().Local.Warning; strings.Contains(w, "bpf_sock_destroy") {
			kernel, err := btf.LoadKernelSpec()
			if err == nil {
				_, err = kernel.AnyTypeByName("bpf_sock_destroy")
			}
			if errors.Is(err, btf.ErrNotFound) || errors.Is(err, btf.ErrNotSupported) {
				t.Skip(w) // before Linux 6.5, or without BTF
			}
			t.Fatal(w, err)
		}
		s = without(s, 1)
		r.apply(s)
		if word, _, err := on[name(1)].receive(); !errors.Is(err, unix.ECONNABORTED) {
			t.Errorf(f.name+": who waits for a backend that is gone hears %q, %v", word, err)
		}
		if _, err := unix.Write(on[name(1)].fd, []byte("?")); !errors.Is(err, unix.EDESTADDRREQ) {
			t.Errorf(f.name+": it sends to a backend that is gone: %v", err)
		}
		if n := r.event("ended") - ended; n != 1 {
			t.Fatalf(f.name+": %d were ended; %s", n, r.counters().Local.Warning)
		}
		if active := r.counters().Services[s.Key()].Active; active != backends-1 {
			t.Errorf(f.name+": %d are active", active)
		}
		if err := on[name(1)].connect(port); err != nil {
			t.Fatal(f.name, err)
		}
		for word, c := range on {
			if _, err := unix.Write(c.fd, []byte("?")); err != nil {
				t.Errorf(f.name+": the one on %s: %v", word, err)
			}
			if got, from, err := c.receive(); err != nil || got == name(1) || word != name(1) && got != word ||
				from.Addr() != f.vip() {
				t.Errorf(f.name+": the one on %s hears %q from %s, %v", word, got, from, err)
			}
		}
		for _, c := range on {
			c.close()
		}
	}
}
