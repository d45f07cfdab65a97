// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/report"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// TestUntilHangup: a run ends in order when its terminal is gone, but not under nohup.
func TestUntilHangup(t *testing.T) {
	// The test itself may run under nohup: after a Notify, the signal no longer counts as ignored.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	signal.Stop(hangup)
	ctx, stop := untilHangup(t.Context())
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, testenv.WaitLimit, "the run ends", func() bool { return ctx.Err() != nil })
	stop()
	signal.Ignore(syscall.SIGHUP)
	t.Cleanup(func() { signal.Reset(syscall.SIGHUP) })
	_, stop = untilHangup(t.Context())
	defer stop()
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("under nohup, SIGHUP is no longer ignored")
	}
}

// TestReportsWithoutTerminal: the command writes the reports to files although its terminal is gone.
func TestReportsWithoutTerminal(t *testing.T) {
	run, err := results.Load("../../../docs/results/demo.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	terminal := os.Stdout
	t.Cleanup(func() { os.Stdout = terminal })
	os.Stdout = gone
	dir := t.TempDir()
	if err := writeReports(dir, run, report.Language("en")); err == nil {
		t.Error("no error says that the report was not printed")
	}
	for _, name := range []string{"report.html", "report.md"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
