// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// faultyServer is a web server that can fail: with its port closed, without an answer, with a late answer or status
// 503, or with a full accept queue.
type faultyServer struct {
	host  *lab.Host
	ports []uint16

	mu     sync.Mutex
	server *http.Server
	status int
	// held is open while requests wait without success; nil: they do not wait.
	held chan struct{}
	// late is the delay of an answer.
	late time.Duration
	// full are the sockets of ports with a full accept queue: the listeners, and the sockets that fill them.
	full []int
}

// startFaultyServer starts a server on ports of all addresses of a host.
func startFaultyServer(t *testing.T, host *lab.Host, ports ...uint16) *faultyServer {
	p := &faultyServer{host: host, ports: ports, status: http.StatusOK}
	p.open(t)
	t.Cleanup(func() {
		p.answer(t, http.StatusOK)
		p.close(t)
	})
	return p
}

func (p *faultyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	status, held, late := p.status, p.held, p.late
	p.mu.Unlock()
	if late > 0 {
		timer := time.NewTimer(late)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
		}
		return
	}
	w.Header().Set("Lab-Server", p.host.Name)
	for name, address := range map[string]string{"Client": r.RemoteAddr,
		"Local": r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()} {
		end := netip.MustParseAddrPort(address)
		w.Header().Set("Lab-"+name, end.Addr().Unmap().String())
		w.Header().Set("Lab-"+name+"-Port", fmt.Sprint(end.Port()))
	}
	w.WriteHeader(status)
}

// open makes the server listen.
func (p *faultyServer) open(t *testing.T) {
	t.Helper()
	p.server = &http.Server{Handler: p}
	for _, port := range p.ports {
		var listener net.Listener
		err := p.host.Do(func() (err error) {
			listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		go p.server.Serve(listener)
	}
}

// close closes its ports, as the kernel does for a killed server.
func (p *faultyServer) close(t *testing.T) {
	t.Helper()
	if err := p.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// answer makes it answer with a status; with 0, requests wait without success.
func (p *faultyServer) answer(t *testing.T, status int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
	if p.status = status; status == 0 {
		p.held = make(chan struct{})
	}
}

// delayAnswers delays its answers; 0: none.
func (p *faultyServer) delayAnswers(late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = late
}

// fillAcceptQueues makes its ports listen with full accept queues, so that the kernel drops SYNs, or makes it serve
// again.
func (p *faultyServer) fillAcceptQueues(t *testing.T, on bool) {
	t.Helper()
	for _, socket := range p.full {
		unix.Close(socket)
	}
	p.full = nil
	if !on {
		p.open(t)
		return
	}
	p.close(t)
	for _, port := range p.ports {
		if err := p.host.Do(func() error { return p.fill(int(port)) }); err != nil {
			t.Fatal(err)
		}
	}
}

// fill listens on a port without room for a connection (one still fits), and opens more than fit. It runs inside of the
// host.
func (p *faultyServer) fill(port int) error {
	listener, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p.full = append(p.full, listener)
	err = errors.Join(unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(listener, &unix.SockaddrInet6{Port: port}), unix.Listen(listener, 0))
	for range 3 {
		socket, opening := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if opening != nil {
			return opening
		}
		p.full = append(p.full, socket)
		if connecting := unix.Connect(socket,
			&unix.SockaddrInet6{Port: port, Addr: netip.IPv6Loopback().As16()}); connecting != unix.EINPROGRESS {
			err = errors.Join(err, connecting)
		}
	}
	return err
}

// setCable disconnects a host's cable at the switch, or connects it.
func (s *stage) setCable(t *testing.T, host *lab.Host, out bool) {
	t.Helper()
	err := s.Switch.Do(func() error {
		port, err := netlink.LinkByName(host.Port)
		switch {
		case err != nil:
			return err
		case out:
			return netlink.LinkSetDown(port)
		}
		return netlink.LinkSetUp(port)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkTimeout is the timeout of the checks of a stage, and checkInterval their interval.
var checkTimeout, checkInterval = testenv.Slowed(200 * time.Millisecond), testenv.Slowed(300 * time.Millisecond)

// checksOf are the health checks of the stage's services, by their web port.
var checksOf = map[uint16]entry{
	webPort: {"type": "tcp", "via": "address", "interval": checkInterval.String(), "timeout": checkTimeout.String()},
	otherWebPort: {"type": "http", "via": "address", "path": "/healthz", "interval": checkInterval.String(),
		"timeout": checkTimeout.String()},
}

// TestHealthChecks: a backend that fails in any way gets no new connection once its checks have detected that, with the
// right reason, and serves again when it is repaired.
func TestHealthChecks(t *testing.T) {
	testenv.Also(t, matrixTarget)
	onHooksAtOnce(t, checkByAddress)
}

// onHooksAtOnce runs a test with each hook, both at the same time, because it mostly waits.
func onHooksAtOnce(t *testing.T, test func(t *testing.T, hook lb.Hook)) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		t.Parallel()
		test(t, hook)
	})
}

func checkByAddress(t *testing.T, hook lb.Hook) {
	s := buildStage(t, hook, 1)
	var translating []path
	var ports []uint16
	var services []entry
	for _, p := range paths() {
		if !p.mode.Translates() {
			continue
		}
		translating = append(translating, p)
		for port, check := range checksOf {
			service := s.service(p, port)
			service["check"] = check
			services = append(services, service)
		}
	}
	for _, shift := range portShift {
		ports = append(ports, webPort+shift, otherWebPort+shift)
	}
	servers := map[string]*faultyServer{}
	for _, server := range s.Servers {
		servers[server.Name] = startFaultyServer(t, server, ports...)
	}
	configuration := s.configuration()
	configuration["services"] = services
	s.configure(t, hook, configuration)
	s.start(t)
	s.eventually(t, "every backend is found healthy", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool { return b.Health.State == lb.Healthy })
	})
	faulty := s.Servers[1]
	checked := servers[faulty.Name]
	for _, test := range s.checkFaults(t, checked, checkTimeout) {
		if !test.runs() {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			reasons := map[uint16]string{webPort: test.tcp, otherWebPort: test.http}
			if test.prepare != nil {
				test.prepare()
			}
			test.inject()
			s.eventually(t, faulty.Name+" is found ill", func(status *ops.Status) bool {
				return everyBackend(status, func(service ops.Service, b ops.Backend) bool {
					reason := reasons[service.Port]
					failing := b.Name == faulty.Name && reason != ""
					if !failing {
						return b.Health.State == lb.Healthy && b.State == lb.Up
					}
					return b.Health.State == lb.Failing && strings.Contains(b.Health.Reason, reason) && b.State != lb.Up
				})
			})
			for port, reason := range reasons {
				if reason == "" {
					continue
				}
				for _, p := range translating {
					s.expectNoNewFlows(t, netip.AddrPortFrom(p.vip, port), faulty)
				}
			}
			test.repair()
			s.eventually(t, faulty.Name+" is found healthy", func(status *ops.Status) bool {
				return everyBackend(status, func(_ ops.Service, b ops.Backend) bool {
					return b.Health.State == lb.Healthy && b.State == lb.Up
				})
			})
		})
	}
	t.Run("asked now", func(t *testing.T) { s.askNow(t, checked) })
	t.Run("restart", func(t *testing.T) {
		checked.close(t)
		defer checked.open(t)
		s.takeOver(t, faulty, translating)
	})
}

