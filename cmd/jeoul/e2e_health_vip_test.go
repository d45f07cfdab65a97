// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/ops"
)

// TestHealthChecksByVIP: a backend that no longer takes packets for the VIPs, though its servers
// answer by its own address, is found ill in the modes that leave the VIP in the packet, and
// healthy when it has the VIPs again.
func TestHealthChecksByVIP(t *testing.T) {
	s := buildStage(t, lb.HookTC, 1)
	var services []entry
	for _, p := range paths() {
		if p.mode.Translates() {
			continue
		}
		service := s.service(p, webPort)
		service["check"] = entry{"type": "tcp", "interval": "500ms", "timeout": "400ms"}
		services = append(services, service)
	}
	configuration := s.configuration()
	configuration["services"] = services
	s.configure(t, lb.HookTC, configuration)
	for _, server := range s.Servers {
		s.startAgent(t, server)
		s.startServers(t, server)
	}
	s.start(t)
	ill := s.Servers[1]
	everyOne := func(what string, state lb.Health) {
		t.Helper()
		s.eventually(t, what, func(status *ops.Status) bool {
			return everyBackend(status, func(_ ops.Service, b ops.Backend) bool {
				if b.Name == ill.Name {
					return b.Health.State == state
				}
				return b.Health.State == lb.Healthy
			})
		})
	}
	everyOne("every backend is found healthy", lb.Healthy)
	stop(t, s.agents[ill.Name])
	everyOne(ill.Name+" is found ill, and no other", lb.Failing)
	s.startAgent(t, ill)
	everyOne(ill.Name+" is found healthy", lb.Healthy)
}
