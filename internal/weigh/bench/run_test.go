// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const tinySuite = `name: tiny
title: A tiny suite
lab: {clients: 2, servers: 2}
web: {file_bytes: 5120}
repeats: 1
subjects:
  - name: direct
  - name: haproxy-http
    params: {threads: [1, 64]}
loads:
  - kind: ab
    concurrency: [4]
    requests: 200
  - kind: wrk
    concurrency: [4]
    duration: 1s
`

// quickSuite is the tiny suite without a load that takes whole seconds.
var quickSuite = strings.Replace(tinySuite, "  - kind: wrk\n    concurrency: [4]\n    duration: 1s\n",
	"  - name: more\n    kind: ab\n    concurrency: [8]\n    requests: 200\n", 1)

// suiteRunner returns a runner of a suite, or of only some of its subjects. The results are in a directory of the test.
// executable is our own binary, if the suite runs other processes of ours.
func suiteRunner(t *testing.T, name, text, executable string, only ...string) *Runner {
	t.Helper()
	return loadsRunner(t, name, text, executable, nil, only...)
}

// patientRunner returns a runner that gives its generators a minute beyond the time of their load, because the machine
// may stall.
func patientRunner(t *testing.T, options Options) *Runner {
	t.Helper()
	r, err := NewRunner(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	r.Grace = time.Minute
	return r
}

// loadsRunner is suiteRunner with only these loads; none means all.
func loadsRunner(t *testing.T, name, text, executable string, loads []string, only ...string) *Runner {
	t.Helper()
	suite, err := ParseSuite(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := patientRunner(t, Options{Suite: suite, Dir: filepath.Join(t.TempDir(), "made"), Only: only, Loads: loads,
		Progress: t.Output(), Executable: executable})
	return r
}

// runAndLoad runs a suite and returns the results from its file.
func runAndLoad(t *testing.T, r *Runner) *results.Run {
	t.Helper()
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	run, err := results.Load(filepath.Join(r.Options.Dir, ResultsFile))
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// planned returns the number of trials in a runner's suite.
func planned(r *Runner) int { return len(Plan(r.Form, r.Limits, r.Absent)) }

// tiny returns a runner of the tiny suite.
func tiny(t *testing.T) *Runner {
	t.Helper()
	begin(t)
	for _, program := range []string{"nginx", "haproxy", "ab", "wrk"} {
		testenv.Program(t, program)
	}
	return suiteRunner(t, "tiny.yaml", tinySuite, "")
}

func TestRun(t *testing.T) {
	t.Parallel()
	r := tiny(t)
	run := runAndLoad(t, r)
	if run.Interrupted || run.Ended.IsZero() || run.Environment.Versions["haproxy"] == "" {
		t.Errorf("interrupted %v, ended %v, versions %v", run.Interrupted, run.Ended, run.Environment.Versions)
	}
	if len(run.Trials) != 6 {
		t.Fatalf("%d trials, want 6", len(run.Trials))
	}
	for _, trial := range run.Trials {
		if trial.Params["threads"] == 64.0 {
			if trial.Valid || !strings.Contains(trial.Notes[0], "cores") {
				t.Errorf("64 threads: valid %v, notes %q", trial.Valid, trial.Notes)
			}
			continue
		}
		checkTrial(t, trial)
	}
	nothingLeft(t, r)
}

// checkTrial checks the properties that every trial must have, however slow the machine.
func checkTrial(t *testing.T, trial results.Trial) {
	t.Helper()
	at := trial.Subject + ", " + trial.Load
	m := trial.Metrics
	if !trial.Valid || m[results.Failed] != 0 {
		t.Errorf("%s: valid %v, %g failed, notes %q", at, trial.Valid, m[results.Failed], trial.Notes)
	}
	if trial.Load == "ab" && m[results.Requests] != 200 {
		t.Errorf("%s: %g requests, want 200", at, m[results.Requests])
	}
	for _, name := range []string{results.RequestsPerSecond, results.LatencyMsMin, results.LatencyMsMean,
		results.ClientCPUUsPerRequest,
		results.BackendCPUUsPerRequest, results.ContextSwitchesPerS} {
		if m[name] <= 0 {
			t.Errorf("%s: %s is %g", at, name, m[name])
		}
	}
	if trial.Subject == "haproxy-http" && m[results.BalancerCPUUsPerRequest] <= 0 {
		t.Errorf("%s: the balancer used no CPU", at)
	}
	if m[results.LatencyMsP50] > m[results.LatencyMsP99] || m[results.LatencyMsP99] > m[results.LatencyMsMax] {
		t.Errorf("%s: p50 %g, p99 %g, max %g", at, m[results.LatencyMsP50], m[results.LatencyMsP99],
			m[results.LatencyMsMax])
	}
	var connections uint64
	for _, backend := range trial.Backends {
		connections += backend.Connections
	}
	if len(trial.Backends) != 2 || trial.Load == "ab" && connections < 200 || connections < 4 {
		t.Errorf("%s: %d connections to %d backends", at, connections, len(trial.Backends))
	}
}

// canceler ends a context when the first trial has ended.
type canceler struct{ cancel context.CancelFunc }

func (c canceler) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte("requests/s")) {
		c.cancel()
	}
	return len(text), nil
}

func TestInterruptedRunKeepsItsTrialsAndLeavesNothing(t *testing.T) {
	t.Parallel()

	r := newRun(t, quickSuite, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.ProgressTo(canceler{cancel})
	if _, err := r.Run(ctx); !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v, want ErrInterrupted", err)
	}
	run, err := results.Load(filepath.Join(r.Options.Dir, ResultsFile))
	if err != nil {
		t.Fatal(err)
	}
	// Three trials including the first measured one: two cannot run.
	if !run.Interrupted || len(run.Trials) != 3 {
		t.Errorf("interrupted %v, %d trials; want 3", run.Interrupted, len(run.Trials))
	}
	nothingLeft(t, r)
}

// nothingLeft checks that a run's laboratory is gone.
func nothingLeft(t *testing.T, r *Runner) {
	t.Helper()
	if _, err := os.Stat(r.Lab.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the laboratory's directory %s: %v", r.Lab.Dir, err)
	}
	if names, err := filepath.Glob("/run/netns/jeoul-" + r.Lab.ID + "-*"); err != nil || len(names) > 0 {
		t.Errorf("namespaces left: %v, error %v", names, err)
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		// A process that has ended in the meantime has no command line, and is not left.
		if line, err := process.CmdLine(); err == nil && strings.Contains(strings.Join(line, " "), r.Lab.Dir) {
			t.Errorf("process %d is left: %q", process.PID, line)
		}
	}
}
