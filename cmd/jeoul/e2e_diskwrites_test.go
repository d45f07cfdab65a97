// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testdisk"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// writeFaults makes changes of files by a daemon fail, and counts them by file and operation.
type writeFaults struct {
	mu sync.Mutex
	// fails selects the operations that fail; nil: none.
	fails func(op testdisk.Op) unix.Errno
	// socket is the API's socket, through which the test observes the daemon: it has a separate test.
	socket, dir    string
	made, failures map[string]int
}

// fileNumbers are the parts of file names that differ between runs: the interface, the network namespace, snapshots.
var fileNumbers = regexp.MustCompile(`run-[^.]*\.|\d+`)

func newWriteFaults() *writeFaults {
	return &writeFaults{dir: "/nowhere", made: map[string]int{}, failures: map[string]int{}}
}

// inject starts an injector. It must start before the laboratory, so that it ends after the laboratory's processes.
func (w *writeFaults) inject(t *testing.T) *testdisk.Injector {
	t.Helper()
	injector, err := testdisk.Inject(t.TempDir(), w.decide)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := injector.Close(); err != nil {
			t.Error(err)
		}
	})
	return injector
}

// about selects the files: those below a directory, without a socket.
func (w *writeFaults) about(dir, socket string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dir, w.socket = dir, socket
}

func (w *writeFaults) decide(op testdisk.Op, path string) unix.Errno {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !strings.HasPrefix(path, w.dir) || strings.HasPrefix(path, w.socket) {
		return 0
	}
	name := strings.TrimPrefix(path, w.dir+"/")
	what := fmt.Sprintf("%-28s %s", fileNumbers.ReplaceAllString(name, "*"), op)
	w.made[what]++
	if w.fails == nil {
		return 0
	}
	errno := w.fails(op)
	if errno != 0 {
		w.failures[what]++
	}
	return errno
}

func (w *writeFaults) set(fails func(testdisk.Op) unix.Errno) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = fails
}

// table lists how often each change of each file was requested, and has failed.
func (w *writeFaults) table() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(w.made)) {
		fmt.Fprintf(&text, "%-40s %6d asked %6d failed\n", what, w.made[what], w.failures[what])
	}
	return text.String()
}

// faultOf returns the fault of a round. Whole faults fail every operation of their kind; single ones fail one
// operation, so that those before it in a write succeed.
func faultOf(n int) (name string, fails func(testdisk.Op) unix.Errno) {
	single := []testdisk.Op{testdisk.Write, testdisk.Rename, testdisk.Chmod, testdisk.Truncate, testdisk.Create,
		testdisk.Open, testdisk.Remove, testdisk.Allocate, testdisk.Sync, testdisk.MkdirAll}
	if n%2 == 0 {
		fault := testdisk.Faults[n/2%len(testdisk.Faults)]
		errno := fault.Err.(unix.Errno)
		return fault.Name, func(op testdisk.Op) unix.Errno {
			if slices.Contains(fault.Ops, op) {
				return errno
			}
			return 0
		}
	}
	errnos := []unix.Errno{unix.EIO, unix.ENOSPC, unix.EROFS, unix.EACCES}
	fail, errno := single[n/2%len(single)], errnos[n/2%len(errnos)]
	return fmt.Sprintf("%s fails with %v", fail, errno), func(op testdisk.Op) unix.Errno {
		if op == fail {
			return errno
		}
		return 0
	}
}

// Connections that exist during the faults, in `make test` and in diskTarget, and the number of rounds.
const (
	fewConnections, someConnections = 50, 500
	fewRounds, someRounds           = 1, 100
)

// TestFaultsAtEachWrite: a balancer of two that share VIPs cannot write its files, in turns all of them or one step of
// each write, while a backend dies, another gets a new MAC address, the VIPs move to it and away, and it is killed and
// started. All of it takes effect, and connections continue, as in the rounds with a working disk.
func TestFaultsAtEachWrite(t *testing.T) {
	testenv.Also(t, diskTarget)
	t.Parallel()
	connections, rounds := fewConnections, fewRounds
	if testenv.InTarget(diskTarget) {
		connections, rounds = someConnections, someRounds
	}
	f := newFaultyPair(t, connections)
	healthy := 0
	for n := range rounds {
		name, fails := faultOf(n)
		// One round of ten is the control.
		if n%10 == 9 {
			name, fails = "a disk that works", nil
			healthy++
		}
		began := time.Now()
		f.round(t, fmt.Sprintf("round %d (%s)", n, name), fails)
		t.Logf("round %d: %s: %s, %d connections lost so far", n, name, time.Since(began).Round(time.Millisecond),
			f.lost)
		if t.Failed() {
			break
		}
	}
	t.Logf("%d connections, %d rounds with faults and %d without: %d decisions, %d connections lost\n%s",
		connections, rounds-healthy, healthy, f.decisions, f.lost, f.faults.table())
	for _, b := range f.both {
		stop(t, b.daemon)
	}
}

