// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// faultyBalancerStage is a stage whose balancer itself has a fault, while its backends are healthy.
type faultyBalancerStage struct {
	*stage
	// byVIP and byAddress are the services, by the path that their checks take.
	byVIP, byAddress []path
}

// TestTroubleOfTheChecker: a fault of the balancer, or of its path to all backends at once, does not count as the
// backends' failure, or new flows go to all of them; the log is short, and everything is as before when the fault is
// over.
func TestTroubleOfTheChecker(t *testing.T) {
	testenv.Also(t, matrixTarget)
	t.Parallel()
	s := &faultyBalancerStage{stage: buildStage(t, lb.HookTC, 1)}
	var services []entry
	for _, p := range paths() {
		switch p.mode {
		case lb.L2DSR:
			s.byVIP = append(s.byVIP, p)
		case lb.NAT:
			s.byAddress = append(s.byAddress, p)
		default:
			continue
		}
		service := s.service(p, otherWebPort)
		// A server that stalls for two seconds, as on a busy machine, is not unhealthy.
		service["check"] = entry{"type": "http", "path": "/healthz", "interval": "500ms", "timeout": "500ms", "fall": 6}
		services = append(services, service)
	}
	configuration := s.configuration()
	configuration["services"] = services
	s.configure(t, lb.HookTC, configuration)
	for _, server := range s.Servers {
		s.startAgent(t, server)
		startFaultyServer(t, server, otherWebPort+portShift[lb.L2DSR], otherWebPort+portShift[lb.NAT])
	}
	s.start(t)
	s.awaitAllHealthy(t)
	t.Run("suspended", s.suspend)
	t.Run("own cable out", s.isolate)
	if testenv.InTarget(matrixTarget) {
		t.Run("no file descriptors", s.exhaustDescriptors)
		t.Run("firewall", s.blockChecks)
		t.Run("all backends' cables out", s.partition)
	}
}

// awaitAllHealthy waits until each backend is healthy and gets new flows, and all of them answer clients.
func (s *faultyBalancerStage) awaitAllHealthy(t *testing.T) {
	t.Helper()
	s.eventually(t, "every backend is found healthy and is up", func(status *ops.Status) bool {
		return everyBackend(status, func(service ops.Service, b ops.Backend) bool {
			return b.Health.State == lb.Healthy && b.State == lb.Up && service.Serving == ops.ServingHealthy
		})
	})
	s.answerAll(t, append(s.byVIP, s.byAddress...))
}

// answerAll sends requests to services until each backend has had a turn (rr). A backend may come a little later than
// its check has passed: the MAC address behind a link that was down is resolved again.
func (s *faultyBalancerStage) answerAll(t *testing.T, services []path) {
	t.Helper()
	browser := e2e.NewBrowser(s.Clients[0])
	for _, p := range services {
		names := map[string]bool{}
		testenv.Eventually(t, e2e.WaitLimit, fmt.Sprintf("%s is answered by each of %d backends", p, len(s.Servers)),
			func() bool {
				seen, err := browser.Who(bounded(t), netip.AddrPortFrom(p.vip, otherWebPort))
				if err != nil {
					t.Fatalf("%s: %v", p, err)
				}
				names[seen.Server] = true
				return len(names) == len(s.Servers)
			})
	}
}

// logged returns the daemon's log from an offset in bytes.
func (s *faultyBalancerStage) logged(since int) string { return s.log.String()[since:] }

// expectNoneUnhealthy fails the test if the daemon has logged since an offset that a backend is unhealthy.
func (s *faultyBalancerStage) expectNoneUnhealthy(t *testing.T, since int) {
	t.Helper()
	if log := s.logged(since); strings.Contains(log, "is unhealthy") {
		t.Errorf("a backend that serves was found to fail:\n%s", log)
	}
}

// awaitMoreChecks waits until each check has passed some times after this moment.
func (s *faultyBalancerStage) awaitMoreChecks(t *testing.T) {
	t.Helper()
	from := time.Now()
	s.eventually(t, "every backend has been asked again, and answered", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool {
			return b.Health.State == lb.Healthy && b.Health.Checks[0].Last.After(from) && b.Health.Checks[0].Passed > 0
		})
	})
}

// unhealthyTime is longer than the checks take to find a backend unhealthy.
const unhealthyTime = 4500 * time.Millisecond

// passes waits for a time in which checks would have failed often enough, and during which nothing else may happen.
func passes(t *testing.T, lasts time.Duration) {
	t.Helper()
	until := time.Now().Add(lasts)
	testenv.Eventually(t, e2e.WaitLimit, "the time has passed", func() bool { return time.Now().After(until) })
}

