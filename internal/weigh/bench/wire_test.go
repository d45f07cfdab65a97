// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	kindwire "github.com/jeoul/jeoul/internal/weigh/bench/kind/wire"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

const wireSuite = `name: packets
lab: {clients: 2, servers: 3}
repeats: 1
subjects:
  - name: direct
  - name: bare
  - name: routed
  - name: haproxy-tcp
    params: {threads: [1], splice: ["off"]}
loads:
  - name: ladder
    kind: wire
    wire: {load: setup, warm_up: 100ms, ladder: {from: 1000, to: 3000, step: 500, connections: 700}}
  - name: search
    kind: wire
    duration: 1s
    wire: {load: session, request: 60, response: 9000, search: {from: 10, to: 500, loss: 0.001}}
  - name: held
    kind: wire
    wire: {load: capacity, connections: 5000000, rate: 1000, hold: 1s}
  - name: names
    kind: wire
    duration: 500ms
    wire: {load: dns, question: example.com}
  - name: flooded
    kind: wire
    wire: {load: session, connections: 9, rate: 3, syn_flood: {rate: 0}}
`

func TestWireSuite(t *testing.T) {
	suite, err := ParseSuite("w", []byte(wireSuite))
	if err != nil {
		t.Fatal(err)
	}
	form := suite.Long
	if spec := form.Spec(); !spec.Wire || spec.Attacker || spec.Clients != 2 {
		t.Errorf("the laboratory is %+v", spec)
	}
	if notes := strings.Join(form.Notes(), "\n"); !strings.Contains(notes, "native XDP") ||
		strings.Contains(notes, "pfifo_fast") {
		t.Errorf("the notes are those of another laboratory:\n%s", notes)
	}
	limits := probe.Limits{OpenFiles: 20_000, Cores: 2, LocalPorts: 28_000}
	skipReasons, params := map[string]string{}, map[string]map[string]any{}
	trials := Plan(form, limits, Absent{})
	if len(trials) != 20 {
		t.Errorf("planned %d trials, want one for each of 4 subjects and 5 loads", len(trials))
	}
	for _, trial := range trials {
		skipReasons[trial.Subject.Name()+" "+trial.Load] = trial.SkipReason
		params[trial.Load] = trial.AllParams()
	}
	for point, says := range map[string]string{
		"haproxy-tcp names": "UDP", "haproxy-tcp held": "", "routed ladder": "", "bare held": "", "direct search": "",
	} {
		if got := skipReasons[point]; (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%s: skip reason %q, want %q", point, got, says)
		}
	}
	want := map[string]map[string]any{
		"ladder":  {"wire": "setup", "steps": "1000 to 3000 by 500", "connections": 700},
		"search":  {"wire": "session", "offered": "search", "request_bytes": 60, "response_bytes": 9000},
		"held":    {"wire": "capacity", "offered": 1000, "connections": 5_000_000},
		"names":   {"wire": "dns", "offered": "as much as possible"},
		"flooded": {"wire": "session", "offered": 3, "connections": 9, "beside": "a SYN flood"},
	}
	for load := range want {
		want[load]["clients"], want[load]["backends"] = 2, 3
		delete(params[load], "threads")
		delete(params[load], "splice")
	}
	if diff := cmp.Diff(want, params); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	limits.Cores = 1
	for _, trial := range Plan(form, limits, Absent{}) {
		if !strings.Contains(trial.SkipReason, "core") && trial.Subject.Name() != "haproxy-tcp" {
			t.Errorf("on one core: skip reason %q", trial.SkipReason)
		}
	}
}

