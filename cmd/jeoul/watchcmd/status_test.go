// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"bytes"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// modes returns a status with the parts that other modes and several interfaces have.
func modes() *ops.Status {
	status := cmdtest.Sample()
	hook := ops.Hook{Name: lb.HookTC, Driver: "ixgbe", Reason: "as configured"}
	status.Hook, status.Problems, status.Outcomes = hook, nil, nil
	status.Interfaces = []ops.Interface{{Name: "eth0", Up: true, Hook: hook}, {Name: "eth1", Up: true, Hook: hook}}
	near, far, router := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.2"),
		netip.MustParseAddr("192.0.2.254")
	status.Services = []ops.Service{
		{Name: "dsr", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP, Mode: lb.DSCP, DSCP: 5,
			Scheduler: lb.Maglev, Backends: []ops.Backend{
				{Name: "near", Address: near, Port: 80, Weight: 1, State: lb.Up, Neighbour: "reachable",
					Interface: "eth0",
					NextHop:   near, MAC: "02:00:00:00:00:01", MTU: 1500},
				{Name: "far", Address: far, Port: 80, Weight: 1, State: lb.NoMAC, Neighbour: "failed",
					Interface: "eth1",
					NextHop:   router, MTU: 1400,
					Reason: "is behind the router 192.0.2.254, which does not answer ARP requests"},
				{Name: "lost", Address: netip.MustParseAddr("203.0.113.1"), Port: 80, Weight: 1, State: lb.NoRoute,
					Neighbour: "unknown", Reason: "has no route",
					Since: status.Started.Add(time.Hour)},
			}},
		{Name: "nat", VIP: netip.MustParseAddr("192.0.2.101"), Port: 80, Protocol: lb.TCP, Mode: lb.NAT, MSS: 1400,
			Scheduler: lb.Maglev, Backends: []ops.Backend{
				{Name: "near", Address: near, Port: 8080, Weight: 1, State: lb.Up, Neighbour: "reachable",
					Interface: "eth0", NextHop: near, MAC: "02:00:00:00:00:01", MTU: 1500,
					Packets: 1000, Bytes: 64000, Connections: 10, ReturnedPackets: 2000, ReturnedBytes: 3000000,
					Answered: 9, Refused: 1},
			}},
		{Name: "full", VIP: netip.MustParseAddr("192.0.2.102"), Port: 80, Protocol: lb.TCP, Mode: lb.FullNAT,
			Scheduler: lb.Maglev, Tracked: true, Active: 33000, Flows: 34000, Backends: []ops.Backend{
				{Name: "near", Address: near, Port: 80, Weight: 1, State: lb.Up, Neighbour: "reachable",
					Interface: "eth0",
					NextHop:   near, MAC: "02:00:00:00:00:01", MTU: 1500,
					Active: 33000, Flows: 34000, Ports: &ops.Ports{Held: 32500, Limit: 40000, Scarce: true}},
			}},
	}
	return status
}