// suspend stops the daemon for longer than it takes to find a backend unhealthy, and for less, so that answers wait for
// it.
func (s *faultyBalancerStage) suspend(t *testing.T) {
	since := len(s.log.String())
	for _, lasts := range []time.Duration{600 * time.Millisecond, 600 * time.Millisecond, 600 * time.Millisecond,
		unhealthyTime} {
		if err := s.daemon.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		passes(t, lasts)
		if err := s.daemon.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitMoreChecks(t)
	s.expectNoneUnhealthy(t, since)
	s.awaitAllHealthy(t)
}

// exhaustDescriptors leaves the daemon no further file descriptor.
func (s *faultyBalancerStage) exhaustDescriptors(t *testing.T) {
	since := len(s.log.String())
	pid := s.daemon.PID()
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	limit := func(limit unix.Rlimit) {
		t.Helper()
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
			t.Fatal(err)
		}
	}
	// Free descriptors below the limit would suffice for some checks; with a limit of 0, the daemon's open ones do not
	// matter.
	limit(unix.Rlimit{Cur: 0, Max: before.Max})
	testenv.Eventually(t, e2e.WaitLimit, "the daemon says that it cannot ask", func() bool {
		return strings.Contains(s.logged(since), "too many open files")
	})
	passes(t, unhealthyTime)
	limit(before)
	s.awaitMoreChecks(t)
	s.expectNoneUnhealthy(t, since)
	if log := s.logged(since); strings.Count(log, "too many open files") > 3 {
		t.Errorf("the log is long:\n%s", log)
	}
	s.awaitAllHealthy(t)
}

// blockChecks makes a firewall of the balancer's host drop the host's own packets to the backends. Clients' packets are
// forwarded, and so are checks by the VIP, which take the same path.
func (s *faultyBalancerStage) blockChecks(t *testing.T) {
	since := len(s.log.String())
	rules := "table inet fence { chain out { type filter hook output priority 0; " +
		"tcp dport " + strconv.Itoa(int(otherWebPort+portShift[lb.NAT])) + " drop; }; }"
	runOn(t, s.Balancer, rules, "nft", "-f", "-")
	s.eventually(t, "all backends that are checked by address fail and get new flows all the same",
		func(status *ops.Status) bool {
			return everyBackend(status, func(service ops.Service, b ops.Backend) bool {
				if service.Mode == lb.L2DSR {
					return b.Health.State == lb.Healthy && b.State == lb.Up
				}
				return b.Health.State == lb.Failing && b.State == lb.Up && service.Serving == ops.ServingAll
			})
		})
	s.answerAll(t, append(s.byVIP, s.byAddress...))
	runOn(t, s.Balancer, "", "nft", "delete", "table", "inet", "fence")
	s.awaitAllHealthy(t)
	s.expectFewLines(t, since)
}

// isolate disconnects the balancer's own cable for longer than it takes to find a backend unhealthy: no backend is
// reported, because the interface identifies the fault.
func (s *faultyBalancerStage) isolate(t *testing.T) {
	since := len(s.log.String())
	s.setCable(t, s.Balancer, true)
	s.eventually(t, "the balancer says that its interface is down", func(status *ops.Status) bool {
		return strings.Contains(strings.Join(status.Problems, " "), "is down")
	})
	passes(t, unhealthyTime)
	s.setCable(t, s.Balancer, false)
	// Until then the backends are unchanged, and the next test would have the line in its log.
	testenv.Eventually(t, e2e.WaitLimit, "the log says that the interface is up", func() bool {
		return strings.Contains(s.logged(since), " is up")
	})
	s.awaitAllHealthy(t)
	s.expectNoneUnhealthy(t, since)
	// One line for each reason: other lines are that this host was busy, or that no neighbour answered yet.
	if log := s.logged(since); strings.Count(log, `why="interface `) > 1 {
		t.Errorf("the log is long:\n%s", log)
	}
}

// partition disconnects the cables of all backends until each fails its checks, and connects them again.
func (s *faultyBalancerStage) partition(t *testing.T) {
	since := len(s.log.String())
	for _, server := range s.Servers {
		s.setCable(t, server, true)
	}
	s.eventually(t, "no check passes, and new flows go to all backends that have a path",
		func(status *ops.Status) bool {
			return everyBackend(status, func(service ops.Service, b ops.Backend) bool {
				return b.State == lb.NoMAC || b.Health.State == lb.Failing && b.State == lb.Up &&
					service.Serving == ops.ServingAll
			})
		})
	for _, server := range s.Servers {
		s.setCable(t, server, false)
	}
	s.awaitAllHealthy(t)
	s.expectFewLines(t, since)
}

// expectFewLines fails the test if the log has more lines than one at the beginning and one at the end, for each
// service and each backend by its checks, and one by its neighbour.
func (s *faultyBalancerStage) expectFewLines(t *testing.T, since int) {
	t.Helper()
	services := len(s.byVIP) + len(s.byAddress)
	log := s.logged(since)
	if lines := strings.Count(log, "\n"); lines > 2*2*services*(len(s.Servers)+1) {
		t.Errorf("the log has %d more lines of %d services with %d backends:\n%s", lines, services, len(s.Servers), log)
	}
}
