// SPDX-License-Identifier: Apache-2.0

// Package process identifies processes beyond the end of the one that started them, by PID, start and boot: another
// process with a reused PID is never taken for one of them.
package process

import (
	"context"
	"errors"
	"fmt"
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

func readStatus(pid int) (procfs.ProcStat, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return process.Stat()
}

// IsRunning reports whether the process has not ended.
func (i ID) IsRunning() bool {
	if i.PID <= 0 || i.Boot != clock.Read().Boot {
		return false
	}
	stat, err := readStatus(i.PID)
	return err == nil && stat.Starttime == i.Start && stat.State != "Z" && stat.State != "X"
}

// Signal sends it a signal. That it has ended is no error.
func (i ID) Signal(signal os.Signal) error {
	// The handle is of one process (pidfd_open(2)); so a process that gets the number after the check is sent no
	// signal.
	handle, err := os.FindProcess(i.PID)
	if err != nil {
		return fmt.Errorf("sending %v to process %d: %v", signal, i.PID, err)
	}
	defer handle.Release()
	if !i.IsRunning() {
		return nil
	}
	if err := handle.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v to process %d: %v", signal, i.PID, err)
	}
	return nil
}

// waitPoll bounds each wait for a process's end, after which the context is checked.
const waitPoll = 200 * time.Millisecond

// Wait returns when the process has ended, or with the context's error. It need not be a child.
func (i ID) Wait(ctx context.Context) error {
	fd, err := unix.PidfdOpen(i.PID, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watching process %d: %v", i.PID, err)
	}
	defer unix.Close(fd)
	for i.IsRunning() {
		if err := ctx.Err(); err != nil {
			return err
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, int(waitPoll.Milliseconds())); err != nil && err != unix.EINTR {
			return fmt.Errorf("watching process %d: %v", i.PID, err)
		}
	}
	return nil
}
