// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/lb"
)

// sample is a balancer with something of everything.
func sample() *api.Status {
	started := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	return &api.Status{
		Version: "v1.2.3", PID: 42, Started: started, Config: "/etc/jeoul/web.yaml", Interface: "eth0",
		Hook:     api.Hook{Name: lb.HookXDP, Generic: true, Driver: "dummy", Reason: "the driver has no native XDP"},
		Problems: []string{"interface eth0 is down: no packets until it is up", "service web6 has no backend that can take packets: all to it are dropped"},
		Services: []api.Service{
			{Name: "web", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: lb.Maglev, Backends: []api.Backend{
				{Name: "web01", Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 1, State: api.Up, Neighbour: "reachable",
					MAC: "02:00:00:00:00:01", Packets: 1234567, Bytes: 9876543210, Connections: 12345},
				{Name: "저울02", Address: netip.MustParseAddr("192.0.2.12"), Port: 80, Weight: 65535, State: api.NoMAC, Neighbour: "failed"},
				{Name: "web03", Address: netip.MustParseAddr("192.0.2.13"), Port: 80, State: api.WeightZero, Neighbour: "stale", MAC: "02:00:00:00:00:03"},
			}},
			{Name: "web6", VIP: netip.MustParseAddr("2001:db8::100"), Port: 443, Protocol: lb.UDP, Mode: lb.L2DSR, Scheduler: lb.RoundRobin, Backends: []api.Backend{
				{Name: "web01", Address: netip.MustParseAddr("2001:db8::1"), Port: 443, Weight: 1, State: api.NoMAC, Neighbour: "probing"},
			}},
		},
		Outcomes: []api.Outcome{
			{Name: "forwarded", Packets: 1234567, Help: "sent on to a backend"},
			{Name: "dropped_fragment", Help: "dropped: a fragment for a VIP"},
			{Name: "passed_not_ip", Packets: 8, Help: "left to the kernel"},
		},
	}
}

func TestWriteStatus(t *testing.T) {
	idle := sample()
	idle.Problems, idle.Services, idle.Outcomes = nil, nil, idle.Outcomes[1:2]
	tests := map[string]struct {
		status  *api.Status
		verbose bool
	}{
		"status":         {sample(), false},
		"status-verbose": {sample(), true},
		"status-idle":    {idle, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			writeStatus(&got, test.status, test.verbose, test.status.Started.Add(36*time.Hour+time.Millisecond))
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
