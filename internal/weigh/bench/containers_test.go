// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/remote"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// localSuite has clients on the balancer's host, beyondSuite has clients beyond it for the same servers.
const (
	localSuite = `name: local
lab: {clients: 2, servers: 2, containers: true}
repeats: 1
subjects:
  - name: direct
  - name: iptables-nth
  - name: jeoul-nat-tc
    params: {scheduler: [rr]}
loads:
  - {kind: tcp_crr, from: balancer, concurrency: [4], duration: 100ms}
  - {kind: tcp_rr, from: balancer, concurrency: [1], duration: 100ms, offloads: true}
  - kind: dnsperf
    from: balancer
    duration: 1s
    dnsperf: {clients: [10], rate: 2000, generators: [2], backends: [2]}
`
	beyondSuite = `name: beyond
lab: {clients: 1, servers: 2, containers: true}
repeats: 1
subjects:
  - name: routed
  - name: iptables-nth
  - name: jeoul-nat-tc
    params: {scheduler: [rr]}
loads:
  - {kind: tcp_crr, concurrency: [2], duration: 100ms, offloads: true}
`
)

func TestContainerSuites(t *testing.T) {
	for text, from := range map[string]string{localSuite: "balancer", beyondSuite: "clients"} {
		suite, err := ParseSuite("s.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if spec := suite.Long.Spec(); !spec.Containers {
			t.Errorf("the laboratory is %+v", spec)
		}
		for _, trial := range Plan(suite.Long, probe.Limits{OpenFiles: 20_000, Cores: 2, LocalPorts: 60_000},
			Absent{}) {
			if trial.SkipReason != "" || trial.AllParams()["from"] != from {
				t.Errorf("%s, %s: %v, skip reason %q", trial.Subject.Name(), trial.Load, trial.AllParams(), trial.SkipReason)
			}
		}
		_, err = suite.Long.OnMachines(&remote.Inventory{})
		if !errors.Is(err, ErrMachines) || !strings.Contains(err.Error(), "lab.containers") {
			t.Errorf("on machines: %v", err)
		}
	}
}

func TestContainerSuiteErrors(t *testing.T) {
	const crr = "{kind: tcp_crr, from: balancer, concurrency: [4], duration: 100ms}"
	for name, tc := range map[string]struct{ from, to, says string }{
		"nowhere": {"from: balancer", "from: server",
			`s.yaml:10: loads[0].from: "server" is not possible; use clients or balancer`},
		"no containers": {", containers: true", "",
			"s.yaml:10: loads[0].from: clients on the balancer's host need servers behind it: set lab.containers to true"},
		"another kind": {crr, "{kind: synflood, from: balancer, concurrency: [1]}",
			"loads[0].kind: synflood needs servers on the segment; with lab.containers use tcp_crr, tcp_rr or dnsperf"},
		"web": {crr, "{kind: wrk, concurrency: [2], duration: 1s}",
			"loads[0].kind: wrk needs servers on the segment"},
		"netperf": {crr, "{kind: tcp_crr, generator: netperf, from: balancer, concurrency: [1], duration: 1s}",
			"loads[0].generator: netperf goes with servers on the segment"},
		"tune": {"repeats: 1", "repeats: 1\ntune: [none]", "s.yaml:4: tune: goes with servers on the segment"},
		"direct beyond": {crr, "{kind: tcp_crr, from: clients, concurrency: [2], duration: 100ms}",
			"loads[0].from: subjects[0], direct: clients beyond the host reach containers through it only; use routed"},
		"routed": {"name: direct", "name: routed", "loads[0].from: subjects[0], routed: there is no hop"},
		"l2dsr": {"- name: iptables-nth", "- {name: jeoul-l2dsr-tc, params: {scheduler: [rr]}}",
			"subjects[1], jeoul-l2dsr-tc: its servers have the VIP"},
		"XDP": {"- name: iptables-nth", "- {name: jeoul-nat-xdp, params: {scheduler: [rr]}}",
			"subjects[1], jeoul-nat-xdp: a bridge has no XDP of its own"},
		"fullnat": {"- name: iptables-nth", "- {name: jeoul-fullnat-tc, params: {scheduler: [rr]}}",
			"subjects[1], jeoul-fullnat-tc: to programs on the host"},
		"not set up": {"name: iptables-nth", "name: ipvs-dr",
			"subjects[1], ipvs-dr: it is not set up beside containers"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(localSuite, tc.from, tc.to, 1)
			if text == localSuite {
				t.Fatalf("%q is not in the suite", tc.from)
			}
			_, err := ParseSuite("s.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

// TestRunLocal runs every load on the balancer's host that can run there.
func TestRunLocal(t *testing.T) {
	t.Parallel()
	begin(t)
	for _, program := range []string{"named", "dnsperf", "iptables-nft"} {
		testenv.Program(t, program)
	}
	r := suiteRunner(t, "s.yaml", localSuite, buildJeoul(t), some("jeoul-nat-tc")...)
	run := runAndLoad(t, r)
	if len(run.Trials) != planned(r) {
		t.Errorf("%d trials, want %d", len(run.Trials), planned(r))
	}
	for _, trial := range run.Trials {
		m := trial.Metrics
		if !trial.Valid || m[results.Failed] != 0 || m[results.BalancerHostCPUUsPerRequest] <= 0 {
			t.Errorf("%s, %s: valid %v, metrics %v, notes %q", trial.Subject, trial.Load, trial.Valid, m, trial.Notes)
		}
		// Parts that cannot be distinguished have no figures of their own.
		for _, name := range []string{results.BalancerCPUUsPerRequest, results.BalancerCPUCores,
			results.ClientCPUUsPerRequest, results.ClientCPUCores} {
			if _, measured := m[name]; measured {
				t.Errorf("%s, %s: %s is told", trial.Subject, trial.Load, name)
			}
		}
		if trial.Saturated == results.SaturatedBalancer || trial.Saturated == results.SaturatedClient {
			t.Errorf("%s, %s: saturated is %s", trial.Subject, trial.Load, trial.Saturated)
		}
	}
	nothingLeft(t, r)
}

// TestRunBeyondContainers sends requests from clients beyond the balancer's host to its containers.
func TestRunBeyondContainers(t *testing.T) {
	testenv.Target(t, benchTarget)
	t.Parallel()
	begin(t)
	testenv.Program(t, "iptables-nft")
	r := suiteRunner(t, "s.yaml", beyondSuite, buildJeoul(t), some("jeoul-nat-tc")...)
	run := runAndLoad(t, r)
	for _, trial := range run.Trials {
		if !trial.Valid || trial.Metrics[results.BalancerCPUUsPerRequest] <= 0 {
			t.Errorf("%s, %s: valid %v, metrics %v, notes %q", trial.Subject, trial.Load, trial.Valid, trial.Metrics,
				trial.Notes)
		}
	}
	nothingLeft(t, r)
}