// takeOver lets another process continue the work: a failed backend gets no new flow from the start of that process on.
// The servers are in this process. If it was stopped meanwhile, the checks have found others ill, and the step is
// repeated.
func (s *stage) takeOver(t *testing.T, faulty *lab.Host, translating []path) {
	t.Helper()
	testenv.Eventually(t, e2e.WaitLimit, "another process begins with the verdicts of the one before", func() bool {
		began := time.Now()
		s.awaitOnlyIll(t, faulty)
		leave(t, s.daemon)
		s.daemon = jeoul(t, s.host, &s.log, "run", "-c", s.config, "--state-dir", filepath.Join(s.host.Dir, "state"))
		// The first status that the new process shows, before any of its checks can have failed three times.
		var first *ops.Status
		s.eventually(t, "another process answers", func(status *ops.Status) bool {
			first = status
			return true
		})
		if everyBackend(first, func(_ ops.Service, b ops.Backend) bool { return isOnlyIll(b, faulty) }) {
			return true
		}
		if everyBackend(first, func(_ ops.Service, b ops.Backend) bool { return !b.Health.Since.After(began) }) {
			t.Fatalf("the new process did not begin with the verdicts of the one before: %+v", first.Services)
		}
		t.Logf("verdicts have changed since %v: once more", began)
		return false
	})
	for _, p := range translating {
		for port := range checksOf {
			s.expectNoNewFlows(t, netip.AddrPortFrom(p.vip, port), faulty)
		}
	}
}

// isOnlyIll reports whether a backend is in the state that is right if one host has failed, and no other.
func isOnlyIll(b ops.Backend, faulty *lab.Host) bool {
	return (b.Health.State == lb.Failing) == (b.Name == faulty.Name) && (b.State == lb.Up) == (b.Name != faulty.Name)
}

