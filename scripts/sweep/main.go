// SPDX-License-Identifier: Apache-2.0

// Command sweep removes the remains of an interrupted run of the tests: processes that have VARIABLE=VALUE, its one
// argument, in their environment, and laboratories whose owner is dead, with their namespaces, mounts and directories.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

func main() {
	if err := sweep(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func sweep(mark string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	killed, err := killMarked(ctx, mark)
	if killed > 0 {
		fmt.Printf("killed processes: %d\n", killed)
	}
	removed, errLabs := lab.CleanStale(ctx)
	for _, id := range removed {
		fmt.Printf("removed what laboratory %s left\n", id)
	}
	return errors.Join(err, errLabs)
}

// killMarked kills the processes that have mark in their environment, and those that they start meanwhile. It ends with
// ctx, for one that the kernel holds up does not die at once.
func killMarked(ctx context.Context, mark string) (killed int, err error) {
	for {
		if ctx.Err() != nil {
			return killed, fmt.Errorf("kill the processes with %s: some still run: %v", mark, ctx.Err())
		}
		processes, err := procfs.AllProcs()
		if err != nil {
			return killed, err
		}
		before := killed
		for _, p := range processes {
			if killIfMarked(p.PID, mark) {
				killed++
			}
		}
		if killed == before {
			return killed, nil
		}
	}
}

// killIfMarked kills a process that has mark in its environment. The pidfd holds the process between the look and
// the kill, so that a PID that is used again is never hit.
func killIfMarked(pid int, mark string) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil || pid == os.Getpid() {
		return false
	}
	defer unix.Close(fd)
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	environment, err := p.Environ()
	if err != nil || !slices.Contains(environment, mark) {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
