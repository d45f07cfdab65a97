// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/lab"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/testenv"
)

var update = flag.Bool("update", false, "write the golden files")

// paper is a laboratory on paper: the plan of one, that nobody built.
func paper() Setup {
	return Setup{
		Port: 80,
		Lab: &lab.Lab{
			VIP4:     netip.MustParseAddr("198.18.0.100"),
			Balancer: &lab.Host{Name: "balancer", Interface: "balancer-1a2b", IPv4: netip.MustParseAddr("198.18.0.1")},
			Servers: []*lab.Host{
				{Name: "web01", IPv4: netip.MustParseAddr("198.18.2.1")},
				{Name: "web02", IPv4: netip.MustParseAddr("198.18.2.2")},
			},
		},
	}
}

func TestHAProxyConfig(t *testing.T) {
	got, err := haproxyValuesOf(paper(), 2, 9750, 2).render()
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "haproxy.cfg")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHAProxyAcceptsItsConfig(t *testing.T) {
	program := testenv.Program(t, "haproxy")
	output, err := exec.Command(program, "-c", "-f", filepath.Join("testdata", "haproxy.cfg")).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, output)
	}
	if bytes.Contains(output, []byte("WARNING")) {
		t.Errorf("it warns: %s", output)
	}
}

func TestJeoulConfig(t *testing.T) {
	for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.RoundRobin} {
		s := jeoulL2DSR{hook: lb.HookTC}
		text, err := yaml.Marshal(s.config(paper(), Params{paramScheduler: string(scheduler)}, "/tmp/jeoul.sock"))
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
				Name: "web", VIP: netip.MustParseAddr("198.18.0.100"), Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: scheduler,
				Backends: []lb.Backend{
					{Name: "web01", Address: netip.MustParseAddr("198.18.2.1"), Port: 80, Weight: 1},
					{Name: "web02", Address: netip.MustParseAddr("198.18.2.2"), Port: 80, Weight: 1},
				},
			}},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(config.Config{}), cmpopts.IgnoreFields(config.Config{}, "TableSize"),
			cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", scheduler, diff)
		}
	}
}

func TestJeoulIsReadyWhenEveryBackendIsUp(t *testing.T) {
	status := func(hook lb.Hook, states ...api.State) *api.Status {
		service := api.Service{}
		for i, state := range states {
			mac := "02:00:12:02:00:01"
			if state == api.NoMAC {
				mac = ""
			}
			service.Backends = append(service.Backends, api.Backend{Name: "web0" + string(rune('1'+i)), State: state, MAC: mac})
		}
		return &api.Status{Hook: api.Hook{Name: hook}, Services: []api.Service{service}}
	}
	s := jeoulL2DSR{hook: lb.HookXDP}
	for _, tc := range []struct {
		name   string
		status *api.Status
		says   string
	}{
		{"up", status(lb.HookXDP, api.Up, api.Up), ""},
		{"another hook", status(lb.HookTC, api.Up, api.Up), `"tc", not "xdp"`},
		{"no MAC", status(lb.HookXDP, api.Up, api.NoMAC), "web02 is no-mac"},
		{"one backend of two", status(lb.HookXDP, api.Up), "one service with 2 backends"},
		{"nothing", &api.Status{Hook: api.Hook{Name: lb.HookXDP}}, "one service with 2 backends"},
	} {
		err := s.ready(tc.status, 2)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.says)
		}
	}
}
