// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const tinyTransactions = `name: tiny-transactions
title: A tiny suite of transactions
baseline: routed
lab: {clients: 2, servers: 2}
repeats: 1
subjects:
  - name: direct
  - name: routed
  - name: iptables-nth
  - name: haproxy-tcp
    params: {threads: [1], splice: ["off"]}
  - name: jeoul-l2dsr-xdp
    params: {scheduler: [rr]}
  - name: jeoul-nat-tc
    params: {scheduler: [rr]}
loads:
  - name: crr
    kind: tcp_crr
    concurrency: [1, 8]
    duration: 200ms
  - name: rr
    kind: tcp_rr
    concurrency: [1, 8]
    duration: 200ms
`

// TestRunTransactions makes transactions of one kind through our own balancer, and in test-bench through every subject
// that can carry a byte.
func TestRunTransactions(t *testing.T) {
	testenv.Target(t, benchTarget)
	t.Parallel()
	begin(t)
	r := loadsRunner(t, "tiny.yaml", tinyTransactions, buildJeoul(t), some("crr"), some("jeoul-nat-tc")...)
	run := runAndLoad(t, r)
	if len(run.Trials) != planned(r) {
		t.Errorf("%d trials, want %d", len(run.Trials), planned(r))
	}
	for _, trial := range run.Trials {
		if absent := r.Absent.Subjects[trial.Subject]; absent == "" {
			checkTransactions(t, trial)
		}
	}
	nothingLeft(t, r)
}

// checkTransactions checks the properties that every trial must have, however slow the machine.
func checkTransactions(t *testing.T, trial results.Trial) {
	t.Helper()
	m := trial.Metrics
	want, other := results.ConnectionsPerSecond, results.TransactionsPerSecond
	if trial.Load == "rr" {
		want, other = other, want
	}
	_, wrong := m[other]
	if !trial.Valid || m[want] <= 0 || wrong || m[results.Failed] != 0 || m[results.LatencyMsMin] <= 0 ||
		m[results.LatencyMsP99] < m[results.LatencyMsP50] {
		t.Errorf("%s, %s %v: valid %v, metrics %v, notes %q", trial.Subject, trial.Load, trial.Params, trial.Valid, m,
			trial.Notes)
	}
	alone := trial.Params["concurrency"] == 1.0
	if (trial.Params["pinned"] == "yes") != alone || (trial.Params["clients"] == 1.0) != alone {
		t.Errorf("%s, %s: parameters %v", trial.Subject, trial.Load, trial.Params)
	}
	// Each transaction of TCP_CRR is a connection to some server. TCP_RR has only as many connections as requested. (A
	// connection may count twice if two cores work on the end of a handshake at once.)
	var connections uint64
	for _, backend := range trial.Backends {
		connections += backend.Connections
	}
	if asked := trial.Params["concurrency"].(float64); trial.Load == "rr" && connections < uint64(asked) ||
		trial.Load == "crr" && connections < uint64(m[results.Requests]) {
		t.Errorf("%s, %s: servers had %d connections: %v, %v", trial.Subject, trial.Load, connections, trial.Params, m)
	}
}

// TestNetperf makes netperf's transactions through a balancer if netperf is installed, and otherwise checks that the
// results say that it is missing.
func TestNetperf(t *testing.T) {
	t.Parallel()
	begin(t)
	suite, err := ParseSuite("netperf.yaml", []byte(strings.Replace(
		strings.ReplaceAll(strings.ReplaceAll(tinyTransactions, "[1, 8]", "[1]"), "200ms", "1s"), "    kind: tcp_crr\n",
		"    kind: tcp_crr\n    generator: netperf\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	r := patientRunner(t, Options{Suite: suite, Dir: t.TempDir(), Only: []string{"jeoul-nat-tc"}, Loads: some("crr"),
		Progress: t.Output(), Executable: buildJeoul(t)})
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	skipReason := r.Absent.Generators["netperf"]
	for _, trial := range run.Trials {
		byNetperf := trial.Load == "crr"
		if byNetperf != (trial.Params["generator"] == "netperf") {
			t.Errorf("%s: parameters %v", trial.Load, trial.Params)
		}
		if byNetperf && skipReason != "" {
			if trial.Valid || trial.Notes[0] != skipReason {
				t.Errorf("valid %v, notes %q; want %q", trial.Valid, trial.Notes, skipReason)
			}
			continue
		}
		if !trial.Valid || trial.Metrics[results.Requests] <= 0 {
			t.Errorf("%s: valid %v, metrics %v, notes %q", trial.Load, trial.Valid, trial.Metrics, trial.Notes)
		}
	}
	nothingLeft(t, r)
}
