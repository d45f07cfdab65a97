// SPDX-License-Identifier: Apache-2.0

package jeoul

import (
	"fmt"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/proxy"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjecttest"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestImportedConfig: mode proxy runs with everything in HAProxy's hand-written configuration, and the written file can
// be read again.
func TestImportedConfig(t *testing.T) {
	for name, certificate := range map[string]string{"jeoul-proxy.yaml": "",
		"jeoul-proxy-tls.yaml": "/etc/jeoul/bench.pem"} {
		setup := subjecttest.Paper()
		setup.Certificate = certificate
		if certificate != "" {
			setup.Services[0].Port, setup.Services[0].PlainPort = 443, 80
		}
		file := newJeoulProxy().config(setup, subject.Params{proxy.ParamThreads: 2}, "/tmp/jeoul.sock")
		if err := useImported(file, setup, 2, probe.Limits{OpenFiles: 20_000, Cores: 2}); err != nil {
			t.Fatal(err)
		}
		text, err := config.Write(file)
		if err != nil {
			t.Fatal(err)
		}
		subjecttest.Golden(t, name, text)
		if _, err := config.Parse(name, text); err != nil {
			t.Errorf("it is not read again: %v", err)
		}
	}
}

func TestJeoulConfig(t *testing.T) {
	for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.RoundRobin} {
		s := jeoul{lb.L2DSR, lb.HookTC}
		text, err := config.Write(s.config(subjecttest.Paper(), by(string(scheduler)), "/tmp/jeoul.sock"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.Parse("jeoul.yaml", text)
		if err != nil {
			t.Fatalf("jeoul does not accept its configuration: %v", err)
		}
		want := &config.Config{
			File: "jeoul.yaml", Interfaces: []string{"balancer-1a2b"}, Hook: lb.HookTC, Socket: "/tmp/jeoul.sock",
			Services: []lb.Service{{
				Name: "service0", VIP: netip.MustParseAddr("198.18.0.100"), Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR,
				Scheduler: scheduler, Limits: lb.Limits{Refuse: lb.RefuseByDrop},
				Backends: []lb.Backend{
					{Name: "web01", Address: netip.MustParseAddr("198.18.2.1"), Port: 80, Weight: 1},
					{Name: "web02", Address: netip.MustParseAddr("198.18.2.2"), Port: 80, Weight: 1},
				},
			}},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(config.Config{}),
			cmpopts.IgnoreFields(config.Config{}, "TableSize", "FullNAT", "Flows", "Transition", "Metrics", "API",
				"Survive", "Orphan", "Members"),
			cmpopts.IgnoreFields(lb.Service{}, "Transition"), cmpopts.EquateComparable(netip.Addr{}),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", scheduler, diff)
		}
	}
}

// TestMembersShareAPool: balancers that are members share one pool, of which each has its own part; other balancers
// have one address each.
func TestMembersShareAPool(t *testing.T) {
	setup := subjecttest.Paper()
	other := &lab.Host{Name: "lb02", IPv4: netip.MustParseAddr("198.18.0.2")}
	setup.Lab.Balancers = []*lab.Host{setup.Lab.Balancer, other}
	setup.At = other
	own, first := setup.Lab.FullNAT.Prev(), setup.Lab.FullNAT
	for members, want := range map[bool][]config.PoolAddress{
		false: {{Address: own}},
		true:  {{Address: first, Member: setup.Lab.Balancer.IPv4}, {Address: own, Member: other.IPv4}},
	} {
		setup.Members = members
		if diff := cmp.Diff(want, addresses(setup), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("members: %v (-want +got):\n%s", members, diff)
		}
	}
}

// TestJeoulHasRoomForFlows: a balancer that stores flows gets the requested room.
func TestJeoulHasRoomForFlows(t *testing.T) {
	setup := subjecttest.Paper()
	setup.Flows = 5_000_000
	for scheduler, want := range map[lb.Scheduler]uint32{lb.Maglev: 0, lb.RoundRobin: 5_000_000} {
		text, err := config.Write(jeoul{lb.L2DSR, lb.HookXDP}.config(setup, by(string(scheduler)),
			"/tmp/jeoul.sock"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.Parse("jeoul.yaml", text)
		if err != nil {
			t.Fatalf("jeoul does not accept its configuration: %v", err)
		}
		if got.Flows.Limit != want {
			t.Errorf("%s: flows.limit is %d, want %d", scheduler, got.Flows.Limit, want)
		}
	}
}

func TestJeoulAcceptsTheConfigOfItsModes(t *testing.T) {
	for _, mode := range []lb.Mode{lb.NAT, lb.FullNAT} {
		text, err := config.Write(jeoul{mode, lb.HookTC}.config(subjecttest.BulkPaper(), by("maglev"),
			"/tmp/jeoul.sock"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.Parse("jeoul.yaml", text)
		if err != nil {
			t.Errorf("%s: jeoul does not accept its configuration: %v", mode, err)
			continue
		}
		var modes []lb.Mode
		for _, service := range got.Services {
			modes = append(modes, service.Mode)
		}
		if diff := cmp.Diff([]lb.Mode{mode, mode}, modes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mode, diff)
		}
	}
}

func TestJeoulIsReadyWhenEveryBackendIsUp(t *testing.T) {
	status := func(hook lb.Hook, states ...lb.BackendState) *ops.Status {
		service := ops.Service{}
		for i, state := range states {
			mac := "02:00:12:02:00:01"
			if state == lb.NoMAC {
				mac = ""
			}
			service.Backends = append(service.Backends, ops.Backend{Name: "web0" + string(rune('1'+i)),
				State: state, MAC: mac})
		}
		return &ops.Status{Hook: ops.Hook{Name: hook}, Services: []ops.Service{service}}
	}
	s := jeoul{lb.L2DSR, lb.HookXDP}
	for _, tc := range []struct {
		name   string
		status *ops.Status
		says   string
	}{
		{"up", status(lb.HookXDP, lb.Up, lb.Up), ""},
		{"another hook", status(lb.HookTC, lb.Up, lb.Up), `"tc", not "xdp"`},
		{"no MAC", status(lb.HookXDP, lb.Up, lb.NoMAC), "web02 is no-mac"},
		{"one backend of two", status(lb.HookXDP, lb.Up), "1 backends of , not 2"},
		{"nothing", &ops.Status{Hook: ops.Hook{Name: lb.HookXDP}}, "0 services, not 1"},
	} {
		err := s.ready(tc.status, subjecttest.Paper().Services)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.says)
		}
	}
}

func TestJeoulNotesWhatBecameOfItsPackets(t *testing.T) {
	got := outcomeNote([]ops.Outcome{{Name: "forwarded", Packets: 7}, {Name: "returned", Packets: 5},
		{Name: "passed_not_ip", Packets: 3},
		{Name: "passed_to_route", Packets: 2}, {Name: "dropped_no_flow", Packets: 1}, {Name: "dropped_malformed"}})
	want := "its packets, trial transfers included: forwarded 7, returned 5, passed_to_route 2, dropped_no_flow 1"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJeoulChangesWeights(t *testing.T) {
	for _, mode := range lb.PacketModes {
		text, err := config.Write(jeoul{mode, lb.HookTC}.config(subjecttest.ChangedPaper(), by("maglev"),
			"/tmp/jeoul.sock"))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := config.Parse("jeoul.yaml", text)
		if err != nil {
			t.Errorf("%s: jeoul does not accept its configuration: %v", mode, err)
			continue
		}
		got := map[string][]uint16{}
		for _, service := range parsed.Services {
			for _, backend := range service.Backends {
				got[service.Protocol.String()] = append(got[service.Protocol.String()], backend.Weight)
			}
		}
		if diff := cmp.Diff(map[string][]uint16{"tcp": {0, 3}, "udp": {0, 3}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mode, diff)
		}
	}
}

func TestReloadsAreHeard(t *testing.T) {
	for name, tc := range map[string]struct{ log, refusal string }{
		"nothing yet": {"2026-01-01 00:00:00 INF reading /etc/jeoul.yaml again\n", "still"},
		"done":        {"INF reading a again\nINF reloaded a\n", ""},
		"refused":     {"INF reading a again\n2026-01-01 00:00:00 ERR a:3: weight: bad\n2026-01-01 00:00:00 ERR not reloaded; the balancer goes on as it was\n", "weight: bad"},
		"after that":  {"x ERR bad\nx ERR not reloaded; so\nINF reloaded a\n", ""},
	} {
		var lines reloads
		for line := range strings.Lines(tc.log) {
			lines.line(line)
		}
		err := lines.done()
		if err == nil {
			err = lines.refusal()
		}
		if (err == nil) != (tc.refusal == "") || err != nil && !strings.Contains(err.Error(), tc.refusal) {
			t.Errorf("%s: got %v, want %q", name, err, tc.refusal)
		}
	}
}

func TestWeightsLeadFromOneToAnother(t *testing.T) {
	for _, tc := range []struct {
		was, weight int
		want        string
	}{
		{1, 1, ""}, {1, 0, "drain"}, {0, 1, "enable"}, {1, 3, "weight 3"}, {3, 1, "weight 1"},
		{0, 2, "enable weight 2"},
	} {
		var got []string
		for _, order := range weightOrders(tc.was, tc.weight) {
			got = append(got, string(order.Verb))
			if order.Verb == ops.Weight {
				got = append(got, fmt.Sprint(order.Weight))
			}
		}
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("from %d to %d: %q, want %q", tc.was, tc.weight, text, tc.want)
		}
	}
}

func TestReaches(t *testing.T) {
	server := &lab.Host{Name: "web01", IPv4: netip.MustParseAddr("198.18.2.1")}
	of := func(address string, state lb.BackendState, mac string) ops.Service {
		return ops.Service{Backends: []ops.Backend{{Address: netip.MustParseAddr(address), State: state, MAC: mac}}}
	}
	up, down := of("198.18.2.1", lb.Up, "02:00:00:00:00:01"), of("198.18.2.1", lb.NoMAC, "")
	other := of("198.18.2.2", lb.NoMAC, "")
	for name, tc := range map[string]struct {
		services    []ops.Service
		reached, ok bool
	}{
		"up":                 {[]ops.Service{up, up, other}, true, true},
		"down":               {[]ops.Service{down, down}, false, true},
		"up without a MAC":   {[]ops.Service{of("198.18.2.1", lb.Up, "")}, false, true},
		"down in one of two": {[]ops.Service{up, down}, false, false},
		"in none":            {[]ops.Service{other}, false, false},
	} {
		got, err := reaches(tc.services, server)
		if got != tc.reached || (err == nil) != tc.ok {
			t.Errorf("%s: reached %t, %v", name, got, err)
		}
	}
}

func TestPasses(t *testing.T) {
	server := &lab.Host{Name: "web01", IPv4: netip.MustParseAddr("198.18.2.1")}
	of := func(address string, health *ops.Health) ops.Service {
		return ops.Service{Backends: []ops.Backend{{Address: netip.MustParseAddr(address), Health: health}}}
	}
	healthy, unknown := of("198.18.2.1", &ops.Health{State: lb.Healthy}),
		of("198.18.2.1", &ops.Health{State: lb.HealthUnknown})
	other := of("198.18.2.2", &ops.Health{State: lb.Healthy})
	for name, tc := range map[string]struct {
		services []ops.Service
		want     bool
	}{
		"healthy":                 {[]ops.Service{healthy, healthy, other}, true},
		"not asked yet":           {[]ops.Service{unknown}, false},
		"not asked in one of two": {[]ops.Service{healthy, unknown}, false},
		"without checks":          {[]ops.Service{of("198.18.2.1", nil)}, false},
		"in none":                 {[]ops.Service{other}, false},
	} {
		if got := passes(tc.services, server); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestJeoulChecks(t *testing.T) {
	for _, mode := range lb.PacketModes {
		setup := subjecttest.CheckedPaper()
		setup.Services[0].UDP = true
		text, err := config.Write(jeoul{mode, lb.HookTC}.config(setup, by("rr"), "/tmp/jeoul.sock"))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := config.Parse("jeoul.yaml", text)
		if err != nil {
			t.Errorf("%s: jeoul does not accept its configuration: %v", mode, err)
			continue
		}
		if len(parsed.Services) != 2*len(setup.Services) {
			t.Errorf("%s: %d services, want %d", mode, len(parsed.Services), 2*len(setup.Services))
		}
		for _, service := range parsed.Services {
			if len(service.Checks.List) != 1 {
				t.Errorf("%s: %s has %d checks", mode, service.Name, len(service.Checks.List))
				continue
			}
			check := service.Checks.List[0]
			if check.Type != lb.CheckHTTP || check.Port != 7001 || check.Interval != time.Second ||
				check.Timeout != 500*time.Millisecond || check.Fall != 3 || check.Rise != 2 {
				t.Errorf("%s: the check is %+v", mode, check)
			}
			if does := service.Checks.OnDown; does != lb.DefaultOnDown(service.Protocol) {
				t.Errorf("%s: flows of a backend of %s that fails: %q", mode, service.Name, does)
			}
		}
	}
}

// by returns parameters with a scheduler.
func by(scheduler string) subject.Params { return subject.Params{subject.ParamScheduler: scheduler} }
