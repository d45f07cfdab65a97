// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// ordinary is the ID of a user and group that own nothing on this machine.
const ordinary = 61234

// unitCapabilities returns the capability bounding set of a unit of the package.
func unitCapabilities(t *testing.T, unit string) []string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/package/" + unit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if list, is := strings.CutPrefix(line, "CapabilityBoundingSet="); is {
			return strings.Fields(list)
		}
	}
	t.Fatalf("%s has no CapabilityBoundingSet", unit)
	return nil
}

// unprivileged starts this program on a host as an ordinary user with only these capabilities.
func unprivileged(t *testing.T, host *lab.Host, log *cmdtest.SyncBuffer, capabilities []string,
	arguments ...string) *lab.Process {
	t.Helper()
	set := "-all"
	for _, name := range capabilities {
		set += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	id := strconv.Itoa(ordinary)
	process, err := host.Start(context.WithoutCancel(t.Context()), lab.Command{Path: testenv.Program(t, "setpriv"),
		Args: append([]string{"--reuid", id, "--regid", id, "--clear-groups", "--no-new-privs", "--bounding-set", set,
			"--inh-caps", set, "--ambient-caps", set,
			"--", readableExecutable(t, host)}, arguments...),
		Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: log, Stderr: log})
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// readableExecutable returns the path of a copy of this program that an ordinary user may run.
func readableExecutable(t *testing.T, host *lab.Host) string {
	t.Helper()
	path := filepath.Join(host.Dir, "jeoul")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// prepareUser makes the directories that systemd would make for the unit: some for the process, and one for its pins.
func prepareUser(t *testing.T, host *lab.Host) {
	t.Helper()
	dirs := []string{filepath.Join(host.Dir, "state"), filepath.Join(host.Dir, "store"),
		filepath.Join(host.Dir, "sockets"), "/sys/fs/bpf/jeoul"}
	err := host.Do(func() error {
		if err := os.Chmod("/sys/fs/bpf", 0o755); err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			if err := os.Chown(dir, ordinary, ordinary); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCapabilities: an ordinary user with the capabilities of the unit can start, reload and stop the balancer. Without
// any one of them it does not start, and the error names the capability and the remedy.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	s := configurable(t)
	prepareUser(t, s.host)
	// In a directory that the user may write to.
	s.socket = filepath.Join(s.host.Dir, "sockets", "jeoul.sock")
	s.configure(t, "tc", entry{"services": []entry{s.service("hash", hashPort, s.Servers)}})
	before := e2e.ReadSettings(t, s.Balancer)
	all := unitCapabilities(t, "jeoul.service")
	wantRefusals(t, s.host, all, s.arguments()...)
	for _, how := range []string{"at first", "after a kill", "after a stop"} {
		s.daemon = unprivileged(t, s.host, &s.log, all, s.arguments()...)
		s.eventually(t, "every backend is up "+how, allUp)
		if how == "at first" {
			if err := s.apply(t, s.Servers[1]); err != nil {
				t.Error(err)
			}
		}
		s.wantServers(t, how, s.Servers[1])
		s.askMany(t, "tcp", netip.AddrPortFrom(s.VIP4, hashPort), 3)
		if how == "at first" {
			kill(t, s.daemon)
		} else {
			stop(t, s.daemon)
		}
	}
	for _, line := range e2e.ReadSettings(t, s.Balancer).Difference(before) {
		t.Errorf("there is left: %s", line)
	}
}

// TestLocalCapabilities: with the capabilities of the unit, a process takes over the programs at sockets of its host
// from a killed one, and the sockets that they track: a program that was connected before still sees the VIP, and
// counts. After a process of an earlier version it cannot, and says so. Nothing stays pinned without `local`.
func TestLocalCapabilities(t *testing.T) {
	t.Parallel()
	s := configurable(t)
	prepareUser(t, s.host)
	s.socket = filepath.Join(s.host.Dir, "sockets", "jeoul.sock")
	cgroup := s.controlGroup(t)
	s.configure(t, lb.HookTC, entry{"local": entry{"cgroup": cgroup},
		"services": []entry{s.service("hash", hashPort, s.Servers)}})
	before := e2e.ReadSettings(t, s.Balancer)
	start := func(when string) {
		t.Helper()
		s.daemon = unprivileged(t, s.host, &s.log, unitCapabilities(t, "jeoul.service"), s.arguments()...)
		s.eventually(t, "every backend is up "+when, allUp)
	}
	start("at first")
	client := s.connectIn(t, cgroup, netip.AddrPortFrom(s.VIP4, hashPort))
	s.wantTracked(t, "at first", client, true)
	kill(t, s.daemon)
	start("after a kill")
	s.wantTracked(t, "after a kill", client, true)
	kill(t, s.daemon)
	if s.unpinSocketPrograms(t) == 0 {
		t.Error("no program at sockets is pinned")
	}
	start("after a kill of an earlier version")
	s.wantTracked(t, "after a kill of an earlier version", client, false)
	if !strings.Contains(s.log.String(), "open sockets are forgotten") {
		t.Error("the log does not say that sockets are forgotten")
	}
	s.configure(t, lb.HookTC, entry{"services": []entry{s.service("hash", hashPort, s.Servers)}})
	s.sendSIGHUP(t)
	s.eventually(t, "sockets are not served", func(status *ops.Status) bool { return status.Local == nil })
	if n := s.unpinSocketPrograms(t); n != 0 {
		t.Errorf("%d programs that are no longer used are pinned, with the memory of their generation", n)
	}
	stop(t, s.daemon)
	for _, line := range e2e.ReadSettings(t, s.Balancer).Difference(before) {
		t.Errorf("there is left: %s", line)
	}
}

// wantTracked checks whether a socket that is connected to the service on hashPort counts, and sees the VIP.
func (s *segment) wantTracked(t *testing.T, when string, socket int, tracked bool) {
	t.Helper()
	want := uint64(0)
	if tracked {
		want = 1
	}
	if local := s.status(t).Local; local == nil || local.Sockets != want {
		t.Errorf("%s, the status of sockets is %+v, want %d with a backend", when, local, want)
	}
	peer, err := unix.Getpeername(socket)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	v4, is := peer.(*unix.SockaddrInet4)
	if !is || (netip.AddrFrom4(v4.Addr) == s.VIP4) != tracked {
		t.Errorf("%s, the peer is %+v; that it is the VIP %s: want %t", when, peer, s.VIP4, tracked)
	}
}

// unpinSocketPrograms removes the pins of the programs at sockets, which earlier versions did not make, and returns how
// many there were.
func (s *segment) unpinSocketPrograms(t *testing.T) (pinned int) {
	t.Helper()
	err := s.host.Do(func() error {
		paths, err := filepath.Glob("/sys/fs/bpf/jeoul/*/set-*/local-*")
		for _, path := range paths {
			err = errors.Join(err, os.Remove(path))
		}
		pinned = len(paths)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pinned
}

// controlGroup makes a control group, which goes with the test, and returns its path on the balancer's host.
func (s *segment) controlGroup(t *testing.T) string {
	t.Helper()
	root := filepath.Join(s.host.Dir, "cgroup")
	group := filepath.Join(root, testenv.CgroupPrefix()+strconv.Itoa(os.Getpid())+"-local")
	err := s.host.Do(func() error {
		if err := os.Mkdir(root, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
			return err
		}
		return os.Mkdir(group, 0o755)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.host.Do(func() error { return os.Remove(group) }); err != nil {
			t.Error(err)
		}
	})
	return group
}

// connectIn connects from a process in a control group of the balancer's host, and returns the process's socket.
func (s *segment) connectIn(t *testing.T, cgroup string, to netip.AddrPort) int {
	t.Helper()
	const socket = 3
	var output cmdtest.SyncBuffer
	script := fmt.Sprintf("echo $$ >%s/cgroup.procs && exec %d<>/dev/tcp/%s/%d && echo connected && "+
		"exec sleep infinity", cgroup, socket, to.Addr(), to.Port())
	process, err := s.host.Start(context.WithoutCancel(t.Context()), lab.Command{Path: testenv.Program(t, "bash"),
		Args: []string{"-c", script}, Stdout: &output, Stderr: &output})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, process) })
	testenv.Eventually(t, e2e.WaitLimit, "a program of the balancer's host is connected", func() bool {
		select {
		case <-process.Done():
			t.Fatalf("it did not connect: %s", output.String())
		default:
		}
		return output.String() == "connected\n"
	})
	of, err := unix.PidfdOpen(process.PID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(of)
	fd, err := unix.PidfdGetfd(of, socket, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// wantRefusals starts a program once without each of these capabilities; it must fail each time.
func wantRefusals(t *testing.T, host *lab.Host, capabilities []string, arguments ...string) {
	t.Helper()
	before := e2e.ReadSettings(t, host)
	for i, name := range capabilities {
		var output cmdtest.SyncBuffer
		process := unprivileged(t, host, &output, slices.Delete(slices.Clone(capabilities), i, i+1), arguments...)
		select {
		case <-process.Done():
		case <-time.After(e2e.WaitLimit):
			t.Fatalf("without %s it goes on: %s", name, output.String())
		}
		text := output.String()
		if process.Wait() == nil || !strings.Contains(text, "this process does not have "+name) ||
			!strings.Contains(text, "setcap "+strings.ToLower(strings.Join(capabilities, ","))+"+ep") {
			t.Errorf("without %s: %v: %s", name, process.Wait(), text)
		}
		t.Logf("without %s:\n%s", name, text)
		for _, line := range e2e.ReadSettings(t, host).Difference(before) {
			t.Errorf("without %s, there is left: %s", name, line)
		}
	}
}

// TestAgentCapabilities is the same test for a backend's agent.
func TestAgentCapabilities(t *testing.T) {
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	host := l.Servers[0]
	prepareUser(t, host)
	arguments := []string{"agent", "--mode", "ipip", "--vip", l.VIP4.String(), "--state-dir",
		filepath.Join(host.Dir, "state")}
	all := unitCapabilities(t, "jeoul-agent.service")
	wantRefusals(t, host, all, arguments...)
	before := e2e.ReadSettings(t, host)
	var output cmdtest.SyncBuffer
	process := unprivileged(t, host, &output, all, arguments...)
	testenv.Eventually(t, e2e.WaitLimit, "the agent is ready", func() bool {
		return strings.Contains(output.String(), "ready")
	})
	stop(t, process)
	for _, line := range e2e.ReadSettings(t, host).Difference(before) {
		t.Errorf("there is left: %s", line)
	}
}
