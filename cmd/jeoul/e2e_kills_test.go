// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testkill"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// TestKilledAtEachStep kills the program at each step of its life: of a start, a change of the configuration, a stop, a
// restart and `jeoul detach`. Whatever continues from there, the next start and its stop, or `jeoul detach`, on the
// same boot or the next one, nothing is left on the host.
//
// It takes one random step of one of them, and with JEOUL_TEST_EVERY_STEP=1 (`make test-kills`) many of all: the
// packages whose steps these are take every one.
func TestKilledAtEachStep(t *testing.T) {
	testenv.Root(t)
	if !testkill.EveryStep() {
		t.Skip("runs in `make test-kills`, and not in `make test`, which has the data plane's and the host's steps")
	}
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const some = 40
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		for _, l := range killedRuns {
			t.Run(string(hook)+", "+l.name, func(t *testing.T) {
				m := newKilledBalancer(t, hook, l)
				steps := len(m.kill(t, -1, continues))
				for range some {
					n := random.IntN(steps)
					next := nextRuns[random.IntN(len(nextRuns))]
					if done := m.kill(t, n, next); t.Failed() {
						t.Fatalf("killed after these of some %d steps, and then %s:\n%s", steps, next.name,
							strings.Join(done, "\n"))
					}
				}
			})
		}
	}
}

// killedRun is a run of the program that is killed.
type killedRun struct {
	name string
	// command is its first argument.
	command string
	// left: another process has left a data plane.
	left bool
	// ends is the signal that ends the run, if it does not end by itself.
	ends syscall.Signal
}

var killedRuns = []killedRun{
	{"a start, a reload and a stop", "run", false, syscall.SIGTERM},
	{"a restart", "run", true, syscall.SIGUSR2},
	{"a detach", "detach", true, 0},
}

// nextRun is the run of the program after a kill.
type nextRun struct {
	name string
	does func(*killedBalancer, *testing.T)
}

var continues = nextRun{"the next start and its stop", (*killedBalancer).startAndStop}

var nextRuns = []nextRun{continues,
	{"jeoul detach", (*killedBalancer).detach},
	{"a start after a reboot", func(m *killedBalancer, t *testing.T) { m.reboot(t); m.startAndStop(t) }},
	{"jeoul detach after a reboot", func(m *killedBalancer, t *testing.T) { m.reboot(t); m.detach(t) }},
}

// killedBalancer is a balancer that is killed repeatedly.
type killedBalancer struct {
	killedRun
	*balancer
	hook   lb.Hook
	state  string
	before e2e.Settings
	one    []entry // its services
}

func newKilledBalancer(t *testing.T, hook lb.Hook, l killedRun) *killedBalancer {
	t.Helper()
	s := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	m := &killedBalancer{killedRun: l, balancer: newBalancer(t, s.Balancer), hook: hook,
		state: filepath.Join(s.Balancer.Dir, "state"), before: e2e.ReadSettings(t, s.Balancer)}
	server := s.Servers[0]
	for _, service := range []struct{ name, vip, mode, backend string }{
		{"nat4", "198.18.0.100", "nat", server.IPv4.String()},
		{"nat6", "2001:2::100", "nat", server.IPv6.String()},
		{"dsr4", "198.18.0.101", "l2dsr", server.IPv4.String()},
	} {
		m.one = append(m.one, entry{"name": service.name, "vip": service.vip, "port": webPort, "protocol": "tcp",
			"mode": service.mode,
			"backends": []entry{{"name": server.Name, "address": service.backend, "port": webPort +
				portShift[lb.Mode(service.mode)]}}})
	}
	return m
}

// configured writes a configuration with all services, or only the last one.
func (m *killedBalancer) configured(t *testing.T, all bool) {
	t.Helper()
	services := m.one
	if !all {
		services = services[2:]
	}
	m.configure(t, m.hook, entry{"services": services})
}

