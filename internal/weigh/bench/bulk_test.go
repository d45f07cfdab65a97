// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const tinyBulk = `name: tiny-bulk
title: A tiny suite of bulk loads
baseline: routed
lab: {clients: 2, servers: 2}
repeats: 1
subjects:
  - name: direct
  - name: routed
  - name: iptables-nth
  - name: haproxy-tcp
    params: {threads: [1], splice: [auto]}
  - name: nginx-stream
    params: {threads: [1]}
loads:
  - name: whole
    kind: iperf3
    concurrency: [4]
    duration: 1s
    offloads: true
  - name: frames
    kind: iperf3
    concurrency: [2]
    duration: 1s
`

// TestRunBulk runs one subject, and in test-bench all subjects but our own, which need this program's binary. Missing
// subjects must be reported, and the others must let all bytes through.
func TestRunBulk(t *testing.T) {
	t.Parallel()
	begin(t)
	testenv.Program(t, "iperf3")
	r := loadsRunner(t, "tiny.yaml", tinyBulk, "", some("whole"), some("routed")...)
	run := runAndLoad(t, r)
	if run.Baseline != "routed" || len(run.Trials) != planned(r) {
		t.Fatalf("baseline %q, %d trials; want routed and %d", run.Baseline, len(run.Trials), planned(r))
	}
	for _, trial := range run.Trials {
		if absent := r.Absent.Subjects[trial.Subject]; absent != "" {
			if trial.Valid || trial.Notes[0] != absent {
				t.Errorf("%s is not installed: valid %v, notes %q", trial.Subject, trial.Valid, trial.Notes)
			}
			continue
		}
		checkBulk(t, trial)
	}
	nothingLeft(t, r)
}

// checkBulk checks the properties that every trial must have, however slow the machine.
func checkBulk(t *testing.T, trial results.Trial) {
	t.Helper()
	at := trial.Subject + ", " + trial.Load
	m := trial.Metrics
	if !trial.Valid || m[results.GigabitsPerSecond] <= 0 || m[results.TransferredGigabytes] <= 0 {
		t.Errorf("%s: valid %v, metrics %v, notes %q", at, trial.Valid, m, trial.Notes)
	}
	for _, note := range trial.Notes {
		if strings.Contains(note, "still") || strings.Contains(note, "congestion control was") {
			t.Errorf("%s: %s", at, note)
		}
	}
	// Without a balancer nothing passes it, and with one every byte costs CPU time.
	if cost, measured := m[results.BalancerCPUMsPerGigabyte]; !measured || trial.Subject != "direct" && cost <= 0 {
		t.Errorf("%s: the balancer's CPU time is reported: %t, %v ms per gigabyte", at, measured, cost)
	}
	// With two clients, each server has its own control connection and its streams. (Trial transfers come before the
	// count. The kernel counts one connection twice if two cores work on the end of a handshake at once.)
	for _, backend := range trial.Backends {
		if want := uint64(1 + trial.Params["streams"].(float64)/2); backend.Connections < want {
			t.Errorf("%s: %s had %d connections, want %d or more", at, backend.Name, backend.Connections, want)
		}
	}
}