// tracking returns the status of a balancer that tracks flows, refuses some, and is in a change.
func tracking() *ops.Status {
	status := cmdtest.Sample()
	at := status.Started.Add(36 * time.Hour)
	status.Problems, status.Outcomes, status.Generation = nil, nil, 7
	status.Flows = &ops.Flows{Proven: 1234, ProvenLimit: 1000000, Unproven: 56, UnprovenLimit: 262144, Bytes: 80777216}
	status.Memory = &ops.Memory{Total: 90000001, Proven: 64000000, Unproven: 16777216, Returns: 1,
		Configuration: 1234567, Counters: 65536, Fragments: 1000}
	status.Operations = *cmdtest.Changed(at.Add(-time.Minute))
	backend := func(name string, last byte) ops.Backend {
		address := netip.AddrFrom4([4]byte{192, 0, 2, last})
		return ops.Backend{Name: name, Address: address, Port: 80, Weight: 1, State: lb.Up, Neighbour: "reachable",
			NextHop: address, MAC: "02:00:00:00:00:01"}
	}
	web01, web02, web03, db01 := backend("web01", 1), backend("web02", 2), backend("web03", 3), backend("db01", 4)
	web01.State, web01.Flows, web01.Reason, web02.State = lb.Draining, 1234, "does not answer ARP requests", lb.Out
	db01.Active, db01.Upper, db01.Flows = 1000, 2000, 1001
	status.Services = []ops.Service{
		{Name: "web", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR,
			Scheduler: lb.Maglev, Hash: lb.HashSource, TableDigest: "bda3065bd78f73ba",
			Limits: &ops.Limits{Rate: 1000, Burst: 100, Refuse: lb.RefuseByReset}, Flows: 1234,
			Transition: &ops.Transition{Since: at.Add(-time.Minute), Until: at.Add(14 * time.Minute), MovedSlots: 340,
				Slots: 1021, Base: true},
			Backends: []ops.Backend{web01, web02, web03}},
		{Name: "old", VIP: netip.MustParseAddr("192.0.2.100"), Port: 81, Protocol: lb.TCP, Mode: lb.L2DSR,
			Scheduler: lb.SourceHash, Hash: lb.HashSource,
			Transition: &ops.Transition{Since: at.Add(-time.Hour), MovedSlots: 10, Slots: 1021},
			Backends:   []ops.Backend{web03}},
		{Name: "db", VIP: netip.MustParseAddr("192.0.2.101"), Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR,
			Scheduler: lb.WeightedLeastConnections, Hash: lb.HashFlow,
			Tracked: true, Active: 1000, Flows: 1001, Persistence: &ops.Persistence{TimeoutSeconds: 300, Prefix: 24,
				Group: "shop"},
			Limits: &ops.Limits{Connections: 50000, Refuse: lb.RefuseByDrop}, Backends: []ops.Backend{db01, web03}},
	}
	return status
}

func TestWriteStatus(t *testing.T) {
	idle := cmdtest.Sample()
	idle.Problems, idle.Services, idle.Outcomes = nil, nil, idle.Outcomes[1:2]
	tests := map[string]struct {
		status *ops.Status
		form   statusForm
	}{
		"status":         {cmdtest.Sample(), statusForm{}},
		"status-verbose": {cmdtest.Sample(), statusForm{verbose: true}},
		"status-idle":    {idle, statusForm{}},
		"status-modes":   {modes(), statusForm{}},
		"status-wide":    {modes(), statusForm{wide: true}},
		"status-tracked": {tracking(), statusForm{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			writeStatus(&got, test.status, test.form, test.status.Started.Add(36*time.Hour+time.Millisecond))
			cmdtest.WantGolden(t, name, got.Bytes())
		})
	}
}

// TestStatusFits: no table of a mode is wider than a terminal, and the omitted columns are named and can be shown.
func TestStatusFits(t *testing.T) {
	status := modes()
	for i, s := range status.Services {
		s.Checks = []ops.Check{{Check: "tcp"}}
		for j := range s.Backends {
			b := &status.Services[i].Backends[j]
			b.Name, b.Origin, b.NextHop, b.Health = "shop-web-0017", lb.FromDNS, netip.MustParseAddr("192.0.2.254"),
				&ops.Health{State: lb.Healthy, WeightPercent: 100}
			b.Connections, b.Packets, b.Bytes, b.ReturnedPackets, b.ReturnedBytes, b.Answered = 1e6, 1e8, 1e11,
				1e8, 1e12, 1e6
		}
		columns := columnsOf(s, true)
		var fits, wide bytes.Buffer
		writeBackends(&fits, status.Services[i].Backends, columns, false)
		writeBackends(&wide, status.Services[i].Backends, columns, true)
		head, _, _ := strings.Cut(fits.String(), "\n")
		for line := range strings.Lines(fits.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > statusWidth {
				t.Errorf("%s: %d columns: %s", s.Name, n, line)
			}
		}
		for _, c := range columns {
			name := strings.ToUpper(c.name)
			if !strings.Contains(wide.String(), name) {
				t.Errorf("%s: %s is not in the wide table", s.Name, c.name)
			}
			if _, also, _ := strings.Cut(fits.String(), "-o wide also shows: "); !strings.Contains(head, name) &&
				!strings.Contains(also, c.name) {
				t.Errorf("%s: %s is left out, and not named:\n%s", s.Name, c.name, fits.String())
			}
		}
	}
}