// TestBadWires parses suites with impossible loads.
func TestBadWires(t *testing.T) {
	for name, c := range map[string]struct{ from, to, says string }{
		"no wire":          {"    wire: {load: setup, warm_up: 100ms, ladder: {from: 1000, to: 3000, step: 500, connections: 700}}\n", "", "w:11: loads[0].wire: missing"},
		"load":             {"load: setup", "load: http", `w:13: loads[0].wire.load: "http"`},
		"two rates":        {"load: setup,", "load: setup, rate: 5,", "w:13: loads[0].wire: give at most one"},
		"ladder backwards": {"to: 3000", "to: 30", "w:13: loads[0].wire.ladder.to: 30"},
		"no step":          {"step: 500", "step: 0", "loads[0].wire.ladder.step: 0"},
		"steps":            {"from: 1000, to: 3000, step: 500", "from: 1000, to: 3000, step: 1", "makes 2001 steps"},
		"no connections":   {"connections: 700", "connections: 0", "loads[0].wire.ladder.connections: 0"},
		"too many":         {"connections: 700", "connections: 20000000", "loads[0].wire.ladder.connections: 20000000"},
		"loss":             {"loss: 0.001", "loss: 1.5", "loads[1].wire.search.loss: 1.5"},
		"loss, a word":     {"loss: 0.001", "loss: none", "none` is not a number"},
		"search":           {"from: 10, to: 500", "from: 500, to: 500", "loads[1].wire.search.to: 500"},
		"no end":           {"    duration: 1s\n", "", "give one of connections"},
		"two ends":         {"connections: 5000000", "duration: 1s, connections: 5000000", "duration"},
		"held for nothing": {"connections: 5000000, rate: 1000", "rate: 1000", "loads[2].wire"},
		"beyond addresses": {"lab: {clients: 2", "lab: {clients: 17", "at most 16 ports"},
		"hold":             {"load: setup,", "load: setup, hold: 1s,", "loads[0].wire.hold: goes with"},
		"question":         {"load: setup,", "load: setup, question: a.b,", "loads[0].wire.question: goes with"},
		"request":          {"request: 60", "request: 1461", "loads[1].wire.request: 1461"},
		"frame":            {"load: dns, question: example.com", "load: udp, frame: 20", "loads[3].wire.frame: 20"},
		"flood": {"connections: 9, rate: 3", "connections: 9, rate: 3, question: x",
			"loads[4].wire.question"},
		"flooded names": {"question: example.com", "question: example.com, syn_flood: {rate: 1}",
			"loads[3].wire.syn_flood: goes beside"},
		"rate":             {"rate: 1000", "rate: -1", "loads[2].wire.rate: -1"},
		"bursts":           {"load: dns", "load: dns, bursts: 101", "loads[3].wire.bursts: 101"},
		"bursts of a rate": {"load: setup,", "load: setup, bursts: 2,", "loads[0].wire.bursts: the fastest of 2"},
		"held in bursts":   {"rate: 1000, hold: 1s", "bursts: 2, hold: 1s", "loads[2].wire.bursts: the fastest of 2"},
		"pause of none":    {"load: dns", "load: dns, pause: 1s", "loads[3].wire.pause: 1s between bursts"},
		"pause": {"load: dns", "load: dns, bursts: 2, pause: 1h",
			"loads[3].wire.pause: 1h0m0s is not possible"},
		"pause, a word": {"load: dns", "load: dns, bursts: 2, pause: soon", "`soon` is not a duration"},
		"warm up":       {"warm_up: 100ms", "warm_up: 1h", "loads[0].wire.warm_up"},
		"unknown key":   {"warm_up", "warmup", "unknown key warmup"},
		"requests":      {"    duration: 1s\n", "    duration: 1s\n    requests: 5\n", "takes no requests"},
		"concurrency": {"    duration: 1s\n", "    duration: 1s\n    concurrency: [1, 2]\n",
			"loads[1].concurrency"},
		"other loads": {"loads:\n", "loads:\n  - {kind: wrk, concurrency: [4], duration: 1s}\n",
			"a suite of their own"},
		"HTTP only": {"  - name: routed\n", "  - name: haproxy-http\n    params: {threads: [1]}\n", "HTTP only"},
	} {
		text := strings.Replace(wireSuite, c.from, c.to, 1)
		if text == wireSuite {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := ParseSuite("w", []byte(text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

const wireTinySuite = `name: tiny packets
lab: {clients: 2, servers: 3}
repeats: 1
subjects:
  - name: direct
  - name: bare
  - name: iptables-nth
  - name: ipvs-dr
loads:
  - name: setup
    kind: wire
    wire: {load: setup, warm_up: 50ms, timeout: 500ms, settle: 2s, ladder: {from: 2000, to: 4000, step: 2000, connections: 600}}
  - name: held
    kind: wire
    wire: {load: capacity, connections: 900, rate: 3000, hold: 100ms, request: 32, response: 32, timeout: 500ms, settle: 2s}
  - name: beside
    kind: wire
    wire: {load: session, connections: 300, rate: 1500, request: 32, response: 200, timeout: 500ms, settle: 2s, syn_flood: {rate: 20000}}
  - name: most
    kind: wire
    wire: {load: setup, connections: 400, outstanding: 16, bursts: 3, pause: 10ms, timeout: 500ms, settle: 2s}
`

// TestWireRun runs a suite of some hundred connections, and checks that both sides of the tester agree on them.
func TestWireRun(t *testing.T) {
	t.Parallel()
	begin(t)
	testenv.Program(t, "iptables-nft")
	r := suiteRunner(t, "w", wireTinySuite, "", some("iptables-nth")...)
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]int{}
	for _, trial := range run.Trials {
		steps[trial.Subject+" "+trial.Load]++
		if trial.Subject == "ipvs-dr" && !trial.Valid {
			continue // it needs a kernel with IPVS
		}
		checkWireTrial(t, trial)
	}
	for _, chosen := range r.Form.Subjects {
		subject := chosen.Name
		if subject == "ipvs-dr" {
			continue // it needs a kernel with IPVS
		}
		if steps[subject+" setup"] != 2 || steps[subject+" held"] != 1 || steps[subject+" beside"] != 1 ||
			steps[subject+" most"] != 1 {
			t.Errorf("%s has not a result for each step: %v", subject, steps)
		}
	}
	nothingLeft(t, r)
}

// checkWireTrial checks the properties that a trial must have however slow the machine.
func checkWireTrial(t *testing.T, trial results.Trial) {
	t.Helper()
	m := trial.Metrics
	at := fmt.Sprintf("%s, %s, %v", trial.Subject, trial.Load, trial.Params["offered"])
	if !trial.Valid || m[results.Failed] != 0 {
		t.Fatalf("%s: valid %v, %g failed, notes %q", at, trial.Valid, m[results.Failed], trial.Notes)
	}
	want := map[string]float64{"setup": 600, "held": 900, "beside": 300, "most": 400}[trial.Load]
	var atServers uint64
	for _, b := range trial.Backends {
		atServers += b.Connections
	}
	if m[results.WireBegun] != want || m[results.WireEstablished] != want || float64(atServers) != want {
		t.Errorf("%s: %g begun, %g established, %d at servers, want %g of each", at, m[results.WireBegun],
			m[results.WireEstablished], atServers, want)
	}
	if sets := trial.Load == "setup" || trial.Load == "most"; !sets && m[results.WireCompleted] != want {
		t.Errorf("%s: %g came to their end, want %g", at, m[results.WireCompleted], want)
	}
	// All of them select the servers in turn, including the tester itself with direct; a flood also selects them in
	// turn.
	if trial.Load != "beside" && m[results.UnevennessPercent] > 5 {
		t.Errorf("%s: the servers had %v", at, trial.Backends)
	}
	rate := wire.Kind(fmt.Sprint(trial.Params["wire"])).Metric()
	if m[rate] <= 0 || m[results.SetupLatencyMsP50] <= 0 ||
		m[results.SetupLatencyMsP50] > m[results.SetupLatencyMsMax] {
		t.Errorf("%s: the rate is %g, p50 %g ms, max %g ms", at, m[rate], m[results.SetupLatencyMsP50],
			m[results.SetupLatencyMsMax])
	}
	if trial.Load == "beside" && m[results.FloodSentPerSecond] <= 0 {
		t.Errorf("%s: no SYN of the flood was sent", at)
	}
	// If a balancer has only a millisecond of work in all, it may be lost among the other work that the kernel accounts
	// for at the same time.
	if cpu, ok := m[results.BalancerCPUUsPerConnection]; ok == (trial.Subject == "direct") {
		t.Errorf("%s: the balancer used %g µs for each (known: %v)", at, cpu, ok)
	}
	if _, ok := m[results.MachineBytes]; ok != (trial.Load == "held") {
		t.Errorf("%s: memory was looked at: %v", at, ok)
	}
}

// completeSteps returns the results that are kept of a cancelled trial.
func completeSteps(got []results.Trial) []results.Trial {
	return kindwire.Kind.(interface {
		CompleteSteps([]results.Trial) []results.Trial
	}).CompleteSteps(got)
}

// TestWireResume: the complete steps of a cancelled ladder are kept, and a resumed run runs the ladder again.
func TestWireResume(t *testing.T) {
	suite, err := ParseSuite("w", []byte(wireSuite))
	if err != nil {
		t.Fatal(err)
	}
	var ladder Trial
	trials := Plan(suite.Long, probe.Limits{OpenFiles: 20_000, Cores: 2, LocalPorts: 28_000}, Absent{})
	for _, trial := range trials {
		if trial.Subject.Name() == "bare" && trial.Load == "ladder" {
			ladder = trial
		}
	}
	climbed := func(steps int) []results.Trial {
		var all []results.Trial
		for i := range steps {
			step := Blank(ladder)
			step.Params["offered"], step.Valid = 1000+500*i, true
			all = append(all, step)
		}
		return all
	}
	cut := climbed(3)
	cut[2].Valid = false
	if got := len(completeSteps(cut)); got != 2 {
		t.Errorf("%d steps of a ladder that was ended in its third are kept, want 2", got)
	}
	for steps, left := range map[int]int{0: len(trials), 2: len(trials), 5: len(trials) - 1} {
		r := &Runner{Results: &results.Run{Trials: climbed(steps)}}
		if got := len(r.Remaining(trials)); got != left {
			t.Errorf("after %d of 5 steps %d trials remain, want %d", steps, got, left)
		}
		if partial := steps < 5; partial != (len(r.Results.Trials) == 0) {
			t.Errorf("after %d of 5 steps %d results stay", steps, len(r.Results.Trials))
		}
	}
}
