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
				{Name: "저울02", Address: netip.MustParseAddr("192.0.2.12"), Port: 80, Weight: 65535, State: api.NoMAC, Neighbour: "failed", Reason: "does not answer ARP requests"},
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
		FullNAT: &api.FullNAT{Flows: 12345, Limit: 262144},
	}
}

// modes is a balancer with what the other modes and several interfaces show.
func modes() *api.Status {
	status := sample()
	hook := api.Hook{Name: lb.HookTC, Driver: "ixgbe", Reason: "as configured"}
	status.Hook, status.Problems, status.Outcomes = hook, nil, nil
	status.Interfaces = []api.Interface{{Name: "eth0", Up: true, Hook: hook}, {Name: "eth1", Up: true, Hook: hook}}
	near, far, router := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("192.0.2.254")
	status.Services = []api.Service{
		{Name: "dsr", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP, Mode: lb.DSCP, DSCP: 5, Scheduler: lb.Maglev, Backends: []api.Backend{
			{Name: "near", Address: near, Port: 80, Weight: 1, State: api.Up, Neighbour: "reachable", Interface: "eth0", NextHop: near, MAC: "02:00:00:00:00:01", MTU: 1500},
			{Name: "far", Address: far, Port: 80, Weight: 1, State: api.NoMAC, Neighbour: "failed", Interface: "eth1", NextHop: router, MTU: 1400,
				Reason: "is behind the router 192.0.2.254, which does not answer ARP requests"},
			{Name: "lost", Address: netip.MustParseAddr("203.0.113.1"), Port: 80, Weight: 1, State: api.NoRoute, Neighbour: "unknown", Reason: "has no route"},
		}},
		{Name: "nat", VIP: netip.MustParseAddr("192.0.2.101"), Port: 80, Protocol: lb.TCP, Mode: lb.NAT, MSS: 1400, Scheduler: lb.Maglev, Backends: []api.Backend{
			{Name: "near", Address: near, Port: 8080, Weight: 1, State: api.Up, Neighbour: "reachable", Interface: "eth0", NextHop: near, MAC: "02:00:00:00:00:01", MTU: 1500,
				Packets: 1000, Bytes: 64000, Connections: 10, ReturnedPackets: 2000, ReturnedBytes: 3000000},
		}},
	}
	return status
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
		"status-modes":   {modes(), false},
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