// TestDiscoveredUntil: after the time until which a set was used, the status does not say that it is used until then.
func TestDiscoveredUntil(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	d := ops.Discovered{From: "dns web.example.com", Backends: 2, Taken: until.Add(-time.Hour), AgeSeconds: 60,
		Problem: "no answer", Until: until}
	for now, want := range map[time.Time]string{
		until.Add(-time.Second): "; used until 2026-01-02 03:04:05: no answer",
		until:                   "; used no longer since 2026-01-02 03:04:05: no answer",
	} {
		if got := discoveredText(d, now); !strings.HasSuffix(got, want) {
			t.Errorf("at %s: %q, want an end of %q", now, got, want)
		}
	}
}

// TestStatusHealth: the checks, the healthy backends, and the reasons of the others.
func TestStatusHealth(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	backend := func(name string, state lb.BackendState, h *ops.Health) ops.Backend {
		return ops.Backend{Name: name, Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 1, State: state,
			Neighbour: "reachable", MAC: "02:00:00:00:00:01", Health: h}
	}
	web01 := backend("web01", lb.Unhealthy, &ops.Health{State: lb.Failing, Since: at, Reason: "answers with status 503",
		WeightPercent: 100,
		Checks: []ops.CheckResult{{State: lb.Failing, Failed: 4, Last: at.Add(time.Minute), TookSeconds: 0.0015,
			Answer: "status 503"}}})
	web01.Reason = "answers with status 503"
	service := ops.Service{Name: "web", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP,
		Mode: lb.NAT, Scheduler: lb.Maglev, Serving: ops.ServingHealthy,
		Checks: []ops.Check{{Check: "http GET /", Expected: "status 200-399", Via: lb.ViaAddress, IntervalSeconds: 2,
			TimeoutSeconds: 1, Rise: 2, Fall: 3}},
		Backends: []ops.Backend{web01,
			backend("web02", lb.Up, &ops.Health{State: lb.Healthy, Since: at, WeightPercent: 50}),
			backend("web03", lb.Draining, &ops.Health{State: lb.Healthy, Since: at, WeightPercent: 100, Drain: true}),
			backend("web04", lb.Standby, &ops.Health{State: lb.HealthUnknown, WeightPercent: 100})}}
	var out bytes.Buffer
	writeService(&out, service, false, statusForm{}, at)
	for _, want := range []string{
		"  check http GET / via address every 2s, within 1s, rise 2, fall 3: status 200-399\n",
		"  web01 answers with status 503 (since 2026-01-02 03:04:05)\n    http GET /: 4 failed in a row, the last at 03:05:05 after 1.5ms: status 503; expected: status 200-399\n",
		"  unhealthy  failing  ", "  up         healthy, 50%  ", "  draining   healthy, drain  ",
		"  standby    unknown  ",
	} {
		if got := regexp.MustCompile(" {2,}").ReplaceAllString(out.String(), "  "); !strings.Contains(got,
			regexp.MustCompile(" {2,}").ReplaceAllString(want, "  ")) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestStatusOutliers: an ejected backend is shown with the reason, the beginning and the end of its ejection.
func TestStatusOutliers(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	const reason = "has answered 0 of 40 new connections in 5s, and refused 40"
	web01 := ops.Backend{Name: "web01", Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 1,
		State: lb.Ejected, Reason: reason, Since: at,
		Ejection: &ops.Ejection{Since: at, Until: at.Add(time.Minute), Times: 2, Reason: reason}}
	service := ops.Service{Name: "web", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP,
		Mode: lb.NAT, Scheduler: lb.Maglev, Serving: ops.ServingHealthy, OnDown: lb.KeepFlows,
		Outliers: &ops.Outliers{FailuresPercent: 50, Connections: 20, IntervalSeconds: 5, PauseSeconds: 30,
			LongestPauseSeconds: 300, EjectedPercent: 40}, Backends: []ops.Backend{web01}}
	var out bytes.Buffer
	writeService(&out, service, false, statusForm{}, at)
	for _, want := range []string{
		"  a backend is ejected for 30s to 5m0s that fails 50% of what clients send it in 5s, of 20 or more; at most 40% of the backends at a time\n",
		"  web01 has answered 0 of 40 new connections in 5s, and refused 40: ejected until 03:05:05, 2 times of late (since 2026-01-02 03:04:05)\n",
		" ejected ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), reason); n != 1 {
		t.Errorf("the reason is there %d times:\n%s", n, out.String())
	}
}
