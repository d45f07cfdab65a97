// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

var update = flag.Bool("update", false, "write the golden files")

// paper is a laboratory on paper: the plan of one, never built.
func paper() Setup {
	l := &lab.Lab{
		FullNAT:  netip.MustParseAddr("198.18.0.99"),
		VIP4:     netip.MustParseAddr("198.18.0.100"),
		Balancer: &lab.Host{Name: "balancer", Interface: "balancer-1a2b", IPv4: netip.MustParseAddr("198.18.0.1")},
		Servers: []*lab.Host{
			{Name: "web01", IPv4: netip.MustParseAddr("198.18.2.1")},
			{Name: "web02", IPv4: netip.MustParseAddr("198.18.2.2")},
		},
	}
	return Setup{Lab: l, Services: []Service{{Port: 80, Servers: l.Servers}}}
}

// bulkPaper is one with a service for each of two clients.
func bulkPaper() Setup {
	setup := paper()
	setup.Services = []Service{{Port: 5201, Servers: setup.Lab.Servers[:1]},
		{Port: 5202, Servers: setup.Lab.Servers[1:]}}
	return setup
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// filled is a configuration, and what it is filled in with.
type filled struct {
	config *template.Template
	values any
}

// checkConfigs holds configurations against their golden files, by name.
func checkConfigs(t *testing.T, all map[string]filled) {
	t.Helper()
	for name, of := range all {
		got, err := render(of.config, of.values)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, got)
	}
}

func TestProxyConfigs(t *testing.T) {
	haproxy := func(setup Setup) haproxyValues {
		values := haproxyValuesOf(setup, 2, 9750, 2)
		values.Splice, values.Socket = true, "/tmp/jeoul-lab-1a2b/balancer/haproxy.sock"
		return values
	}
	const dir = "/tmp/jeoul-lab-1a2b/balancer"
	checkConfigs(t, map[string]filled{
		"haproxy.cfg":    {haproxyConfig, haproxy(paper())},
		"haproxytcp.cfg": {haproxyTCPConfig, haproxy(bulkPaper())},
		"nginx-stream.conf": {nginxStreamConfig,
			nginxStreamValues{Module: "/usr/lib/nginx/modules/ngx_stream_module.so", Dir: dir,
				Threads: 2, OpenFiles: 20_000, WorkerConnections: 19_800, Services: proxyServices(bulkPaper())}},
		"nginx-http.conf": {nginxHTTPConfig, nginxHTTPValues{Dir: dir, Threads: 2, OpenFiles: 20_000,
			WorkerConnections: 19_800,
			Services:          proxyServices(paper())}},
		"envoy.yaml": {envoyConfig, envoyValues{MaxConnections: 9750, Services: proxyServices(changedPaper())}},
	})
}

// TestImportedConfig has mode proxy run with all that HAProxy has by hand; what is written is read again.
func TestImportedConfig(t *testing.T) {
	for name, certificate := range map[string]string{"jeoul-proxy.yaml": "",
		"jeoul-proxy-tls.yaml": "/etc/jeoul/bench.pem"} {
		setup := paper()
		setup.Certificate = certificate
		if certificate != "" {
			setup.Services[0].Port, setup.Services[0].PlainPort = 443, 80
		}
		subject := newJeoulProxy()
		file := subject.config(setup, Params{paramThreads: 2}, "/tmp/jeoul.sock")
		if err := hand(file, setup, haproxyValuesOf(setup, 2, 9750, 2)); err != nil {
			t.Fatal(err)
		}
		text, err := config.Write(file)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, text)
		if _, err := config.Parse(name, text); err != nil {
			t.Errorf("it is not read again: %v", err)
		}
	}
}

func TestHAProxyAcceptsItsConfigs(t *testing.T) {
	program := testenv.Program(t, "haproxy")
	for _, name := range []string{"haproxy.cfg", "haproxytcp.cfg"} {
		output, err := exec.Command(program, "-c", "-f", filepath.Join("testdata", name)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, output)
		}
		if bytes.Contains(output, []byte("WARNING")) {
			t.Errorf("%s: it warns: %s", name, output)
		}
	}
}