// faultyPair is a pair of balancers, of which the first cannot always write.
type faultyPair struct {
	*balancerPair
	faults   *writeFaults
	injector *testdisk.Injector
	probe    net.Listener
	held     connections
	// decisions is the number of decisions that were waited for, and lost the number of connections that did not
	// continue.
	decisions, lost int
}

func newFaultyPair(t *testing.T, connections int) *faultyPair {
	t.Helper()
	f := &faultyPair{faults: newWriteFaults()}
	f.injector = f.faults.inject(t)
	l := newLab(t, lab.Spec{Clients: 2, Servers: 3})
	first := newBalancer(t, l.Balancer)
	f.balancerPair = &balancerPair{lab: l, both: [2]*balancer{first, newBalancer(t, l.Clients[1])}}
	f.faults.about(first.host.Dir, first.socket)
	f.configure(t)
	for i, b := range f.both {
		f.start(t, i)
		t.Cleanup(func() { _ = b.daemon.Stop(context.Background()) })
		b.eventually(t, "every backend is up, and healthy", func(s *ops.Status) bool {
			return allUp(s) && f.serves(lb.Healthy)(s)
		})
	}
	f.active(t, 0, "at first")
	f.held = openConnections(t, l.Clients[0], netip.AddrPortFrom(l.VIP4, turnPort), connections)
	return f
}

