// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// onLine calls do when the first line with words has been printed.
type onLine struct {
	words string
	do    func()
	done  bool
}

func (o *onLine) Write(text []byte) (int, error) {
	if !o.done && bytes.Contains(text, []byte(o.words)) {
		o.done = true
		o.do()
	}
	return len(text), nil
}

const failingSuite = `name: failing
title: Generators that fail
lab: {clients: 2, servers: 1}
web: {file_bytes: 512}
repeats: 1
subjects:
  - name: direct
loads:
  - {name: dies, kind: ab, concurrency: [4], requests: 40}
  - {name: talks, kind: ab, concurrency: [6], requests: 40}
  - {name: hangs, kind: ab, concurrency: [8], duration: 1s}
  - {name: good, kind: wrk, concurrency: [4], duration: 1s}
`

// failingAB is an ab that fails in different ways, by its number of connections.
const failingAB = `#!/bin/sh
case "$*" in
-V) echo "This is ApacheBench, Version 2.3" ;;
*"-c 2 "*) echo "socket: Too many open files (24)" >&2; exit 24 ;;
*"-c 3 "*) echo "what do you want of me" ;;
*"-c 4 "*) echo "waiting for ever" >&2; exec sleep 600 ;;
esac
`

// newRun returns a runner of a suite.
func newRun(t *testing.T, suite, dir string, options Options) *Runner {
	t.Helper()
	begin(t)
	for _, program := range []string{"nginx", "haproxy", "ab", "wrk"} {
		testenv.Program(t, program)
	}
	parsed, err := ParseSuite("suite.yaml", []byte(suite))
	if err != nil {
		t.Fatal(err)
	}
	options.Suite, options.Dir, options.Progress = parsed, dir, t.Output()
	r := patientRunner(t, options)
	return r
}

func TestGeneratorsThatFailDoNotEndTheRun(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "ab"), []byte(failingAB), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	r := newRun(t, failingSuite, t.TempDir(), Options{})
	// Only the hanging generator is given up early: the others may take longer on a machine that stalls.
	r.ProgressTo(io.MultiWriter(&onLine{words: "talks", do: func() { r.Grace = time.Second }},
		&onLine{words: "hangs", do: func() { r.Grace = time.Minute }}))
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"dies":  `client01 and 1 more: ab died: exit status 24; its last words: "socket: Too many open files (24)"`,
		"talks": `what do you want of me`,
		"hangs": `did not end within 2s of its start, so it was killed; its last words: "waiting for ever"`,
	}
	if len(run.Trials) != 4 {
		t.Fatalf("%d trials, want 4", len(run.Trials))
	}
	for _, trial := range run.Trials {
		if says := want[trial.Load]; says != "" && (trial.Valid || !strings.Contains(trial.Notes[0], says)) {
			t.Errorf("%s: valid %v, notes %q; want %q", trial.Load, trial.Valid, trial.Notes, says)
		}
	}
	if last := run.Trials[3]; last.Load != "good" || !last.Valid {
		t.Errorf("the trial behind them: %s, valid %v, notes %q", last.Load, last.Valid, last.Notes)
	}
	nothingLeft(t, r)
}

func TestFullDiskKeepsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	r := newRun(t, quickSuite, dir, Options{})
	r.ProgressTo(&onLine{words: "requests/s", do: func() {
		// Fill all free space.
		if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err,
			syscall.ENOSPC) {
			t.Errorf("filling the disk: %v", err)
		}
	}})
	run, err := r.Run(t.Context())
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), ResultsFile) {
		t.Errorf("got %v, want an error that names the file and says that there is no space left", err)
	}
	kept, loadErr := results.Load(filepath.Join(dir, ResultsFile))
	if loadErr != nil {
		t.Fatal(loadErr)
	}
	// Two trials that cannot run, and the first that could; the next one exists only in memory.
	if len(kept.Trials) != 3 || len(run.Trials) != 4 {
		t.Errorf("%d trials kept and %d returned, want 3 and 4", len(kept.Trials), len(run.Trials))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left in the directory: %v", left)
	}
	nothingLeft(t, r)
}