func TestIPTablesRules(t *testing.T) {
	setup := paper()
	setup.Services = append(setup.Services, bulkPaper().Services[1])
	want := `*nat
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 80 -m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination 198.18.2.1:80
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 80 -j DNAT --to-destination 198.18.2.2:80
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 5202 -j DNAT --to-destination 198.18.2.2:5202
COMMIT
`
	if diff := cmp.Diff(want, string(iptablesRules{to: toServer}.text(setup, false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestIPTablesRulesOfContainers has the rules of a host that has its servers and its clients.
func TestIPTablesRulesOfContainers(t *testing.T) {
	setup := paper()
	setup.Lab.Balancer.Bridge, setup.Local = "br0", true
	setup.Services[0].Servers = setup.Services[0].Servers[:1]
	want := `*nat
-F PREROUTING
-F OUTPUT
-F POSTROUTING
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 80 -j DNAT --to-destination 198.18.2.1:80
-A OUTPUT -d 198.18.0.100 -p tcp -m tcp --dport 80 -j DNAT --to-destination 198.18.2.1:80
-A POSTROUTING -s 198.19.0.0/16 -d 198.19.0.0/16 -m conntrack --ctstate DNAT -j MASQUERADE
COMMIT
`
	if diff := cmp.Diff(want, string(iptablesRules{to: toServer}.text(setup, true))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNFTRules(t *testing.T) {
	setup := changedPaper()
	setup.Services[0].Weights["web01"] = 1
	setup.Services = append(setup.Services, bulkPaper().Services[1])
	want := `table ip jeoul_bench
delete table ip jeoul_bench
table ip jeoul_bench {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 198.18.0.100 tcp dport 80 dnat to numgen inc mod 4 map { 0 : 198.18.2.1, 1-3 : 198.18.2.2 }
		ip daddr 198.18.0.100 udp dport 80 dnat to numgen inc mod 4 map { 0 : 198.18.2.1, 1-3 : 198.18.2.2 }
		ip daddr 198.18.0.100 tcp dport 5202 dnat to 198.18.2.2
	}
}
`
	if diff := cmp.Diff(want, string(nftRules{}.text(setup))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	none := changedPaper()
	none.Services[0].Weights["web02"] = 0
	if text := string(nftRules{}.text(none)); strings.Contains(text, "dnat to") {
		t.Errorf("a rule where no server takes connections:\n%s", text)
	}
}

func TestLoxiLBRules(t *testing.T) {
	text, err := json.Marshal(loxilbRules(changedPaper()))
	if err != nil {
		t.Fatal(err)
	}
	endpoints := `"endpoints":[{"endpointIP":"198.18.2.1","targetPort":80,"weight":0},{"endpointIP":"198.18.2.2","targetPort":80,"weight":3}]}`
	want := `[{"serviceArguments":{"externalIP":"198.18.0.100","port":80,"protocol":"tcp","sel":0,"mode":0},` +
		endpoints +
		`,{"serviceArguments":{"externalIP":"198.18.0.100","port":80,"protocol":"udp","sel":0,"mode":0},` +
		endpoints + "]"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestClearLoxiLB puts onto a balancer what LoxiLB may leave, as far as that can be
// had without it.
func TestClearLoxiLB(t *testing.T) {
	testenv.Root(t)
	l, err := lab.New(t.Context(), lab.Spec{Clients: 1, Servers: 1, Dir: filepath.Join(t.TempDir(), "lab")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	state := func() (names []string) {
		err := l.Balancer.Do(func() error {
			links, err := netlink.LinkList()
			if err != nil {
				return err
			}
			for _, link := range links {
				qdiscs, err := netlink.QdiscList(link)
				if err != nil {
					return err
				}
				names = append(names, link.Attrs().Name)
				for _, qdisc := range qdiscs {
					names = append(names, qdisc.Type())
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := state()
	err = l.Balancer.Do(func() error {
		link, err := netlink.LinkByName(l.Balancer.Interface)
		if err != nil {
			return err
		}
		own := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "llb0peer"}
		own.Name = loxilbDevice
		return errors.Join(netlink.LinkAdd(own), netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}))
	})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(state(), before) {
		t.Fatal("nothing was put there")
	}
	if err := clearLoxiLB(l.Balancer, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestRelaysHavePortsOfTheirOwn(t *testing.T) {
	setup := bulkPaper()
	want := `*nat
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 5201 -j DNAT --to-destination 198.18.0.1:10000
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 5202 -j DNAT --to-destination 198.18.0.1:10001
COMMIT
`
	if diff := cmp.Diff(want, string(iptablesRules{to: toRelay}.text(setup, false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTargets(t *testing.T) {
	for _, tc := range []struct {
		running Running
		want    []string
	}{
		{&runningDirect{setup: paper()}, []string{"198.18.0.100:80", "198.18.0.100:80", "198.18.0.100:80"}},
		{&runningDirect{setup: bulkPaper()}, []string{"198.18.2.1:5201", "198.18.2.2:5202", "198.18.2.1:5201"}},
		{&runningRouted{setup: paper()}, []string{"198.18.0.100:80", "198.18.0.100:80", "198.18.0.100:80"}},
		{&runningRouted{setup: bulkPaper()}, []string{"198.18.2.1:5201", "198.18.2.2:5202", "198.18.2.1:5201"}},
		{&runningJeoul{setup: bulkPaper()}, []string{"198.18.0.100:5201", "198.18.0.100:5202", "198.18.0.100:5201"}},
	} {
		var got []string
		for i := range tc.want {
			got = append(got, tc.running.Target(i).String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", tc.running, diff)
		}
	}
}

func TestUndoTakesBackTheLastFirst(t *testing.T) {
	var got []string
	step := func(name string, err error) func(bool) error {
		return func(on bool) error {
			got = append(got, fmt.Sprint(name, on))
			return err
		}
	}
	var u undo
	for _, name := range []string{"a", "b"} {
		if err := u.on(step(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("failed")
	if err := u.on(step("c", failed)); !errors.Is(err, failed) {
		t.Errorf("got %v, want what failed", err)
	}
	if err := u.all(); !errors.Is(err, failed) {
		t.Errorf("got %v, want what failed", err)
	}
	want := []string{"atrue", "btrue", "ctrue", "cfalse", "bfalse", "afalse"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJeoulConfig(t *testing.T) {
	for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.RoundRobin} {
		s := jeoul{lb.L2DSR, lb.HookTC}
		text, err := config.Write(s.config(paper(), Params{paramScheduler: string(scheduler)}, "/tmp/jeoul.sock"))
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

// TestMembersShareAPool: balancers that are members have one pool, each its own part of it; others have an address
// each.
func TestMembersShareAPool(t *testing.T) {
	setup := paper()
	other := &lab.Host{Name: "lb02", IPv4: netip.MustParseAddr("198.18.0.2")}
	setup.Lab.Balancers = []*lab.Host{setup.Lab.Balancer, other}
	setup.at = other
	own, first := setup.Lab.FullNAT.Prev(), setup.Lab.FullNAT
	for members, want := range map[bool][]config.PoolAddress{
		false: {{Address: own}},
		true:  {{Address: first, Member: setup.Lab.Balancer.IPv4}, {Address: own, Member: other.IPv4}},
	} {
		setup.Members = members
		if diff := cmp.Diff(want, setup.pool(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("members: %v (-want +got):\n%s", members, diff)
		}
	}
}

// TestJeoulHasRoomForFlows: a balancer that remembers flows gets room for as many as asked for.
func TestJeoulHasRoomForFlows(t *testing.T) {
	setup := paper()
	setup.Flows = 5_000_000
	for scheduler, want := range map[lb.Scheduler]uint32{lb.Maglev: 0, lb.RoundRobin: 5_000_000} {
		text, err := config.Write(jeoul{lb.L2DSR, lb.HookXDP}.config(setup, Params{paramScheduler: string(scheduler)},
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
		text, err := config.Write(jeoul{mode, lb.HookTC}.config(bulkPaper(), Params{paramScheduler: "maglev"},
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
		err := s.ready(tc.status, paper().Services)
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
