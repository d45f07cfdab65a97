// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"strings"
	"testing"

	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/flood"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const floodSuite = `name: flooded
lab: {clients: 1, servers: 2}
web: {file_bytes: 64}
repeats: 1
subjects:
  - name: direct
  - name: haproxy-tcp
    params: {threads: [1], splice: ["off"]}
loads:
  - kind: synflood
    concurrency: [10]
    duration: 1s
    flood: {packets: syn, every: 100ms, new: 5, rate: 1000}
  - name: datagrams
    kind: synflood
    concurrency: [10]
    duration: 1s
    flood: {packets: udp, every: 100ms}
`

func TestFloodSuite(t *testing.T) {
	suite, err := ParseSuite("f", []byte(floodSuite))
	if err != nil {
		t.Fatal(err)
	}
	form := suite.Long
	if spec := form.Spec(); !spec.Attacker || !spec.CoreQueues || spec.Servers != 2 {
		t.Errorf("the laboratory is %+v", spec)
	}
	if notes := strings.Join(form.Notes(), "\n"); !strings.Contains(notes, "a queue for each core") ||
		strings.Contains(notes, "pfifo_fast") {
		t.Errorf("the notes are those of another laboratory:\n%s", notes)
	}
	limits := probe.Limits{OpenFiles: 1000, Cores: 2, LocalPorts: 60000}
	trials := Plan(form, limits, Absent{})
	if len(trials) != 4 || !strings.Contains(trials[0].SkipReason, "UDP") || trials[0].Subject.Name() != "haproxy-tcp" {
		t.Fatalf("planned %d trials, the first with skip reason %q", len(trials), trials[0].SkipReason)
	}
	params := trials[1].AllParams()
	for name, want := range map[string]any{
		"flood": "syn", "beyond": "drop", "rate": 1000, "every_ms": 100.0, "new_per_second": 5, "concurrency": 10,
		"duration_seconds": 1.0,
	} {
		if params[name] != want {
			t.Errorf("parameter %s is %v, want %v", name, params[name], want)
		}
	}
	limits.Cores = 1
	for _, trial := range Plan(form, limits, Absent{}) {
		if !strings.Contains(trial.SkipReason, "core") {
			t.Errorf("on one core: skip reason %q", trial.SkipReason)
		}
	}
	if plain, err := ParseSuite("t", []byte(tinySuite)); err != nil || plain.Long.Spec().Attacker ||
		plain.Long.Spec().CoreQueues {
		t.Errorf("a suite without floods has an attacker or queues of its own (error %v)", err)
	}
}

func TestBadFloods(t *testing.T) {
	for name, c := range map[string]struct{ from, to, says string }{
		"no flood":     {"    flood: {packets: udp, every: 100ms}\n", "", "loads[1].flood: missing"},
		"packets":      {"packets: syn", "packets: rst", `loads[0].flood.packets: "rst"`},
		"rate":         {"rate: 1000", "rate: -1", "loads[0].flood.rate: -1"},
		"beyond":       {"rate: 1000", "beyond: forward", `loads[0].flood.beyond: "forward"`},
		"answered UDP": {"{packets: udp,", "{packets: udp, beyond: pass,", "no server answers"},
		"every":        {"every: 100ms, new", "every: 0s, new", "loads[0].flood.every"},
		"too many":     {"every: 100ms, new", "every: 1ms, new", "nginx closes one"},
		"patience": {"new: 5", "new: 5, patience: 1h",
			"loads[0].flood.patience: 1h0m0s is not possible; use up to 5m0s"},
		"new": {"new: 5", "new: 100000", "loads[0].flood.new"},
		"duration": {"duration: 1s\n    flood: {packets: syn", "duration: 1h\n    flood: {packets: syn",
			"loads[0].duration"},
		"clients": {"clients: 1", "clients: 2", "one client"},
		"file":    {"file_bytes: 64", "file_bytes: 5120", "small file"},
		"requests": {"    duration: 1s\n    flood: {packets: syn",
			"    duration: 1s\n    requests: 5\n    flood: {packets: syn", "takes no requests"},
		"other loads": {"loads:\n", "loads:\n  - {kind: wrk, concurrency: [4], duration: 1s}\n",
			"a suite of its own"},
		"HTTP only":   {"  - name: direct\n", "  - name: haproxy-http\n    params: {threads: [1]}\n", "HTTP only"},
		"unknown key": {"rate: 1000", "speed: 1000", "speed"},
		"no connections": {"concurrency: [10]\n    duration: 1s\n    flood: {packets: syn",
			"concurrency: []\n    duration: 1s\n    flood: {packets: syn", "loads[0].concurrency"},
	} {
		text := strings.Replace(floodSuite, c.from, c.to, 1)
		if text == floodSuite {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := ParseSuite("f", []byte(text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

// TestFloodLine checks the line of a flood's trial.
func TestFloodLine(t *testing.T) {
	good := results.Trial{Valid: true, Metrics: map[string]float64{
		results.Established: 300, results.EstablishedLost: 2, results.QuietLatencyMsP99: 0.5,
		results.FloodLatencyMsP99: 1.25,
		results.FloodNewFailed:    3, results.FloodOfferedPerSecond: 1e6, results.FloodHandledPerSecond: 9e5,
	}}
	want := "2 of 300 connections lost, p99 0.50 → 1.25 ms, 3 new failed, 1000000 packets/s offered, 900000 handled"
	if got := flood.Kind.Line([]results.Trial{good}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := flood.Kind.Line([]results.Trial{{Notes: []string{"why"}}}); got != "not valid: why" {
		t.Errorf("got %q", got)
	}
}