// kill kills a process before its step of a number, or lets it finish, and lets the next run find the remains.
func (m *killedBalancer) kill(t *testing.T, n int, next nextRun) (steps []string) {
	t.Helper()
	m.configured(t, true)
	if m.left {
		m.up(t)
		leave(t, m.daemon)
	}
	victim, command := m.victim(t)
	driven := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(driven)
		m.changeConfiguration(t, command, ended)
	}()
	steps, killed, err := victim.End(n)
	close(ended)
	<-driven
	if err != nil {
		t.Fatalf("the process: killed: %v, %v", killed, err)
	}
	next.does(m, t)
	m.expectNothingLeft(t)
	return steps
}

// victim starts the process that will be killed.
func (m *killedBalancer) victim(t *testing.T) (victim *testkill.Victim, command *exec.Cmd) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command = exec.Command(executable, m.command, "-c", m.config, "--state-dir", m.state)
	command.Env = append(os.Environ(), actAsJeoul+"=1")
	command.Stdout, command.Stderr = &m.log, &m.log
	// In the namespaces of the thread that starts it.
	if err := m.host.Do(func() (err error) {
		victim, err = testkill.Start(command)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return victim, command
}

// changeConfiguration makes a daemon change its configuration, once it is up, and then ends it.
func (m *killedBalancer) changeConfiguration(t *testing.T, command *exec.Cmd, ended <-chan struct{}) {
	if m.ends == 0 {
		return
	}
	// services waits until the daemon has a number of services, all of whose backends are up.
	services := func(n int) bool {
		for late := time.After(testenv.WaitLimit); ; {
			status, err := api.NewClient(m.socket).Status(t.Context())
			if err == nil && len(status.Services) == n && allUp(status) {
				return true
			}
			select {
			case <-ended:
				return false
			case <-late:
				t.Errorf("it did not come to %d services: %v", n, err)
				return true
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	if !services(len(m.one)) {
		return
	}
	m.configured(t, false)
	_ = command.Process.Signal(syscall.SIGHUP) // it may be gone
	if services(1) {
		_ = command.Process.Signal(m.ends)
	}
}

// up starts the daemon. Loading a program takes long if other tests do the same.
func (m *killedBalancer) up(t *testing.T) {
	t.Helper()
	m.daemon = jeoul(t, m.host, &m.log, "run", "-c", m.config, "--state-dir", m.state)
	m.within(t, testenv.WaitLimit, "every backend is up", allUp)
}

func (m *killedBalancer) startAndStop(t *testing.T) {
	t.Helper()
	m.up(t)
	stop(t, m.daemon)
}

func (m *killedBalancer) detach(t *testing.T) {
	t.Helper()
	process := jeoul(t, m.host, &m.log, "detach", "-c", m.config, "--state-dir", m.state)
	if err := process.Wait(); err != nil {
		t.Fatalf("jeoul detach: %v", err)
	}
}

var bootID = regexp.MustCompile(`"boot": "[^"]*"`)

// reboot leaves the host in the state after a reboot with the state directory on a disk: only its files remain.
func (m *killedBalancer) reboot(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.state, "*"))
	if err != nil {
		t.Fatal(err)
	}
	saved := map[string][]byte{}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		saved[path] = bootID.ReplaceAll(data, []byte(`"boot": "another"`))
	}
	m.detach(t)
	for path, data := range saved {
		if strings.HasSuffix(path, ".journal") && len(data) > 0 && !bytes.Contains(data, []byte(`"another"`)) {
			t.Errorf("%s does not say which boot it is of:\n%s", path, data)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *killedBalancer) expectNothingLeft(t *testing.T) {
	t.Helper()
	for _, line := range e2e.ReadSettings(t, m.host).Difference(m.before) {
		t.Errorf("there is left: %s", line)
	}
	if n := m.pinned(t); n != 0 {
		t.Errorf("pins that are left: %d", n)
	}
	left, err := filepath.Glob(filepath.Join(m.state, "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("files that are left: %v, %v", left, err)
	}
}
