// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// leave ends the daemon so that another process continues its work.
func leave(t *testing.T, process *lab.Process) {
	t.Helper()
	// Not SIGTERM right after it: the kernel delivers each signal to a thread of its choice, and the second can
	// overtake the first.
	if err := process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatalf("it did not end well: %v", err)
	}
}

// TestConnectionsOutliveTheProcess ends the daemon by a kill and on purpose and starts another one, while clients have
// connections in every mode, by hash and by turns: each continues with its server, without a process and after that. A
// stop leaves nothing.
func TestConnectionsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := buildStage(t, hook, 1, kilo)
		for _, server := range s.Servers {
			s.startAgent(t, server)
			s.startServers(t, server)
		}
		before := e2e.ReadSettings(t, s.Balancer)
		s.start(t)
		s.operate(t, ops.Order{Verb: ops.Weight, Weight: 3, Service: s.status(t).Services[0].Name,
			Backend: s.Servers[0].Name, By: "the test"})
		all := s.openEverywhere(t, manyEach)
		for i, end := range []func(*testing.T, *lab.Process){kill, leave, kill} {
			counts, pinned, balancing := s.outcomes(t), s.pinned(t), e2e.ReadSettings(t, s.Balancer)
			end(t, s.daemon)
			all.ask(t, "without a process")
			for _, line := range e2e.ReadSettings(t, s.Balancer).Difference(balancing) {
				t.Errorf("after end %d of the process: %s", i, line)
			}
			s.start(t)
			all.ask(t, "with another process")
			for name, packets := range s.outcomes(t) {
				if packets < counts[name] {
					t.Errorf("the counter %s went from %d to %d", name, counts[name], packets)
				}
			}
			if now := s.pinned(t); now != pinned {
				t.Errorf("pins: %d, and before: %d", now, pinned)
			}
			if n := len(s.status(t).Operations.InForce); n != 1 {
				t.Errorf("operations in force: %d, want the weight", n)
			}
			all = append(all, s.openEverywhere(t, someEach)...)
		}
		stop(t, s.daemon)
		if n := s.pinned(t); n != 0 {
			t.Errorf("after a stop, pins: %d", n)
		}
		for _, line := range e2e.ReadSettings(t, s.Balancer).Difference(before) {
			t.Errorf("after a stop: %s", line)
		}
		left, err := os.ReadDir(filepath.Join(s.Balancer.Dir, "state"))
		if err != nil || len(left) != 0 {
			t.Errorf("after a stop, there is left: %v, %v", left, err)
		}
	})
}

// connections are open connections, each with the server that answers on it.
type connections map[net.Conn]string

// openConnections opens n connections.
func openConnections(t *testing.T, client *lab.Host, to netip.AddrPort, n int) connections {
	t.Helper()
	all := connections{}
	for range n {
		connection := dial(t, client, "tcp", to)
		server, _, err := ask(connection)
		if err != nil {
			t.Fatal(err)
		}
		all[connection] = server
	}
	return all
}

// expectAlive fails the test unless the same servers answer on all of them.
func (c connections) expectAlive(t *testing.T, when string) {
	t.Helper()
	for connection, server := range c {
		if got, _, err := ask(connection); err != nil || got != server {
			t.Errorf("%s, a connection to %s was answered by %q: %v", when, server, got, err)
		}
	}
}

// checkPort is the port of the servers' checks in TestBackendDiesWithoutAProcess.
const checkPort = 7002