func TestBrokenLaboratoryIsBuiltAnew(t *testing.T) {
	t.Parallel()
	r := newRun(t, quickSuite, t.TempDir(), Options{})
	first := ""
	r.ProgressTo(&onLine{words: "requests/s", do: func() {
		first = r.Lab.ID
		if err := web.Of(r).Processes[0].Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		<-web.Of(r).Processes[0].Done()
	}})
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Two trials that cannot run, a good one, and the one after it.
	if len(run.Trials) != 6 || !run.Trials[2].Valid || run.Trials[3].Valid || !run.Trials[4].Valid ||
		!run.Trials[5].Valid {
		t.Fatalf("trials %+v", run.Trials)
	}
	if note := run.Trials[3].Notes[0]; !strings.Contains(note, "the web server on web01 has ended") ||
		!strings.Contains(note, "has a new one") {
		t.Errorf("notes %q", run.Trials[3].Notes)
	}
	if r.Lab.ID == first {
		t.Error("the laboratory is still the first")
	}
	nothingLeft(t, r)
}

func TestResume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRun(t, quickSuite, dir, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.ProgressTo(canceler{cancel})
	if _, err := r.Run(ctx); !errors.Is(err, ErrInterrupted) {
		t.Fatalf("got %v, want ErrInterrupted", err)
	}
	before, err := results.Load(filepath.Join(dir, ResultsFile))
	if err != nil {
		t.Fatal(err)
	}
	run, err := newRun(t, quickSuite, dir, Options{Resume: true}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Trials) != 6 || run.Interrupted || len(run.Resumed) != 1 || !run.Started.Equal(before.Started) {
		t.Errorf("%d trials, interrupted %v, resumed %v, started %v", len(run.Trials), run.Interrupted, run.Resumed,
			run.Started)
	}
	seen := map[string]bool{}
	for _, trial := range run.Trials {
		seen[trial.Subject+trial.Load+OrNone(stringOf(AsRead(trial.Params)["threads"]))] = true
	}
	if len(seen) != 6 {
		t.Errorf("the trials are of %d points, want 6: %v", len(seen), seen)
	}
}

func stringOf(value any) string {
	if value == 1.0 {
		return "one"
	}
	return ""
}

func TestResumeRefuses(t *testing.T) {
	suite, err := ParseSuite("tiny.yaml", []byte(tinySuite))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	now := func() *Runner {
		return &Runner{Options: Options{Suite: suite, Dir: dir}, Results: &results.Run{
			Schema: results.Schema, Suite: "tiny", SuiteDigest: suite.Digest, Started: time.Now(),
			Trials: []results.Trial{},
			Environment: results.Environment{Kernel: "6.1", CPU: "one", Commit: "abc",
				Versions: map[string]string{"nginx": "1.22", "kernel": "6.1"},
				Limits:   map[string]string{"open_files": "1024"}},
		}}
	}
	if err := now().Resume(); err == nil || !strings.Contains(err.Error(), "--resume: reading results") {
		t.Errorf("without results: %v", err)
	}
	if err := now().Save(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(r *Runner)
		says   string
	}{
		"nothing": {func(*Runner) {}, ""},
		"suite":   {func(r *Runner) { r.Results.SuiteDigest = "other" }, "suite: the file's content has changed"},
		"form":    {func(r *Runner) { r.Results.Quick = true }, "form: then the long one, now the short one"},
		"only":    {func(r *Runner) { r.Results.Only = []string{"direct"} }, "--only: then all subjects, now direct"},
		"loads":   {func(r *Runner) { r.Results.Loads = []string{"ab"} }, "--loads: then all loads, now ab"},
		"repeats": {func(r *Runner) { r.Results.Repeats = 3 }, "--repeats: then 0, now 3"},
		"kernel":  {func(r *Runner) { r.Results.Environment.Kernel = "6.18" }, "kernel: then 6.1, now 6.18"},
		"version": {func(r *Runner) { r.Results.Environment.Versions["nginx"] = "1.26" },
			"version of nginx: then 1.22, now 1.26"},
		"new program": {func(r *Runner) { r.Results.Environment.Versions["wrk"] = "4.1" },
			"version of wrk: then none, now 4.1"},
		"commit": {func(r *Runner) { r.Results.Environment.Commit = "abc+dirty" }, "commit of jeoul"},
	} {
		r := now()
		tc.change(r)
		err := r.Resume()
		if tc.says == "" && err != nil || tc.says != "" &&
			(!errors.Is(err, ErrResume) || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.says)
		}
	}
	r := now()
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	r.Results.Environment.Limits["open_files"] = "20000"
	if err := r.SameLimits(); !errors.Is(err, ErrResume) ||
		!strings.Contains(err.Error(), "limit open_files: then 1024, now 20000") {
		t.Errorf("other limits: %v", err)
	}
}
