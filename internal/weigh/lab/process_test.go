// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// run runs a shell script on a host to its end and returns its output.
func run(t *testing.T, h *Host, script string) string {
	t.Helper()
	var out bytes.Buffer
	p, err := h.Start(t.Context(), Command{Path: "sh", Args: []string{"-c", script}, Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	return out.String()
}

// startDaemon runs a script in its own session, whose parent is gone, and returns its PID.
func startDaemon(t *testing.T, h *Host, script string) int {
	t.Helper()
	file := filepath.Join(h.Dir, "daemon.pid")
	run(t, h, `setsid sh -c 'echo $$ > `+file+`.new; mv `+file+`.new `+file+`; `+script+`' >/dev/null 2>&1 &`)
	var pid int
	eventually(t, "the daemon writes its PID", func() bool {
		b, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid > 0
	})
	return pid
}

func TestProcessRunsInsideTheHost(t *testing.T) {
	l := newLab(t)
	h := l.Clients[1]
	if got := strings.TrimSpace(run(t, h, "pwd")); got != h.Dir {
		t.Errorf("it runs in %s, want the host's %s", got, h.Dir)
	}
	if got := run(t, h, "ls /sys/class/net"); got != h.Interface+"\nlo\n" {
		t.Errorf("it sees devices %q", got)
	}
	var out bytes.Buffer
	p, err := h.Start(t.Context(), Command{
		Path: "sh", Args: []string{"-c", "grep Cpus_allowed_list /proc/self/status; echo $WORD; pwd"},
		Env: []string{"WORD=here"}, Dir: "/", Stdout: &out, CPUs: []int{0},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := "Cpus_allowed_list:\t0\nhere\n/\n"; out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
	// Only the process was pinned.
	if got := run(t, h, "cat /proc/self/status"); strings.Contains(got, "Cpus_allowed_list:\t0\n") && manyCPUs(t) {
		t.Error("the next process is pinned too")
	}
}

func manyCPUs(t *testing.T) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(string(b), "Cpus_allowed_list:\t0\n")
}

func TestProcessErrors(t *testing.T) {
	l := newLab(t)
	h := l.Clients[0]
	p, err := h.Start(t.Context(), Command{Path: "sh", Args: []string{"-c", "exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), h.Name) {
		t.Errorf("Wait: %v; want exit status 3 and the host's name", err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Signal after the end: %v, want %v", err, os.ErrProcessDone)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("Stop after the end: %v", err)
	}
	if _, err := h.Start(t.Context(), Command{Path: "no-such-program"}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("Start: %v, want %v", err, exec.ErrNotFound)
	}
	if _, err := h.Start(t.Context(), Command{Path: "true", CPUs: []int{1 << 9}}); err == nil {
		t.Error("Start pinned to a CPU that there is not succeeded")
	}
}

// TestStop: the group ends with its leader, by SIGTERM if possible, otherwise by SIGKILL.
func TestStop(t *testing.T) {
	l := newLab(t)
	h := l.Servers[0]
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name, script string
		ctx          context.Context
		want         syscall.Signal
	}{
		{"ends on SIGTERM", `sleep 1000 & echo $! >child; wait`, t.Context(), syscall.SIGTERM},
		{"ignores SIGTERM", `trap "" TERM; sleep 1000 & echo $! >child; wait`, ended, syscall.SIGKILL},
		{"its child ignores SIGTERM", `(trap "" TERM; exec sleep 1000) & echo $! >child; wait`, t.Context(),
			syscall.SIGTERM},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			p, err := h.Start(t.Context(), Command{Path: "sh", Args: []string{"-c", test.script}, Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			child := childPID(t, dir)
			if err := p.Stop(test.ctx); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := p.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != test.want {
				t.Errorf("Wait: %v, want an end by %v", err, test.want)
			}
			eventually(t, "the child ends", func() bool { return !running(child) })
		})
	}
}

func childPID(t *testing.T, dir string) (pid int) {
	t.Helper()
	eventually(t, "the child runs", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "child"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		// Until it has become sleep, it may not ignore signals yet.
		comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		return string(comm) == "sleep\n"
	})
	return pid
}

// running distinguishes a process from a zombie, which no process in a container may reap.
func running(pid int) bool {
	_, err := netns.OfProcess(pid)
	return err == nil
}

func TestContextStopsProcess(t *testing.T) {
	l := newLab(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := l.Balancer.Start(ctx, Command{Path: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-p.Done():
	case <-time.After(waitTimeout):
		t.Fatal("the process outlives its context")
	}
	if _, err := l.Balancer.Start(ctx, Command{Path: "true"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with an ended context: %v, want %v", err, context.Canceled)
	}
}

// TestWaitWithOpenOutput: a daemon that keeps the output open does not prevent Wait from returning.
func TestWaitWithOpenOutput(t *testing.T) {
	l := newLab(t)
	var out bytes.Buffer
	p, err := l.Balancer.Start(t.Context(), Command{Path: "sh", Args: []string{"-c", "echo on; sleep 1000 &"},
		Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	if out.String() != "on\n" {
		t.Errorf("output %q", out.String())
	}
}

// TestSession: a process leads a session only if the command asks for that, and its group in both cases.
func TestSession(t *testing.T) {
	l := newLab(t)
	for _, session := range []bool{true, false} {
		p, err := l.Balancer.Start(t.Context(), Command{Path: "sleep", Args: []string{"1000"}, Session: session})
		if err != nil {
			t.Fatal(err)
		}
		sid, err := unix.Getsid(p.PID())
		if err != nil || (sid == p.PID()) != session {
			t.Errorf("with Session %v, process %d is in the session %d, %v", session, p.PID(), sid, err)
		}
		if group, err := unix.Getpgid(p.PID()); err != nil || group != p.PID() {
			t.Errorf("with Session %v, process %d is in the group %d, %v", session, p.PID(), group, err)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