// TestBackendDiesWithoutAProcess: a backend that has died while there was no daemon gets no new flow soon after the
// next daemon starts, and not only when the usual number of checks, an interval apart, have failed; connections of the
// others continue all the time.
func TestBackendDiesWithoutAProcess(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		l := newLab(t, lab.Spec{Clients: 2, Servers: 3})
		s := &segment{l, newBalancer(t, l.Balancer)}
		var backends []entry
		var dies net.Listener
		for _, server := range l.Servers {
			s.serve(t, server)
			if err := server.Do(func() (err error) {
				dies, err = net.Listen("tcp", fmt.Sprintf(":%d", checkPort))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			go serveTCP(dies, server.Name)
			defer dies.Close()
			backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String()})
		}
		dead := l.Servers[2]
		// A verdict by the interval would take 80 s.
		const interval = 4 * time.Second
		s.configure(t, hook,
			entry{"services": []entry{{"name": "web", "vip": s.VIP4.String(), "port": turnPort, "scheduler": "rr",
				"backends": backends,
				"check": entry{"type": "tcp", "via": "address", "port": checkPort, "interval": interval.String(),
					"timeout": "1s", "rise": 1, "fall": 20}}}})
		s.start(t)
		testenv.Eventually(t, testenv.WaitLimit, "all verdicts are saved", func() bool {
			files, _ := filepath.Glob(filepath.Join(s.host.Dir, "state", "*.health"))
			if len(files) != 1 {
				return false
			}
			saved, err := os.ReadFile(files[0])
			return err == nil && strings.Count(string(saved), `"healthy"`) == 3
		})
		to := netip.AddrPortFrom(s.VIP4, turnPort)
		on := openConnections(t, s.Clients[0], to, 9)
		kill(t, s.daemon)
		dies.Close()
		on.expectAlive(t, "without a process")
		passes(t, interval+time.Second)
		s.daemon = jeoul(t, s.host, &s.log, s.arguments()...)
		t.Cleanup(func() { stop(t, s.daemon) })
		s.within(t, time.Minute, dead.Name+" is unhealthy, and the others are healthy", func(status *ops.Status) bool {
			for _, b := range status.Services[0].Backends {
				if want := map[bool]lb.Health{true: lb.Failing,
					false: lb.Healthy}[b.Name == dead.Name]; b.Health == nil || b.Health.State != want {
					return false
				}
				// The check's verdict comes first, and its effect in the data plane a moment later.
				if b.Name == dead.Name && b.State != lb.Unhealthy {
					return false
				}
			}
			return true
		})
		if counts := s.askMany(t, "tcp", to, 6); counts[dead.Name] > 0 {
			t.Errorf("new connections went to %v", counts)
		}
		on.expectAlive(t, "with another process")
	})
}

// TestDetach removes the remains of a killed daemon.
func TestDetach(t *testing.T) {
	t.Parallel()
	s := buildStage(t, lb.HookTC, 1, kilo)
	before := e2e.ReadSettings(t, s.Balancer)
	for _, server := range s.Servers {
		s.startAgent(t, server)
	}
	s.start(t)
	run := func(arguments ...string) string {
		t.Helper()
		var output cmdtest.SyncBuffer
		process := jeoul(t, s.Balancer, &output,
			append(arguments, "--state-dir", filepath.Join(s.Balancer.Dir, "state"))...)
		<-process.Done()
		return output.String()
	}
	if output := run("detach", "-c", s.config); !strings.Contains(output, "another process keeps this data plane") {
		t.Errorf("detach beside a daemon says %q", output)
	}
	kill(t, s.daemon)
	if output := run("status", "--socket", s.socket); !strings.Contains(output, "a data plane without a process is on "+
		s.Balancer.Interface+": services: 48") {
		t.Errorf("status without a daemon says %q", output)
	}
	for _, want := range []string{"detached: /sys/fs/bpf/jeoul/run-", "no data plane was left"} {
		if output := run("detach", "--interface", s.Balancer.Interface); !strings.Contains(output, want) {
			t.Errorf("detach says %q, want %q", output, want)
		}
	}
	if n := s.pinned(t); n != 0 {
		t.Errorf("pins that are left: %d", n)
	}
	for _, line := range e2e.ReadSettings(t, s.Balancer).Difference(before) {
		t.Errorf("there is left: %s", line)
	}
}

// TestPinsAreGone kills the daemon and unmounts the bpf file system: `jeoul status` reports it, and `jeoul detach`
// removes the parts that need no pins. Unmounting it under a running daemon does no harm.
func TestPinsAreGone(t *testing.T) {
	t.Parallel()
	s := buildStage(t, lb.HookTC, 1, kilo)
	before := e2e.ReadSettings(t, s.Balancer)
	for _, server := range s.Servers {
		s.startAgent(t, server)
	}
	run := func(path string, arguments ...string) string {
		t.Helper()
		var output cmdtest.SyncBuffer
		process, err := s.Balancer.Start(t.Context(), lab.Command{Path: path, Args: arguments, Stdout: &output,
			Stderr: &output})
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Wait(); err != nil {
			t.Fatalf("%s %q: %v: %s", path, arguments, err, output.String())
		}
		return output.String()
	}
	remount := func() {
		t.Helper()
		run("umount", "-l", "/sys/fs/bpf")
		run("mount", "-t", "bpf", "bpf", "/sys/fs/bpf")
	}
	s.start(t)
	pinned := s.pinned(t)
	remount()
	testenv.Eventually(t, testenv.WaitLimit, "it says that all is pinned anew", func() bool {
		return strings.Contains(s.log.String(), "they are in ")
	})
	kill(t, s.daemon)
	s.start(t)
	if now := s.pinned(t); now != pinned {
		t.Errorf("pins: %d, and before: %d", now, pinned)
	}
	kill(t, s.daemon)
	remount()
	ask := func(arguments ...string) string {
		t.Helper()
		var output cmdtest.SyncBuffer
		process := jeoul(t, s.Balancer, &output,
			append(arguments, "--state-dir", filepath.Join(s.Balancer.Dir, "state"))...)
		<-process.Done()
		return output.String()
	}
	link := s.Balancer.Interface
	if output := ask("status", "--socket", s.socket); !strings.Contains(output, "on "+link+
		" nothing is pinned any more") {
		t.Errorf("status says %q", output)
	}
	if output := ask("detach", "--interface", link); !strings.Contains(output,
		"no data plane was left pinned on "+link) {
		t.Errorf("detach says %q", output)
	}
	for _, line := range e2e.ReadSettings(t, s.Balancer).Difference(before) {
		t.Errorf("there is left: %s", line)
	}
	if left, err := os.ReadDir(filepath.Join(s.Balancer.Dir, "state")); err != nil || len(left) != 0 {
		t.Errorf("there is left: %v, %v", left, err)
	}
}

