// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/sizing"
)

const smallBalancers = `name: small
lab: {clients: 2, servers: 6, balancers: 3}
repeats: 1
subjects:
  - name: jeoul-l2dsr-tc
    params: {scheduler: [maglev, rr]}
loads:
  - kind: change
    concurrency: [120]
    changes: {events: [lb-drain, lb-undrain, lb-kill], pace: 200ms, patience: 3s, new_per_second: 20, queries_per_second: 20, reused: 5, lap: 500ms}
`

// tinyBalancers is a suite that is short enough for CI: each additional balancer, scheduler and event takes seconds of
// a core.
const tinyBalancers = `name: tiny
lab: {clients: 1, servers: 6, balancers: 2}
repeats: 1
subjects:
  - name: jeoul-l2dsr-tc
    params: {scheduler: [maglev]}
loads:
  - kind: change
    concurrency: [60]
    changes: {events: [lb-kill], pace: 100ms, patience: 20s, new_per_second: 10, queries_per_second: 10, reused: 2, lap: 500ms}
`

func TestBalancersSuiteErrors(t *testing.T) {
	for name, tc := range map[string]struct{ from, to, says string }{
		"none": {"", "", ""},
		"one":  {"balancers: 3", "balancers: 1", "s.yaml:2: lab.balancers: 1 is not possible; use 2 to 9"},
		"not several": {", balancers: 3", "",
			"s.yaml:10: loads[0].changes.events[0]: lb-drain is an event of several balancers: set lab.balancers"},
		"another subject": {"name: jeoul-l2dsr-tc\n    params: {scheduler: [maglev, rr]}", "name: iptables-nth",
			"subjects[0].name: iptables-nth cannot be one of several balancers: it tells no router of its VIP"},
		"IPVS": {"name: jeoul-l2dsr-tc\n    params: {scheduler: [maglev, rr]}",
			"name: ipvs-dr\n    params: {scheduler: [mh], sync: [none, usual, every, sloppy]}", ""},
		"IPVS by NAT": {"name: jeoul-l2dsr-tc\n    params: {scheduler: [maglev, rr]}", "name: ipvs-nat",
			"subjects[0].name: ipvs-nat cannot be one of several balancers: replies and tunnels"},
		"IPVS's sync": {"name: jeoul-l2dsr-tc\n    params: {scheduler: [maglev, rr]}",
			"name: ipvs-dr\n    params: {sync: [3 50]}",
			"params.sync[0]: not a possible value: 3 50; use none or usual or every or sloppy"},
		"sync of one": {", balancers: 3}\nrepeats: 1\nsubjects:\n  - name: jeoul-l2dsr-tc\n    params: {scheduler: [maglev, rr]}", "}\nrepeats: 1\nsubjects:\n  - name: ipvs-dr\n    params: {sync: [usual]}", "params.sync: it is of several balancers; set lab.balancers"},
		"XDP":         {"l2dsr-tc", "l2dsr-xdp", ""},
		"NAT":         {"l2dsr-tc", "nat-tc", "replies find their way to the one balancer"},
		"one router": {", balancers: 3", ", router: frr",
			"s.yaml:2: lab: router and bfd are of the router before several balancers"},
		"router": {"balancers: 3", "balancers: 3, router: quagga",
			`s.yaml:2: lab.router: "quagga" is not possible; use one of [bird frr]`},
		"BFD": {"balancers: 3", "balancers: 3, bfd: 1ms",
			"s.yaml:2: lab.bfd: 1ms is not possible; use whole milliseconds, 10ms to 10s"},
		"FRR and BFD": {"balancers: 3", "balancers: 3, router: frr, bfd: 50ms", ""},
		"containers":  {"balancers: 3", "balancers: 3, containers: true", "lab.containers: goes with one balancer"},
	} {
		_, err := ParseSuite("s.yaml", []byte(strings.Replace(smallBalancers, tc.from, tc.to, 1)))
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v\nwant it to say %q", name, err, tc.says)
		}
	}
}

// TestNoBalancerIsMissed: with a scheduler that stores no flows, no connection breaks when one of two balancers is
// killed.
func TestNoBalancerIsMissed(t *testing.T) {
	t.Parallel()
	testenv.Target(t, benchTarget)
	r, trials := runBalancers(t, tinyBalancers, 1)
	checkUnbroken(t, trials[0], "lb-kill", 60)
	nothingLeft(t, r)
}

