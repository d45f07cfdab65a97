// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/dns"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const dnsSuite = `name: names
lab: {clients: 2, servers: 3}
repeats: 1
subjects:
  - name: direct
  - name: iptables-nth
  - name: nginx-stream
    params: {threads: [1]}
loads:
  - kind: dnsperf
    duration: 1s
    dnsperf: {clients: [30], rate: 2000, threads: 2, timeout: 10s, generators: [2], backends: [1, 3]}
`

func TestDNSSuite(t *testing.T) {
	suite, err := ParseSuite("s.yaml", []byte(dnsSuite))
	if err != nil {
		t.Fatal(err)
	}
	trials := Plan(suite.Long, probe.Limits{OpenFiles: 20_000, Cores: 2, LocalPorts: 60_000}, Absent{})
	if len(trials) != 6 {
		t.Fatalf("%d trials, want 6", len(trials))
	}
	want := map[string]any{"backends": 3, "clients": 2, "concurrency": 60, "duration_seconds": 1,
		"generator_threads": 2, "queries_per_second_most": 2000, "question": "a.domain.local A"}
	if diff := cmp.Diff(want, trials[1].AllParams()); diff != "" {
		t.Errorf("the second trial's parameters (-want +got):\n%s", diff)
	}
	few := Plan(suite.Long, probe.Limits{OpenFiles: 20, Cores: 2, LocalPorts: 60_000}, Absent{})
	if !strings.Contains(few[0].SkipReason, "open files") {
		t.Errorf("with 20 open files the skip reason is %q", few[0].SkipReason)
	}
}

func TestDNSSuiteErrors(t *testing.T) {
	for name, tc := range map[string]struct{ from, to, says string }{
		"missing": {"dnsperf: {clients: [30], rate: 2000, threads: 2, timeout: 10s, generators: [2], backends: [1, 3]}",
			"", "s.yaml:10: loads[0].dnsperf: missing; say at least clients"},
		"no sockets": {"clients: [30], rate", "rate",
			"loads[0].dnsperf.clients: empty; list at least one number, up to 10000"},
		"threads":       {"threads: 2", "threads: 2000", "s.yaml:12: loads[0].dnsperf.threads: 2000 is not possible"},
		"rate":          {"rate: 2000", "rate: -1", "loads[0].dnsperf.rate: -1 is not possible"},
		"timeout":       {"timeout: 10s", "timeout: 2500ms", "loads[0].dnsperf.timeout: 2.5s is not possible"},
		"no generators": {"generators: [2]", "generators: []", "loads[0].dnsperf.generators: empty"},
		"more than lab": {"generators: [2]", "generators: [3]",
			"loads[0].dnsperf.generators[0]: 3 is not possible; use 1 to 2"},
		"many backends": {"[1, 3]", "[1, 4]", "loads[0].dnsperf.backends[1]: 4 is not possible; use 1 to 3"},
		"twice":         {"[1, 3]", "[1, 1]", "loads[0].dnsperf.backends[1]: 1 stands in the list twice"},
		"fraction":      {"duration: 1s", "duration: 100ms", "s.yaml:11: loads[0].duration: 100ms is not possible"},
		"concurrency": {"duration: 1s", "duration: 1s\n    concurrency: [5]",
			"loads[0]: dnsperf has none of concurrency"},
		"no UDP": {"name: nginx-stream", "name: nginx-http",
			"loads[0].kind: subjects[2], nginx-http, balances no UDP"},
		"unknown key": {"rate: 2000", "speed: 2000", "unknown key speed"},
		"another kind": {"kind: dnsperf", "kind: wrk\n    concurrency: [2]",
			"loads[0].dnsperf: goes with dnsperf, not with wrk"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(dnsSuite, tc.from, tc.to, 1)
			if text == dnsSuite {
				t.Fatalf("%q is not in the suite", tc.from)
			}
			_, err := ParseSuite("s.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

func TestDNSExperiment(t *testing.T) {
	t.Parallel()
	begin(t)
	for _, program := range []string{"named", "dnsperf", "nginx", "iptables-nft"} {
		testenv.Program(t, program)
	}
	r := suiteRunner(t, "s.yaml", dnsSuite, "", some("iptables-nth")...)
	run := runAndLoad(t, r)
	if run.Environment.Versions["named"] == "" || run.Environment.Versions["dnsperf"] == "" {
		t.Errorf("the versions are %v", run.Environment.Versions)
	}
	if len(run.Trials) != planned(r) {
		t.Fatalf("%d trials, want %d", len(run.Trials), planned(r))
	}
	for _, trial := range run.Trials {
		checkDNSTrial(t, trial)
	}
	nothingLeft(t, r)
}

// checkDNSTrial checks the properties that every trial must have, however slow the machine.
func checkDNSTrial(t *testing.T, trial results.Trial) {
	t.Helper()
	backends := trial.Params["backends"].(float64)
	at := fmt.Sprintf("%s, %g backends", trial.Subject, backends)
	m := trial.Metrics
	if !trial.Valid || m[results.Failed] != 0 || m[results.Queries] == 0 {
		t.Errorf("%s: valid %v, %g queries, %g failed, notes %q", at, trial.Valid, m[results.Queries],
			m[results.Failed], trial.Notes)
		return
	}
	for _, name := range []string{results.QueriesPerSecond, results.LatencyMsMean, results.ContextSwitchesPerS,
		results.NameServerCPUPercent,
		results.BackendCPUUsPerRequest} {
		if m[name] <= 0 {
			t.Errorf("%s: %s is %g", at, name, m[name])
		}
	}
	// A kernel that counts by ticks may have counted none of them in a short trial.
	if m[results.HostUserPercent]+m[results.HostSystemPercent]+m[results.HostSoftirqPercent]+
		m[results.HostIdlePercent] <= 0 {
		t.Errorf("%s: the machine did nothing: %v", at, m)
	}
	var queries uint64
	for _, b := range trial.Backends {
		queries += b.Queries
		if b.Queries == 0 || b.CPUPercent <= 0 {
			t.Errorf("%s: %+v", at, b)
		}
	}
	if float64(len(trial.Backends)) != backends || float64(queries) < m[results.Queries] {
		t.Errorf("%s: %d queries reached %d backends, and %g were answered", at, queries, len(trial.Backends),
			m[results.Queries])
	}
}

func TestNameServerThatEndedIsNamed(t *testing.T) {
	t.Parallel()
	r := tiny(t)
	testenv.Program(t, "named")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := r.Build(ctx); err != nil {
		t.Fatal(err)
	}
	defer r.TearDown()
	if err := dns.Kind.Prepare(ctx, r); err != nil {
		t.Fatal(err)
	}
	names := dns.Servers(r)
	if err := r.Serving(); err != nil {
		t.Error(err)
	}
	if err := names[1].Process.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Serving(); err == nil || !strings.Contains(err.Error(), "the name server on web02 has ended") {
		t.Errorf("got %v", err)
	}
	at := netip.AddrPortFrom(r.Lab.Servers[1].IPv4, dns.Port)
	if err := names[1].WaitFor(ctx, r.Lab.Clients[0], at); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("waiting for it: %v", err)
	}
	if err := names[0].WaitFor(t.Context(), r.Lab.Clients[0],
		netip.AddrPortFrom(r.Lab.Servers[0].IPv4, dns.Port)); err != nil {
		t.Errorf("asking the other: %v", err)
	}
}
