// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// tinyPaced is a suite of two rates that every machine can carry.
const tinyPaced = `name: tiny-paced
title: A tiny suite of arrivals
lab: {clients: 2, servers: 2}
web: {file_bytes: 5120}
repeats: 1
subjects:
  - name: direct
  - name: haproxy-http
    params: {threads: [1]}
  - name: jeoul-l2dsr-tc
    params: {scheduler: [maglev]}
loads:
  - name: arrivals
    kind: paced
    concurrency: [100]
    rate: [50, 100]
    duration: 200ms
  - name: highest
    kind: paced
    keep: true
    concurrency: [20]
    search: {from: 20, to: 40, p99_ms: 2000}
    duration: 200ms
`

// TestRunPaced sends requests at rates that every machine can carry.
func TestRunPaced(t *testing.T) {
	testenv.Target(t, benchTarget)
	t.Parallel()
	begin(t)
	testenv.Program(t, "nginx")
	r := suiteRunner(t, "tiny.yaml", tinyPaced, buildJeoul(t), some("jeoul-l2dsr-tc")...)
	run := runAndLoad(t, r)
	if len(run.Trials) != 3*len(r.Form.Subjects) {
		t.Errorf("%d trials, want two rates and a search of %d subjects", len(run.Trials), len(r.Form.Subjects))
	}
	for _, trial := range run.Trials {
		if r.Absent.Subjects[trial.Subject] == "" {
			checkPaced(t, trial)
		}
	}
	nothingLeft(t, r)
}

// checkPaced checks the properties that every trial must have, however slow the machine.
func checkPaced(t *testing.T, trial results.Trial) {
	t.Helper()
	m := trial.Metrics
	if !trial.Valid || m[results.Failed] != 0 || m[results.LatencyMsMin] <= 0 || m[results.RequestsPerSecond] <= 0 {
		t.Errorf("%s, %s: valid %v, metrics %v, notes %q", trial.Subject, trial.Load, trial.Valid, m, trial.Notes)
	}
	offered := m[results.OfferedPerSecond]
	if trial.Load == "arrivals" && trial.Params["arrivals"] != offered {
		t.Errorf("%s: %v requests/s offered, parameters %v", trial.Subject, offered, trial.Params)
	}
	// Both clients send requests, and neither sends more than requested.
	if want := offered * trial.Params["duration_seconds"].(float64); m[results.Requests] < want-2 ||
		m[results.Requests] > want+2 {
		t.Errorf("%s, %s: %v requests, want about %v", trial.Subject, trial.Load, m[results.Requests], want)
	}
	if trial.Load == "highest" &&
		(offered != 40 || !strings.Contains(strings.Join(trial.Notes, " "),
			"the highest rate that was to be tried held")) {
		t.Errorf("%s: found %v requests/s, notes %q", trial.Subject, offered, trial.Notes)
	}
}
