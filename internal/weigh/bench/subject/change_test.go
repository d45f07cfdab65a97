// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// changedPaper is a laboratory on paper with a server that drains and one that
// has three times the share, at TCP and UDP.
func changedPaper() Setup {
	setup := paper()
	setup.Services[0].UDP = true
	setup.Services[0].Weights = map[string]int{"web01": 0, "web02": 3}
	return setup
}

func TestChangedConfigs(t *testing.T) {
	setup := changedPaper()
	haproxy := haproxyValuesOf(setup, 2, 9750, 2)
	haproxy.Socket = "/tmp/haproxy.sock"
	checkConfigs(t, map[string]filled{
		"haproxytcp-changed.cfg": {haproxyTCPConfig, haproxy},
		"nginx-stream-changed.conf": {nginxStreamConfig,
			nginxStreamValues{Dir: "/tmp", Threads: 2, OpenFiles: 20_000, WorkerConnections: 19_800,
				Services: proxyServices(setup)}},
		"keepalived-changed.conf": {keepalivedConfig, keepalived{ipvsMasquerade}.services(setup)},
	})
}

// checkedPaper is a laboratory on paper whose servers are checked.
func checkedPaper() Setup {
	setup := changedPaper()
	setup.Services[0].Check = &Check{Port: 7001, Interval: time.Second, Timeout: 500 * time.Millisecond,
		Fall: 3, Rise: 2}
	return setup
}

func TestCheckedConfigs(t *testing.T) {
	haproxy := haproxyValuesOf(checkedPaper(), 2, 9750, 2)
	haproxy.Socket = "/tmp/haproxy.sock"
	checkConfigs(t, map[string]filled{
		"haproxytcp-checked.cfg":  {haproxyTCPConfig, haproxy},
		"keepalived-checked.conf": {keepalivedConfig, keepalived{ipvsDirect}.services(checkedPaper())},
	})
	for _, mode := range lb.PacketModes {
		setup := checkedPaper()
		setup.Services[0].UDP = true
		text, err := config.Write(jeoul{mode, lb.HookTC}.config(setup, Params{paramScheduler: "rr"}, "/tmp/jeoul.sock"))
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
			if does := service.Checks.OnDown; does != lb.UsualOnDown(service.Protocol) {
				t.Errorf("%s: flows of a backend of %s that fails: %q", mode, service.Name, does)
			}
		}
	}
}

// TestHAProxyShowsWhoRuns reads what HAProxy 2.6 shows of its servers.
func TestHAProxyShowsWhoRuns(t *testing.T) {
	servers := "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight\n" +
		"2 service0 1 web01 198.18.2.1 2 0 1\n2 service0 2 web02 198.18.2.2 0 0 1\n" +
		"3 service1 1 web01 198.18.2.1 2 0 1\n3 service1 2 web02 198.18.2.2 0 0 1\n3 service1 3 web03 198.18.2.3 2 0 1\n2 service0 3 web03 198.18.2.3 0 0 1\n"
	for server, want := range map[string]struct{ runs, fails bool }{
		"web01": {true, false}, "web02": {false, false}, "web03": {false, true}, "web04": {false, true},
	} {
		if got, err := haproxyRuns(servers, server); got != want.runs || (err != nil) != want.fails {
			t.Errorf("%s: runs %t, %v", server, got, err)
		}
	}
}

func TestKeepalivedAcceptsItsConfigs(t *testing.T) {
	if _, err := exec.LookPath(keepalivedProgram); err != nil {
		t.Skip("keepalived is not installed: `make deps-vm` brings it")
	}
	for _, name := range []string{"keepalived-changed.conf", "keepalived-checked.conf"} {
		log := filepath.Join(t.TempDir(), "log")
		output, err := exec.CommandContext(t.Context(), keepalivedProgram, "--check", "--config-test="+log,
			"--use-file", filepath.Join("testdata", name)).CombinedOutput()
		words, _ := os.ReadFile(log)
		if err != nil || len(words) > 0 {
			t.Errorf("%s: %v: %s%s", name, err, output, words)
		}
	}
}

// TestKeepalivedServes tells servers that the kernel has in all services, in some and in none.
func TestKeepalivedServes(t *testing.T) {
	table := keepalivedTable{
		"tcp": {netip.MustParseAddrPort("198.18.2.1:80"): 1, netip.MustParseAddrPort("198.18.2.2:80"): 1},
		"udp": {netip.MustParseAddrPort("198.18.2.1:80"): 1},
	}
	for server, want := range map[string]struct{ in, fails bool }{
		"198.18.2.1": {true, false}, "198.18.2.2": {false, true}, "198.18.2.3": {false, false},
	} {
		if got, err := table.serves(netip.MustParseAddr(server)); got != want.in || (err != nil) != want.fails {
			t.Errorf("%s: in %t, %v", server, got, err)
		}
	}
}

func TestJeoulChangesWeights(t *testing.T) {
	for _, mode := range lb.PacketModes {
		text, err := config.Write(jeoul{mode, lb.HookTC}.config(changedPaper(), Params{paramScheduler: "maglev"},
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

func TestIPTablesLeavesOutWhatDrains(t *testing.T) {
	setup := changedPaper()
	want := `*nat
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 80 -j DNAT --to-destination 198.18.2.2:80
-A PREROUTING -d 198.18.0.100 -p udp -m udp --dport 80 -j DNAT --to-destination 198.18.2.2:80
COMMIT
`
	if diff := cmp.Diff(want, string(iptablesRules{to: toServer}.text(setup, false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	err := (&kernelNAT{rules: iptablesRules{}}).Change(t.Context(), setup.Services)
	if !errors.Is(err, ErrCannot) || !strings.Contains(err.Error(), "web02 into 3 rules") {
		t.Errorf("weights: got %v, want that it cannot", err)
	}
}

func TestSetupsShareNothing(t *testing.T) {
	setup := changedPaper()
	copied := setup.with(setup.Services)
	setup.Services[0].Weights["web02"] = 9
	setup.Services[0].Servers[1] = nil
	if of := copied.Services[0]; of.Servers[1] == nil || of.Weight(of.Servers[1]) != 3 {
		t.Errorf("the copy changed with the original: %+v", of)
	}
}

func TestReloadsAreHeard(t *testing.T) {
	for name, tc := range map[string]struct{ log, refusal string }{
		"nothing yet": {"2026-01-01 00:00:00 INF reading /etc/jeoul.yaml again\n", "still"},
		"in halves":   {"INF relo", "still"},
		"done":        {"INF reading a again\nINF reloaded a\n", ""},
		"refused":     {"INF reading a again\n2026-01-01 00:00:00 ERR a:3: weight: bad\n2026-01-01 00:00:00 ERR not reloaded; the balancer goes on as it was\n", "weight: bad"},
		"after that":  {"x ERR bad\nx ERR not reloaded; so\nINF reloaded a\n", ""},
	} {
		var told reloads
		heard := tail{hear: told.line}
		for half := range strings.SplitAfterSeq(tc.log, "re") {
			if _, err := heard.Write([]byte(half)); err != nil {
				t.Fatal(err)
			}
		}
		err := told.done()
		if err == nil {
			err = told.refusal()
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
