// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

var somewhere = netip.MustParseAddrPort("192.0.2.1:80")

func shell(timeout time.Duration, script string) lb.Check {
	return lb.Check{Type: lb.CheckExec, Timeout: timeout,
		Exec: &lb.ExecCheck{Command: []string{"/bin/sh", "-c", script}}}
}

func TestExec(t *testing.T) {
	t.Setenv("SECRET", "of the daemon")
	for _, c := range []struct {
		name    string
		check   lb.Check
		outcome health.Outcome
		words   string
	}{
		{"passes", shell(patiently, "exit 0"), health.Passed, "exit code 0"},
		{"fails", shell(patiently, "echo; echo it is broken >&2; echo more; exit 3"), health.Failed,
			"fails /bin/sh: exit code 3, it is broken"},
		{"is killed", shell(patiently, "kill -9 $$"), health.Failed, "fails /bin/sh: signal: killed"},
		{"knows whom to ask",
			shell(patiently,
				`[ "$JEOUL_ADDRESS $JEOUL_PORT" = "192.0.2.1 80" ] && [ -z "$SECRET" ] && [ "$(pwd)" = / ]`),
			health.Passed, ""},
		{"prints without end",
			shell(300*time.Millisecond, "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done"),
			health.Failed, "lets /bin/sh run for longer than 300ms"},
		{"hangs", shell(300*time.Millisecond, "trap '' TERM INT HUP; while :; do sleep 1; done"), health.Failed,
			"lets /bin/sh run for longer than 300ms"},
		{"is not there", lb.Check{Type: lb.CheckExec, Timeout: patiently,
			Exec: &lb.ExecCheck{Command: []string{"/nonexistent/check"}}}, health.NoEvidence, "/nonexistent/check"},
		{"is none", lb.Check{Type: lb.CheckExec, Timeout: patiently}, health.NoEvidence, "names no program"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, checkInTime(t, somewhere, c.check), c.outcome, c.words) })
	}
}

// TestExecKillsChildren: whatever a program starts is gone when its check is over: in its group, or in a session of its
// own.
func TestExecKillsChildren(t *testing.T) {
	for _, c := range []struct {
		name, script string
		timeout      time.Duration
		outcome      health.Outcome
	}{
		{"leaves a child", "sleep 1000 & echo $! >FILE; exit 0", patiently, health.Passed},
		{"hangs with a child", "sleep 1000 & echo $! >FILE; wait", 2 * time.Second, health.Failed},
		{"leaves a child in another session",
			"setsid sh -c 'echo $$ >FILE.tmp; mv FILE.tmp FILE; exec sleep 1000' & until [ -e FILE ]; do :; done; exit 0", patiently, health.Passed},
		{"hangs with a child in another session",
			"setsid sh -c 'echo $$ >FILE.tmp; mv FILE.tmp FILE; exec sleep 1000 >/dev/null 2>&1' & wait; sleep 1000",
			2 * time.Second, health.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			var text []byte
			until(t, "the child has started within the timeout", func() bool {
				got := check(t, somewhere, shell(c.timeout, strings.ReplaceAll(c.script, "FILE", file)))
				expect(t, got, c.outcome, "")
				var err error
				text, err = os.ReadFile(file)
				return err == nil
			})
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			until(t, fmt.Sprintf("process %d is gone", pid), func() bool {
				// A zombie is its new parent's.
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return err != nil || strings.Contains(string(stat), ") Z ")
			})
		})
	}
	until(t, "no slot is taken", func() bool { return len(slots) == 0 })
	if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != unix.ECHILD {
		t.Errorf("waiting for children: %v, expected that there are none", err)
	}
}

// TestExecReapsChildren: as PID 1 of a container, this process becomes the parent of the children that a check leaves,
// and reaps them.
func TestExecReapsChildren(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	expect(t, check(t, somewhere, shell(patiently, "(sleep 1000; :) & exit 0")), health.Passed, "exit code 0")
	until(t, "no child is left", func() bool {
		return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD
	})
	until(t, "no slot is taken", func() bool { return len(slots) == 0 })
}

// until polls for as long as a slow machine may take.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patiently)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestExecLimit: programs that hang keep others waiting, and that is no evidence against the others' backends.
func TestExecLimit(t *testing.T) {
	for range programs {
		slots <- struct{}{}
	}
	expect(t, check(t, somewhere, shell(50*time.Millisecond, "exit 0")), health.NoEvidence,
		"32 programs of checks ran all the time")
	for range programs {
		<-slots
	}
}

// TestExecTurn: a program waits for its turn for as long as the check may take, and has that time again to run, however
// long it has waited.
func TestExecTurn(t *testing.T) {
	const within, waited = 2 * time.Second, 1900 * time.Millisecond
	before := slots
	t.Cleanup(func() { slots = before })
	for _, c := range []struct {
		name         string
		frees, takes time.Duration
		turn, ended  bool
		took         time.Duration
	}{
		{"in vain", within + 1, 0, false, false, within},
		{"late, and ends in time", waited, within - 1, true, true, waited + within - 1},
		{"late, and hangs", waited, time.Hour, true, false, waited + within},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slots = make(chan struct{}, 1)
				slots <- struct{}{}
				began, done := time.Now(), make(chan struct{})
				ctx, cancel := context.WithTimeout(t.Context(), 2*within)
				defer cancel()
				time.AfterFunc(c.frees, func() { <-slots })
				turn := awaitTurn(ctx, within)
				program := time.AfterFunc(c.takes, func() { close(done) })
				defer program.Stop()
				ended := turn && awaitEnd(ctx, done, within)
				if took := time.Since(began); turn != c.turn || ended != c.ended || took != c.took {
					t.Errorf("had a turn: %t, ended: %t, after %v; want %t, %t, %v", turn, ended, took, c.turn, c.ended,
						c.took)
				}
			})
		})
	}
}
