// SPDX-License-Identifier: Apache-2.0

package cmdtest

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// BackendOf returns a backend of a service, at 192.0.2.last.
func BackendOf(service, backend string, last byte) ops.Target {
	return ops.Target{Service: service, Backend: backend, Address: netip.AddrFrom4([4]byte{192, 0, 2, last}), Port: 80}
}

// Changed returns operations of every kind.
func Changed(at time.Time) *ops.Operations {
	weight := uint16(20)
	web01, web02, db01 := BackendOf("web", "web01", 1), BackendOf("web", "web02", 2), BackendOf("db", "db01", 3)
	return &ops.Operations{
		InForce: []ops.Overlay{
			{Target: web01, Drain: &ops.Drained{On: true, By: "kim", At: at, Deadline: at.Add(10 * time.Minute)},
				Weight: &ops.Weighted{Value: 20, Configured: 5, By: "root", At: at.Add(-time.Hour)},
				Left:   ops.Left{Flows: 1234}},
			{Target: web02, Drain: &ops.Drained{On: true, By: "uid 1000", At: at, Deadline: at.Add(30 * time.Second),
				Out:        true,
				AtDeadline: &ops.Left{Tracked: true, Active: 3, Flows: 7}}},
			{Target: db01, Drain: &ops.Drained{On: true, By: "root", At: at},
				Left: ops.Left{Tracked: true, Active: 1000, Flows: 1001}},
			{Target: BackendOf("db", "db02", 4), Drain: &ops.Drained{On: false, By: "root", At: at}},
			{Target: BackendOf("db", "db03", 5), Drain: &ops.Drained{On: true, By: "root", At: at, Out: true}},
			{Target: BackendOf("db", "db04", 6), Forced: &ops.Forced{By: "kim", At: at}},
			{Target: BackendOf("db", "db05", 7), Drain: &ops.Drained{On: true, By: "kim", At: at},
				Absent: at.Add(time.Minute)},
		},
		History: []ops.Operation{
			{Verb: ops.Drain, Targets: []ops.Target{web01, db01}, By: "kim", At: at},
			{Verb: ops.Weight, Targets: []ops.Target{web01}, Weight: &weight, By: "root", At: at.Add(-time.Hour),
				Lost: "the reload of 12:00 changed its weight to 3"},
		},
	}
}

// Sample returns the status of a balancer with something of everything.
func Sample() *ops.Status {
	started := time.Date(2026, 1, 2, 3, 4, 5, 600, time.Local)
	return &ops.Status{
		Version: "v1.2.3", PID: 42, Started: started, Config: "/etc/jeoul/web.yaml", Interface: "eth0",
		Hook: ops.Hook{Name: lb.HookXDP, Generic: true, Driver: "dummy", Reason: "the driver has no native XDP"},
		Problems: []string{"interface eth0 is down: no packets until it is up",
			"service web6 has no backend that can take packets: all to it are dropped"},
		Services: []ops.Service{
			{Name: "web", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR,
				Scheduler: lb.Maglev, Backends: []ops.Backend{
					{Name: "web01", Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 1, State: lb.Up,
						Neighbour: "reachable",
						MAC:       "02:00:00:00:00:01", Packets: 1234567, Bytes: 9876543210, Connections: 12345},
					{Name: "저울02", Address: netip.MustParseAddr("192.0.2.12"), Port: 80, Weight: 65535, State: lb.NoMAC,
						Neighbour: "failed", Reason: "does not answer ARP requests"},
					{Name: "web03", Address: netip.MustParseAddr("192.0.2.13"), Port: 80, State: lb.WeightZero,
						Neighbour: "stale", MAC: "02:00:00:00:00:03"},
				}},
			{Name: "web6", VIP: netip.MustParseAddr("2001:db8::100"), Port: 443, Protocol: lb.UDP, Mode: lb.L2DSR,
				Scheduler: lb.RoundRobin, Tracked: true, Backends: []ops.Backend{
					{Name: "web01", Address: netip.MustParseAddr("2001:db8::1"), Port: 443, Weight: 1, State: lb.NoMAC,
						Neighbour: "probing"},
				}},
		},
		Outcomes: []ops.Outcome{
			{Name: "forwarded", Packets: 1234567, Help: "sent on to a backend"},
			{Name: "dropped_fragment", Help: "dropped: a fragment for a VIP"},
			{Name: "passed_not_ip", Packets: 8, Help: "left to the kernel"},
		},
	}
}

// Checked returns the status of a balancer that checks its backends.
func Checked() *ops.Status {
	status := Sample()
	web := &status.Services[0]
	web.Hash, web.Serving, web.Owner = lb.HashFlow, ops.ServingHealthy, "file"
	web.Checks = []ops.Check{{Check: "http GET /healthz", Expected: "status 200-399", Via: lb.ViaAddress,
		IntervalSeconds: 2, TimeoutSeconds: 1, Rise: 2, Fall: 3}}
	for i := range web.Backends {
		web.Backends[i].Health = &ops.Health{State: lb.Healthy, WeightPercent: 100,
			Checks: []ops.CheckResult{{State: lb.Healthy, Passed: 12, Last: status.Started, TookSeconds: 0.00123,
				Answer: "200"}}}
	}
	web.Backends[2].Health.State, web.Backends[2].State = lb.Failing, lb.Unhealthy
	web.Backends[2].Health.Checks[0] = ops.CheckResult{State: lb.Failing, Failed: 4, Last: status.Started,
		TookSeconds: 0.5, Answer: "503\nService \x1b[31munavailable", Reason: "answers with status 503"}
	web6 := &status.Services[1]
	web6.Hash, web6.Serving, web6.Owner = lb.HashFlow, ops.ServingHealthy, "api"
	return status
}