// awaitOnlyIll waits until a host has failed in every service, and no other.
func (s *stage) awaitOnlyIll(t *testing.T, faulty *lab.Host) {
	t.Helper()
	s.eventually(t, faulty.Name+" is found ill, and no other", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool { return isOnlyIll(b, faulty) })
	})
}

// everyBackend reports whether a condition holds for every backend of every service.
func everyBackend(status *ops.Status, holds func(ops.Service, ops.Backend) bool) bool {
	for _, service := range status.Services {
		for _, b := range service.Backends {
			if b.Health == nil || !holds(service, b) {
				return false
			}
		}
	}
	return true
}

// answerLimit limits the wait for an answer of a server whose checks are answered within checkTimeout.
const answerLimit = 20 * time.Second

// expectNoNewFlows makes new connections to a service while one host has failed: all are answered, and none by this
// host. The servers are in this process. If it was stopped meanwhile, the checks have found all of them ill, and all
// get new flows: then the connections are made again.
func (s *stage) expectNoNewFlows(t *testing.T, to netip.AddrPort, host *lab.Host) {
	t.Helper()
	testenv.Eventually(t, e2e.WaitLimit, "the verdicts stay while a client connects to "+to.String(), func() bool {
		var before []string
		s.eventually(t, host.Name+" is found ill, and no other", func(status *ops.Status) (ill bool) {
			before, ill = verdictsAt(status, to, host)
			return ill
		})
		err := s.connectToOthers(t, to, host)
		if after, _ := verdictsAt(s.status(t), to, host); err != nil && !slices.Equal(before, after) {
			t.Logf("%s: %v; the verdicts were %q, and are %q: once more", to, err, before, after)
			return false
		}
		if err != nil {
			t.Errorf("%s: %v", to, err)
		}
		return true
	})
}

// connectToOthers makes new connections to a service. A host must not answer any.
func (s *stage) connectToOthers(t *testing.T, to netip.AddrPort, host *lab.Host) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	browser := e2e.NewBrowser(s.Clients[0])
	for range 12 {
		seen, err := browser.Who(ctx, to)
		if err != nil || seen.Server == host.Name {
			return fmt.Errorf("%q answered, %w", seen.Server, err)
		}
	}
	return nil
}

// verdictsAt returns the states of the backends of a service over TCP, and since when the checks have said so, and
// whether one host has failed, and no other.
func verdictsAt(status *ops.Status, at netip.AddrPort, faulty *lab.Host) (verdicts []string, onlyIll bool) {
	onlyIll = true
	for _, service := range status.Services {
		if service.Protocol != lb.TCP || netip.AddrPortFrom(service.VIP, service.Port) != at {
			continue
		}
		for _, b := range service.Backends {
			if b.Health == nil {
				return nil, false
			}
			onlyIll = onlyIll && isOnlyIll(b, faulty)
			verdicts = append(verdicts,
				fmt.Sprintf("%s: %s, %s since %v", b.Name, b.State, b.Health.State, b.Health.Since))
		}
	}
	return verdicts, onlyIll && len(verdicts) > 0
}

// askNow checks a backend by the command, while it serves and while it does not.
func (s *stage) askNow(t *testing.T, server *faultyServer) {
	client := api.NewClient(s.socket)
	for _, test := range []struct {
		status int
		want   lb.Health
		last   string
	}{{http.StatusOK, lb.Healthy, ""}, {http.StatusServiceUnavailable, lb.Failing, "503"}} {
		server.answer(t, test.status)
		what := fmt.Sprintf("with status %d it is %s, says a check by command", test.status, test.want)
		// The server is in this process, and does not answer in time if that is stopped.
		testenv.Eventually(t, e2e.WaitLimit, what, func() bool {
			checked, err := client.Check(context.WithoutCancel(t.Context()),
				fmt.Sprintf("nat-IPv4-%d", otherWebPort), server.host.Name)
			if err != nil {
				t.Fatal(err)
			}
			if len(checked.Results) != 1 || len(checked.Steps) < 2 {
				t.Fatalf("with status %d: %+v, steps %+v", test.status, checked.Results, checked.Steps)
			}
			result := checked.Results[0]
			if result.State == lb.Failing && strings.Contains(result.Reason, checkTimeout.String()) {
				t.Logf("with status %d: %+v: once more", test.status, result)
				return false
			}
			if result.State != test.want || !strings.Contains(result.Reason, test.last) {
				t.Errorf("with status %d: %+v", test.status, result)
			}
			return true
		})
	}
	server.answer(t, http.StatusOK)
}
