// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
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
