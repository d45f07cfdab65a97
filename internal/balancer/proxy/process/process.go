// SPDX-License-Identifier: Apache-2.0

// Package process identifies processes beyond the end of the one that started them, by PID, start and boot: another
// process with a reused PID is never taken for one of them.
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/clock"
)

// ID identifies a process permanently.
type ID struct {
	PID int `json:"pid"`
	// Start is when it began, in clock ticks since the boot (proc_pid_stat(5), starttime), and Boot that boot.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// Of returns the identity of the process that has a number now.
func Of(pid int) (ID, error) {
	stat, err := readStatus(pid)
	if err != nil {
		return ID{}, fmt.Errorf("identifying process %d: %w", pid, err)
	}
	return ID{PID: pid, Start: stat.Starttime, Boot: clock.Read().Boot}, nil
}

// The kernel's answers about processes, which tests replace.
var (
	readStatus = func(pid int) (procfs.ProcStat, error) {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return procfs.ProcStat{}, err
		}
		return process.Stat()
	}
	pidfdOpen = unix.PidfdOpen
)

// HasEnded reports whether an error of Of means that there is no such process. Others say that it is not known: this
// process may have no file descriptor left, or the kernel no memory.
func HasEnded(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// ended reports whether the process has ended; the error says why that is not known.
func (i ID) ended() (bool, error) {
	if i.PID <= 0 || i.Boot != clock.Read().Boot {
		return true, nil
	}
	stat, err := readStatus(i.PID)
	switch {
	case HasEnded(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading the state of process %d: %w", i.PID, err)
	}
	return stat.Starttime != i.Start || stat.State == "Z" || stat.State == "X", nil
}

// IsRunning reports whether the process is not known to have ended: a HAProxy of which nothing can be read serves on.
func (i ID) IsRunning() bool {
	ended, _ := i.ended()
	return !ended
}

// Signal sends it a signal. That it has ended is no error; that this is not known is one, and nothing is sent.
func (i ID) Signal(signal os.Signal) error {
	// The handle is of one process (pidfd_open(2)); so a process that gets the number after the check is sent no
	// signal.
	handle, err := os.FindProcess(i.PID)
	if err != nil {
		return fmt.Errorf("sending %v to process %d: %v", signal, i.PID, err)
	}
	defer handle.Release()
	if ended, err := i.ended(); err != nil {
		return fmt.Errorf("sending %v to process %d: %w", signal, i.PID, err)
	} else if ended {
		return nil
	}
	if err := handle.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v to process %d: %v", signal, i.PID, err)
	}
	return nil
}

// waitPoll bounds each wait for a process's end, after which the context is checked.
const waitPoll = 200 * time.Millisecond

// Wait returns when the process has ended, or with the context's error. It need not be a child. It is not held to have
// ended because the kernel cannot tell.
func (i ID) Wait(ctx context.Context) error {
	fd := -1
	defer func() {
		if fd >= 0 {
			unix.Close(fd)
		}
	}()
	for {
		if ended, _ := i.ended(); ended {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if fd < 0 {
			fd, err = pidfdOpen(i.PID, 0)
		}
		ready := 0
		if err == nil {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			ready, err = unix.Poll(poll, int(waitPoll.Milliseconds()))
		}
		switch {
		case err == unix.ESRCH, ready > 0: // of the process, or of one that has had its number since
			return ctx.Err() // who no longer waits must not take what another has ended for a death
		case err == unix.EMFILE, err == unix.ENFILE, err == unix.ENOMEM:
			_ = clock.Sleep(ctx, waitPoll) // which passes
		case err != nil && err != unix.EINTR:
			return fmt.Errorf("watching process %d: %w", i.PID, err)
		}
	}
}