// TestOrphanFailsOpen kills the daemon and waits for longer than its data plane may continue: then clients are refused
// immediately, until the next start.
func TestOrphanFailsOpen(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := buildStage(t, hook, 1, kilo)
		for _, server := range s.Servers {
			s.startAgent(t, server)
			s.startServers(t, server)
		}
		configuration := s.configuration()
		configuration["orphan"] = "5s"
		s.configure(t, hook, configuration)
		s.start(t)
		all := s.openEverywhere(t, someEach)
		kill(t, s.daemon)
		all.ask(t, "without a process")
		says := func(want string) bool {
			var output cmdtest.SyncBuffer
			process := jeoul(t, s.Balancer, &output, "status", "--socket", s.socket, "--state-dir",
				filepath.Join(s.Balancer.Dir, "state"))
			<-process.Done()
			return strings.Contains(output.String(), want)
		}
		testenv.Eventually(t, e2e.WaitLimit, "jeoul status says that it has stepped aside", func() bool {
			return says("it has left packets for its VIPs to the kernel since")
		})
		for _, p := range paths() {
			err := s.Clients[0].Do(func() error {
				connection, err := (&net.Dialer{Timeout: e2e.WaitLimit}).Dial("tcp",
					netip.AddrPortFrom(p.vip, webPort).String())
				if err == nil {
					connection.Close()
				}
				return err
			})
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: a client was not refused: %v", p, err)
			}
		}
		s.start(t)
		s.openEverywhere(t, someEach)
		if n := s.outcomes(t)["passed_orphaned"]; n < uint64(len(paths())) {
			t.Errorf("packets that are counted as passed_orphaned: %d", n)
		}
	})
}

// pinned counts the pins on the balancer.
func (b *balancer) pinned(t *testing.T) (n int) {
	t.Helper()
	err := b.host.Do(func() error {
		return filepath.WalkDir("/sys/fs/bpf", func(path string, _ os.DirEntry, err error) error {
			if strings.HasPrefix(path, "/sys/fs/bpf/jeoul") {
				n++
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *balancer) operate(t *testing.T, order ops.Order) {
	t.Helper()
	if _, err := api.NewClient(b.socket).Operate(t.Context(), order); err != nil {
		t.Fatal(err)
	}
}

// livingConnections are connections on which requests are made repeatedly, with the server of each.
type livingConnections []struct {
	net.Conn
	path   path
	server string
}

// someEach is the number of connections to each of the web services of a stage's paths; with manyEach, there are 504 in
// all.
const someEach, manyEach = 4, 21

// openEverywhere opens connections on each path, by hash and by turns, a number to each service.
func (s *stage) openEverywhere(t *testing.T, each int) (all livingConnections) {
	t.Helper()
	for _, p := range paths() {
		for _, port := range []uint16{webPort, otherWebPort} {
			for range each {
				connection := s.connectTo(t, p, port, 0)
				server, err := whoOn(connection)
				if err != nil {
					t.Fatalf("%s, port %d: %v", p, port, err)
				}
				all = append(all, livingConnections{{connection, p, server}}...)
			}
		}
	}
	return all
}

// ask makes a request on each connection.
func (l livingConnections) ask(t *testing.T, when string) {
	t.Helper()
	broken := map[string]int{}
	for _, connection := range l {
		if err := connection.SetDeadline(time.Now().Add(e2e.WaitLimit)); err != nil {
			t.Fatal(err)
		}
		if server, err := whoOn(connection); err != nil || server != connection.server {
			broken[connection.path.String()]++
			t.Logf("%s, %s: a connection to %s was answered by %q: %v", connection.path, when, connection.server,
				server, err)
		}
	}
	for path, n := range broken {
		t.Errorf("%s: broken on %s: %d of %d in all", when, path, n, len(l))
	}
}
