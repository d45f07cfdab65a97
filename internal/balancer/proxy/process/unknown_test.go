// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// TestNotKnown: a process whose state cannot be read runs, is sent no signal, and is waited for, by its own end and
// after failures that pass.
func TestNotKnown(t *testing.T) { // not in parallel: it replaces the kernel's answers
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(end)
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	status, open := readStatus, pidfdOpen
	t.Cleanup(func() { readStatus, pidfdOpen = status, open })
	readStatus = func(int) (procfs.ProcStat, error) {
		return procfs.ProcStat{}, &fs.PathError{Op: "open", Path: "/proc", Err: unix.EMFILE}
	}
	if !id.IsRunning() {
		t.Error("it does not run")
	}
	if _, err := Of(cmd.Process.Pid); err == nil || HasEnded(err) {
		t.Errorf("identifying it: %v", err)
	}
	if err := id.Signal(syscall.SIGKILL); !errors.Is(err, unix.EMFILE) {
		t.Errorf("a signal to it: %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := id.Wait(done); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for it with a context that is over: %v", err)
	}
	shortages := []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM}
	pidfdOpen = func(pid, flags int) (int, error) {
		if len(shortages) > 0 {
			err := shortages[0]
			shortages = shortages[1:]
			return -1, err
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		return open(pid, flags)
	}
	if err := id.Wait(t.Context()); err != nil || len(shortages) > 0 {
		t.Errorf("waiting for its end: %v, before %d failures that pass", err, len(shortages))
	}
	end()
	for errno, ended := range map[error]bool{unix.ESRCH: true, fs.ErrNotExist: true, unix.ENOMEM: false} {
		readStatus = func(int) (procfs.ProcStat, error) { return procfs.ProcStat{}, errno }
		if id.IsRunning() == ended {
			t.Errorf("%v: it runs: %t", errno, !ended)
		}
	}
}