// configure starts all servers, and writes the configuration of both balancers.
func (f *faultyPair) configure(t *testing.T) {
	t.Helper()
	s := &segment{f.lab, f.both[0]}
	var backends []entry
	var list strings.Builder
	list.WriteString("backends:\n")
	for _, server := range f.lab.Servers {
		s.serve(t, server)
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String()})
		fmt.Fprintf(&list, "  - {name: %s, address: %s}\n", server.Name, server.IPv4)
		f.probe = answerChecks(t, server)
		last := f.probe
		t.Cleanup(func() { last.Close() })
	}
	// A dead backend refuses immediately; a busy machine is late by less than the timeout.
	check := entry{"type": "tcp", "via": "address", "port": checkPort,
		"interval": "2s", "timeout": "2s", "rise": 1, "fall": 2}
	file := filepath.Join(f.lab.Servers[0].Dir, "backends")
	if err := os.WriteFile(file, []byte(list.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	service := func(name string, port int, more entry) entry {
		e := entry{"name": name, "vip": f.lab.VIP4.String(), "port": port, "backends": backends, "check": check}
		maps.Copy(e, more)
		return e
	}
	for i, b := range f.both {
		b.configure(t, lb.HookTC, entry{"vrrp": entry{"id": 51, "priority": 200 - 100*i, "interval": "100ms"},
			"services": []entry{service("web", turnPort, entry{"scheduler": "maglev"}),
				service("proxied", 7003, entry{"mode": "proxy", "proxy": entry{"speaks": "tcp"}}),
				{"name": "found", "vip": f.lab.VIP4.String(), "port": 7004,
					"discover": entry{"file": entry{"path": file}}}}})
	}
}

// start starts one of the balancers, the first with faults.
func (f *faultyPair) start(t *testing.T, which int) {
	t.Helper()
	b := f.both[which]
	if which != 0 {
		b.daemon = jeoul(t, b.host, &b.log, b.arguments()...)
		return
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b.daemon, err = b.host.Start(context.WithoutCancel(t.Context()), lab.Command{Path: executable, Args: b.arguments(),
		Env: append(os.Environ(), actAsJeoul+"=1", f.injector.Env()), Stdout: &b.log, Stderr: &b.log})
	if err != nil {
		t.Fatal(err)
	}
}

// await waits for a decision of the balancer whose files cannot be written.
func (f *faultyPair) await(t *testing.T, what string, ok func(*ops.Status) bool) {
	t.Helper()
	f.both[0].within(t, time.Minute, what, ok)
	f.decisions++
}

// expectConnectionsAlive counts the connections that do not continue with their servers, and opens others.
func (f *faultyPair) expectConnectionsAlive(t *testing.T, when string) {
	t.Helper()
	lost := 0
	for connection, server := range f.held {
		got, _, err := ask(connection)
		if err == nil && got == server {
			continue
		}
		if lost++; lost == 1 {
			t.Errorf("%s, a connection to %s was answered by %q: %v", when, server, got, err)
		}
		delete(f.held, connection)
	}
	f.lost += lost
}

// serves reports whether the checks of the failing backend have the given verdict.
func (f *faultyPair) serves(want lb.Health) func(*ops.Status) bool {
	return func(s *ops.Status) bool {
		return !slices.ContainsFunc(s.Services, func(s ops.Service) bool {
			return slices.ContainsFunc(s.Backends, func(b ops.Backend) bool {
				return b.Name == f.lab.Servers[2].Name && b.Health != nil && b.Health.State != want
			})
		})
	}
}

// round starts and ends a fault.
func (f *faultyPair) round(t *testing.T, when string, fails func(testdisk.Op) unix.Errno) {
	t.Helper()
	a, serves := f.both[0], f.serves
	f.faults.set(fails)
	f.probe.Close()
	f.await(t, when+": the backend that dies is out", serves(lb.Failing))
	a.operate(t, ops.Order{Verb: ops.Drain, Service: "web", Backend: f.lab.Servers[1].Name, By: "the test"})
	f.expectConnectionsAlive(t, when+", with a dead backend")
	moved := f.moveMAC(t, f.lab.Servers[0])
	f.await(t, when+": the new MAC address is taken", func(s *ops.Status) bool {
		return slices.ContainsFunc(s.Services[0].Backends, func(b ops.Backend) bool { return b.MAC == moved })
	})
	f.expectConnectionsAlive(t, when+", with a new MAC address")
	a.commandBalancer(t, "drain")
	f.active(t, 1, when+", drained")
	f.decisions++
	f.expectConnectionsAlive(t, when+", with the other balancer")
	a.commandBalancer(t, "undrain")
	f.active(t, 0, when+", undrained")
	f.decisions++
	f.expectConnectionsAlive(t, when+", with the VIPs taken back")
	kill(t, a.daemon)
	f.active(t, 1, when+", killed")
	f.start(t, 0)
	f.await(t, when+": another process takes the VIPs, and knows what is out", func(s *ops.Status) bool {
		return s.VRRP != nil && s.VRRP.State == "active" && serves(lb.Failing)(s) && len(s.Operations.InForce) == 1
	})
	f.expectConnectionsAlive(t, when+", with another process")
	f.faults.set(nil)
	f.probe = answerChecks(t, f.lab.Servers[2])
	last := f.probe
	t.Cleanup(func() { last.Close() })
	a.operate(t, ops.Order{Verb: ops.Enable, Service: "web", Backend: f.lab.Servers[1].Name, By: "the test"})
	a.within(t, time.Minute, when+" is over: all is written, and all serve", func(s *ops.Status) bool {
		return len(s.Unwritten) == 0 && serves(lb.Healthy)(s)
	})
	f.both[1].within(t, time.Minute, when+" is over", serves(lb.Healthy))
	f.expectConnectionsAlive(t, when+" is over")
}

// moveMAC gives a host's interface another MAC address, and returns it.
func (f *faultyPair) moveMAC(t *testing.T, host *lab.Host) (moved string) {
	t.Helper()
	err := host.Do(func() error {
		link, err := netlink.LinkByName(host.Interface)
		if err != nil {
			return err
		}
		now := slices.Clone(link.Attrs().HardwareAddr)
		if len(now) != 6 {
			return errors.New("it has no MAC address")
		}
		now[4]++
		moved = now.String()
		return netlink.LinkSetHardwareAddr(link, now)
	})
	if err != nil {
		t.Fatal(err)
	}
	return moved
}

// TestStandsInForSocket: a daemon whose unix socket cannot be created can still be reached, reports the fault, and
// creates the socket once that is possible.
func TestStandsInForSocket(t *testing.T) {
	t.Parallel()
	faults := newWriteFaults()
	injector := faults.inject(t)
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	b := newBalancer(t, l.Balancer)
	b.configure(t, lb.HookTC, entry{"services": []entry{{"name": "web", "vip": l.VIP4.String(), "port": 80,
		"backends": []entry{{"name": "one", "address": l.Servers[0].IPv4.String()}}}}})
	faults.about(b.host.Dir, "/nowhere")
	faults.set(func(op testdisk.Op) unix.Errno {
		return map[testdisk.Op]unix.Errno{testdisk.Bind: unix.EACCES}[op]
	})
	f := &faultyPair{balancerPair: &balancerPair{lab: l, both: [2]*balancer{b}}, injector: injector}
	f.start(t, 0)
	t.Cleanup(func() { _ = b.daemon.Stop(context.Background()) })
	testenv.Eventually(t, e2e.WaitLimit, "its status says that there is no socket", func() bool {
		var out cmdtest.SyncBuffer
		_ = jeoul(t, b.host, &out, "status", "--socket", b.socket).Wait()
		return strings.Contains(out.String(), "the unix socket of the API cannot be written to")
	})
	faults.set(nil)
	b.eventually(t, "the socket is there", func(s *ops.Status) bool { return len(s.Unwritten) == 0 })
	stop(t, b.daemon)
}
