// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	jeoulsubject "github.com/jeoul/jeoul/internal/weigh/bench/subject/jeoul"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// serversWithOneDead are the servers of a laboratory, of which the last refuses all connections from the start.
type serversWithOneDead struct {
	lab  *lab.Lab
	dead *e2e.Arrivals
	open map[net.Conn]string
	// balancers are the balancers that run has started.
	balancers []*balancer
	// stalled is set where skipIfStalled skips the test.
	stalled bool
}

// skipIfStalled skips the test if a balancer took the VIPs without verdicts: the machine delayed its health checks for
// longer than a balancer waits for them.
func (d *serversWithOneDead) skipIfStalled(t *testing.T) {
	t.Helper()
	for _, b := range d.balancers {
		if strings.Contains(b.log.String(), "the VIPs are taken without a verdict") {
			d.stalled = true
			t.Skipf("the machine kept the health checks of %s waiting for longer than a balancer waits for them",
				b.host.Name)
		}
	}
}

// newServersWithOneDead starts all servers but the last.
func newServersWithOneDead(t *testing.T, l *lab.Lab, client *lab.Host) *serversWithOneDead {
	t.Helper()
	last := len(l.Servers) - 1
	for _, server := range l.Servers[:last] {
		(&segment{Lab: l}).serve(t, server)
	}
	dead := l.Servers[last]
	err := dead.Do(func() error {
		a, err := agent.Start(agent.Options{VIPs: []netip.Addr{l.VIP4}, Dir: filepath.Join(dead.Dir, "state")})
		if err == nil {
			t.Cleanup(func() {
				if err := dead.Do(a.Close); err != nil && !errors.Is(err, lab.ErrClosed) {
					t.Error(err)
				}
			})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &serversWithOneDead{lab: l, dead: e2e.NoteArrivals(t, dead, client.IPv4), open: map[net.Conn]string{}}
}

// services are a service whose scheduler computes the backend and one that takes turns, whose checks find a dead
// backend within some seconds.
func (d *serversWithOneDead) services() (all []lb.Service) {
	check := lb.Check{Type: lb.CheckTCP, Interval: 500 * time.Millisecond, Fast: 500 * time.Millisecond,
		Timeout: 500 * time.Millisecond, Fall: 2, Rise: 1}
	for _, one := range []struct {
		port      uint16
		scheduler lb.Scheduler
	}{{hashPort, lb.Maglev}, {turnPort, lb.RoundRobin}} {
		s := lb.Service{Name: string(one.scheduler), VIP: d.lab.VIP4, Port: one.port, Protocol: lb.TCP, Mode: lb.L2DSR,
			Scheduler: one.scheduler,
			Checks:    lb.Checks{Panic: lb.DefaultPanic, OnDown: lb.DefaultOnDown(lb.TCP), List: []lb.Check{check}}}
		for _, server := range d.lab.Servers {
			s.Backends = append(s.Backends, lb.Backend{Name: server.Name, Address: server.IPv4, Port: one.port,
				Weight: 1})
		}
		all = append(all, s)
	}
	return all
}

// run starts a balancer with the services, and with the configuration that makes it one of several.
func (d *serversWithOneDead) run(t *testing.T, host *lab.Host, beside func(*config.Config)) *balancer {
	t.Helper()
	b, file := newBalancer(t, host), config.New()
	file.Interfaces, file.Hook, file.Socket, file.Services = []string{host.Interface}, lb.HookTC, b.socket, d.services()
	beside(file)
	text, err := config.Write(file)
	if err == nil {
		err = host.WriteFile(b.config, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.daemon = jeoul(t, host, &b.log, b.arguments()...)
	t.Cleanup(func() { stop(t, b.daemon) })
	d.balancers = append(d.balancers, b)
	return b
}

// begin opens some connections to each service, which stay open.
func (d *serversWithOneDead) begin(t *testing.T, client *lab.Host, n int, ports ...uint16) {
	t.Helper()
	for _, port := range ports {
		for range n {
			connection := dial(t, client, "tcp", netip.AddrPortFrom(d.lab.VIP4, port))
			server, _, err := ask(connection)
			if err != nil {
				d.skipIfStalled(t)
				t.Fatalf("port %d: %v", port, err)
			}
			d.open[connection] = server
		}
	}
}

// expectConnectionsAlive sends a request on each connection, and checks whether any has reached the dead backend.
func (d *serversWithOneDead) expectConnectionsAlive(t *testing.T, when string) {
	t.Helper()
	for connection, server := range d.open {
		if got, _, err := ask(connection); err != nil || got != server {
			d.skipIfStalled(t)
			t.Errorf("%s, a connection to %s from %s was answered by %q: %v", when, server,
				connection.LocalAddr(), got, err)
			delete(d.open, connection)
		}
	}
	if n := d.dead.Count(); n > 0 {
		d.skipIfStalled(t)
		t.Fatalf("%s, %d SYNs have come to the dead backend", when, n)
	}
}

// deadFailed reports whether the last backend of each service has failed.
func deadFailed(status *ops.Status) bool {
	return !slices.ContainsFunc(status.Services, func(s ops.Service) bool {
		return s.Backends[len(s.Backends)-1].State != lb.Unhealthy
	})
}

// routeTo starts the router before the balancers of a laboratory, which have a members' key, and stops it at the end.
func routeTo(t *testing.T, l *lab.Lab) {
	t.Helper()
	if err := errors.Join(l.DetourVIP(l.VIP4, true), jeoulsubject.ShareKey(l)); err != nil {
		t.Fatal(err)
	}
	router, err := subject.StartRouter(t.Context(), subject.Setup{Lab: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := router.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestFirstTableBesideOthers: of three balancers behind a router, two start while connections are held through the
// first, and a backend is dead from the start. None of them sends a connection there once the router sends to it, and
// connections continue with their backends.
func TestFirstTableBesideOthers(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	testenv.Program(t, "bird")
	l := newLab(t, lab.Spec{Clients: 1, Servers: 4, Balancers: 3})
	client := l.Clients[0]
	d := newServersWithOneDead(t, l, client)
	routeTo(t, l)
	running := map[*lab.Host]*balancer{}
	begin := func(host *lab.Host) {
		running[host] = d.run(t, host, func(file *config.Config) { jeoulsubject.Announce(file, l, host) })
	}
	sendsTo := func(n int) bool {
		hops, err := l.NextHops(l.VIP4)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range hops {
			if !deadFailed(running[host].status(t)) {
				d.skipIfStalled(t)
				t.Fatalf("the router sends to %s, which takes the dead backend for one that serves", host.Name)
			}
		}
		return len(hops) == n
	}
	begin(l.Balancers[0])
	testenv.Eventually(t, e2e.WaitLimit, "the router sends to the first balancer", func() bool { return sendsTo(1) })
	d.expectConnectionsAlive(t, "by the first balancer")
	d.begin(t, client, 60, hashPort, turnPort)
	for _, host := range l.Balancers[1:] {
		begin(host)
	}
	testenv.Eventually(t, e2e.WaitLimit, "the router sends to all balancers", func() bool {
		all := sendsTo(len(l.Balancers))
		d.expectConnectionsAlive(t, "while others start")
		// Other balancers have flows of the scheduler by turns only half a second later.
		d.begin(t, client, 1, hashPort)
		return all
	})
	d.expectConnectionsAlive(t, "with all balancers")
	d.begin(t, client, 40, hashPort, turnPort)
	d.expectConnectionsAlive(t, "at last")
}

// TestFirstTableByAddress: of two members that announce no routes, one starts while connections are held through the
// other, and a backend is dead from the start. It has the VIP only after its checks have found that, and connections
// continue through it with their backends.
//
// A machine that delays checks for too long does so once; a balancer that does not wait for verdicts, in each try.
func TestFirstTableByAddress(t *testing.T) {
	t.Parallel()
	const tries = 3
	for n := range tries {
		var d *serversWithOneDead
		t.Run(fmt.Sprint("try ", n+1), func(t *testing.T) {
			l := newLab(t, lab.Spec{Clients: 2, Servers: 4})
			d = newServersWithOneDead(t, l, l.Clients[1])
			d.expectFirstTableByAddress(t)
		})
		if d == nil || !d.stalled {
			return
		}
	}
	t.Errorf("in each of %d tries, a balancer took the VIPs without verdicts", tries)
}

// expectFirstTableByAddress is one try of TestFirstTableByAddress.
func (d *serversWithOneDead) expectFirstTableByAddress(t *testing.T) {
	t.Helper()
	l := d.lab
	client := l.Clients[1]
	key := freshKey(t, l.Balancer)
	begin := func(host *lab.Host) {
		d.run(t, host, func(file *config.Config) {
			file.Members = lb.MembersConfig{Listen: netip.AddrPortFrom(host.IPv4, lb.DefaultMembersPort),
				KeyFile: filepath.Join(host.Dir, "members.key"),
				Name:    host.Name, Peers: []netip.Addr{l.Balancer.IPv4, l.Clients[0].IPv4}, HandOver: true}
			if err := host.WriteSecret(file.Members.KeyFile, []byte(key)); err != nil {
				t.Fatal(err)
			}
		})
		testenv.Eventually(t, e2e.WaitLimit, host.Name+" has the VIP", func() bool {
			has, err := hasAddress(host, l.VIP4)
			return err == nil && has
		})
		sendBy(t, client, l.VIP4, host)
	}
	begin(l.Balancer)
	d.expectConnectionsAlive(t, "by the first balancer")
	d.begin(t, client, 40, hashPort, turnPort)
	begin(l.Clients[0])
	d.expectConnectionsAlive(t, "by the second")
	d.begin(t, client, 40, hashPort, turnPort)
	d.expectConnectionsAlive(t, "at last")
}
