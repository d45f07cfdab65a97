// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// TestHealthChecksByVIP: in the modes that leave the VIP in the packet, the checks detect every failure of a backend,
// with the right reason, and its repair. They also detect that a backend no longer accepts packets for the VIPs,
// although its servers answer by its own address.
func TestHealthChecksByVIP(t *testing.T) {
	testenv.Also(t, matrixTarget)
	onHooksAtOnce(t, checkByVIP)
}

func checkByVIP(t *testing.T, hook lb.Hook) {
	s := buildStage(t, hook, 1)
	servers := s.startChecked(t, hook, keepsVIP, entry{"type": "http", "path": "/healthz", "interval": "500ms",
		"timeout": "400ms"}, webPort)
	faulty := s.Servers[1]
	server := servers[faulty.Name]
	everyOne := func(what string, state lb.Health, reason string) {
		t.Helper()
		s.eventually(t, what, func(status *ops.Status) bool {
			return everyBackend(status, func(_ ops.Service, b ops.Backend) bool {
				switch {
				case b.Name != faulty.Name:
					return b.Health.State == lb.Healthy
				case state == lb.Failing && b.State == lb.NoMAC:
					return true // its host was found to be gone before three checks had failed
				}
				return b.Health.State == state && strings.Contains(b.Health.Reason, reason)
			})
		})
	}
	everyOne("every backend is found healthy", lb.Healthy, "")
	for _, test := range append(s.checkFaults(t, server, 400*time.Millisecond),
		s.checkFaultsByVIP(t, faulty, 400*time.Millisecond)...) {
		if !test.runs() {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			if test.prepare != nil {
				test.prepare()
			}
			test.inject()
			everyOne(faulty.Name+" is found ill, and no other", lb.Failing, test.http)
			test.repair()
			everyOne(faulty.Name+" is found healthy", lb.Healthy, "")
		})
	}
	t.Run("without decapsulation", func(t *testing.T) { s.wrapOnly(t, faulty) })
	t.Run("all at once", func(t *testing.T) { s.hangAll(t, servers) })
}

// replaceAgent makes a backend keep the VIPs, without decapsulating tunnels or clearing marks: only the mode that sends
// it unchanged packets continues. It returns the agent that does so.
func (s *stage) replaceAgent(t *testing.T, faulty *lab.Host) *lab.Process {
	stop(t, s.agents[faulty.Name])
	arguments := []string{"agent", "--state-dir", filepath.Join(faulty.Dir, "state"), "--mode", string(lb.L2DSR)}
	for _, p := range paths() {
		if !p.mode.Translates() {
			arguments = append(arguments, "--vip", p.vip.String())
		}
	}
	log := &cmdtest.SyncBuffer{}
	plain := jeoul(t, faulty, log, arguments...)
	// Before that, a signal would end it at once.
	testenv.Eventually(t, e2e.WaitLimit, "the other agent is ready", func() bool {
		return strings.Contains(log.String(), "ready")
	})
	return plain
}

// wrapOnly makes a backend stop decapsulating.
func (s *stage) wrapOnly(t *testing.T, faulty *lab.Host) {
	plain := s.replaceAgent(t, faulty)
	s.eventually(t, faulty.Name+" is found ill in all modes but l2dsr", func(status *ops.Status) bool {
		return everyBackend(status, func(service ops.Service, b ops.Backend) bool {
			return (b.Health.State == lb.Failing) == (b.Name == faulty.Name && service.Mode != lb.L2DSR)
		})
	})
	stop(t, plain)
	s.startAgent(t, faulty)
	s.eventually(t, faulty.Name+" is found healthy", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool { return b.Health.State == lb.Healthy })
	})
}

// hangAll makes all backends hang at once: new flows go to all of them, and the log has a line for each host and one
// for each service. The servers are in this process: if it was stopped, verdicts have changed more often, and another
// try follows.
func (s *stage) hangAll(t *testing.T, servers map[string]*faultyServer) {
	for tries := 1; ; tries++ {
		lines := s.hangAllOnce(t, servers)
		// Each backend of each service fails and is healthy again, and each service logs which backends serve:
		// simultaneous ones share a line.
		services := len(s.status(t).Services)
		if lines <= 2*services*(len(servers)+1) {
			return
		}
		if tries == 3 {
			t.Errorf("the log has %d more lines of %d services with %d backends", lines, services, len(servers))
			return
		}
	}
}

// hangAllOnce makes all backends hang at once, and heals them. It returns the number of lines that the log has got.
func (s *stage) hangAllOnce(t *testing.T, servers map[string]*faultyServer) (lines int) {
	t.Helper()
	before := strings.Count(s.log.String(), "\n")
	every := func(h func(*faultyServer)) {
		for _, p := range servers {
			h(p)
		}
	}
	every(func(p *faultyServer) { p.answer(t, 0) })
	s.eventually(t, "new flows go to all backends, of which each fails", func(status *ops.Status) bool {
		for _, service := range status.Services {
			if service.Serving != ops.ServingAll {
				return false
			}
		}
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool {
			return b.Health.State == lb.Failing && b.State == lb.Up
		})
	})
	every(func(p *faultyServer) { p.answer(t, http.StatusOK) })
	s.eventually(t, "every backend is found healthy", func(status *ops.Status) bool {
		return everyBackend(status, func(_ ops.Service, b ops.Backend) bool { return b.Health.State == lb.Healthy })
	})
	return strings.Count(s.log.String(), "\n") - before
}