// TestBalancersBreakWhatIsPlanned: with a scheduler that stores no flows, no connection breaks when one of three
// balancers is drained, returns, and is killed. With a scheduler that stores flows, as many break as a plan predicts.
func TestBalancersBreakWhatIsPlanned(t *testing.T) {
	t.Parallel()
	if os.Getenv("JEOUL_TEST_BALANCERS") == "" {
		t.Skip("three balancers, two schedulers and three events: `make test-balancers`")
	}
	r, trials := runBalancers(t, smallBalancers, 6)
	for i, event := range []string{"lb-drain", "lb-undrain", "lb-kill"} {
		checkUnbroken(t, trials[i], event, 120)
		if m := trials[i].Metrics; event != "lb-kill" && m[results.NewFailed] != 0 {
			t.Errorf("%s: %g new connections failed; notes %q", event, m[results.NewFailed], trials[i].Notes)
		}
	}
	moved, err := sizing.Plain.Leave(3)
	if err != nil {
		t.Fatal(err)
	}
	// The mean over the balancers that may leave; of three it is a third to a half. One of the six backends is not in
	// service yet.
	plan := sizing.Flows{Mode: lb.L2DSR, Scheduler: lb.RoundRobin, Backends: 5, Flows: 120}.Broken(moved)
	for _, got := range []results.Trial{trials[3], trials[5]} {
		if !got.Valid || got.Metrics[results.Broken] < plan/3 || got.Metrics[results.Broken] > plan*2 {
			t.Errorf("%v: valid %v, %g broke, and the plan says %g; notes %q", got.Params, got.Valid,
				got.Metrics[results.Broken], plan, got.Notes)
		}
	}
	nothingLeft(t, r)
}

// TestOtherRoutersMoveTraffic: behind FRR, one of two balancers is disconnected and returns, and with BFD both routers
// notice that its speaker hangs.
func TestOtherRoutersMoveTraffic(t *testing.T) {
	testenv.Target(t, benchTarget)
	t.Parallel()
	for _, tc := range []struct {
		size   string
		events []string
	}{
		{"bfd: 300ms", []string{"lb-hang"}},
		{"router: frr, bfd: 300ms", []string{"lb-cut", "lb-mend", "lb-hang"}},
	} {
		t.Run(tc.size, func(t *testing.T) {
			suite := strings.NewReplacer("balancers: 2", "balancers: 2, "+tc.size, "[lb-kill]",
				"["+strings.Join(tc.events, ", ")+"]").Replace(tinyBalancers)
			r, trials := runBalancers(t, suite, len(tc.events))
			for i, event := range tc.events {
				checkUnbroken(t, trials[i], event, 60)
				if notes := strings.Join(trials[i].Notes, "; "); !strings.Contains(notes, "BFD of 3 × 300ms") {
					t.Errorf("%s: no note has BFD: %q", event, notes)
				}
			}
			nothingLeft(t, r)
		})
	}
}

// runBalancers runs a suite of several balancers, which must have the given number of results.
func runBalancers(t *testing.T, suite string, want int) (*Runner, []results.Trial) {
	t.Helper()
	begin(t)
	kind := router.BIRD
	if strings.Contains(suite, "router: frr") {
		kind = router.FRR
	}
	if reason := kind.SkipReason(); reason != "" && kind == router.FRR {
		t.Skip(reason) // make test does not need FRR
	}
	testenv.Program(t, kind.Program())
	r := startChangeOf(t, suite, "jeoul-l2dsr-tc")
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Trials) != want {
		t.Fatalf("%d results, want %d", len(run.Trials), want)
	}
	return r, run.Trials
}

// checkUnbroken checks that an event removed a balancer from the router's routes, or returned it to them, and broke
// none of the given number of connections.
func checkUnbroken(t *testing.T, got results.Trial, event string, connections float64) {
	t.Helper()
	m := got.Metrics
	if fmt.Sprint(got.Params["event"]) != event || !got.Valid || m[results.Broken] != 0 ||
		m[results.Connections] != connections || m[results.Applied] != 1 || m[results.AppliedMsMax] == 0 {
		t.Errorf("%s: %v: valid %v, of %g connections %g broke, %g changes within %g ms; notes %q", event,
			got.Params, got.Valid,
			m[results.Connections], m[results.Broken], m[results.Applied], m[results.AppliedMsMax], got.Notes)
	}
}
