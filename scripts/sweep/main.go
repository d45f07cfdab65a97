// SPDX-License-Identifier: Apache-2.0

// Command sweep removes the remains of an interrupted run of the tests: processes that have VARIABLE=DIRECTORY, its
// argument, in their environment, its control groups, mounts below that directory, and laboratories whose owner is
// dead, with their namespaces, mounts and directories.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/local"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
)

func main() {
	// A second interrupt of a run, as make sends to its commands, must not end the sweep: Go handles SIGTERM although
	// the script that starts this ignores it. Nor must the loss of the terminal, or of what reads the output.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
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
	_, dir, _ := strings.Cut(mark, "=")
	// Before the laboratories' directories are removed: tests mount file systems in them.
	errMounts := unmountBelow(dir)
	removed, errLabs := lab.CleanStale(ctx)
	for _, id := range removed {
		fmt.Printf("removed what laboratory %s left\n", id)
	}
	return errors.Join(err, errMounts, errLabs, removeCgroups(ctx, dir))
}

// removeCgroups removes the control groups of the tests of a run, whose processes were killed.
func removeCgroups(ctx context.Context, dir string) error {
	root, err := local.Cgroup("")
	if err != nil {
		return nil // a machine without control groups has none to remove
	}
	groups, err := filepath.Glob(filepath.Join(root, testenv.CgroupPrefixOf(dir)+"*"))
	if err != nil {
		return fmt.Errorf("list the control groups of the tests in %s: %v", root, err)
	}
	var errs []error
	for _, group := range groups {
		// The group is busy until the last of its processes is gone.
		err := claim.Poll(ctx, func() (bool, error) {
			err := os.Remove(group)
			return !errors.Is(err, unix.EBUSY), err
		})
		if err == nil {
			fmt.Printf("removed the control group %s\n", group)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// mountEscapes replaces the escapes of paths in /proc/self/mountinfo.
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// unmountBelow unmounts all file systems below a directory, the latest mount first.
func unmountBelow(dir string) error {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return fmt.Errorf("list the mounts below %s: %v", dir, err)
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		point := mountEscapes.Replace(m.MountPoint)
		if !strings.HasPrefix(point, dir+"/") {
			continue
		}
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
			continue
		}
		fmt.Printf("unmounted %s\n", point)
	}
	return errors.Join(errs...)
}

// killMarked kills the processes that have mark in their environment, and those that they start in the meantime. It
// ends with ctx, because a process that the kernel holds up does not die immediately.
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

// endTimeout is how long a killed process may take to end.
const endTimeout = 10 * time.Second

// killIfMarked kills a process that has mark in its environment, and waits until it has ended: until then the process
// holds the lock of its laboratory, which would count as alive. The pidfd holds the process between the check and the
// kill, so that a reused PID is never hit. killIfMarked also waits for a process that is ending by itself, which shows
// no environment any more: SIGTERM ends gotestsum and the tests at once, and the script does not wait for the tests.
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
		if stat, err := p.Stat(); err == nil && stat.Flags&exiting != 0 {
			awaitEnd(fd)
		}
		return false
	}
	if unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
		return false
	}
	awaitEnd(fd)
	return true
}

// exiting is the flag PF_EXITING of a task, which no package exports (include/linux/sched.h).
const exiting = 0x4

// awaitEnd waits until the process of a pidfd has ended, for endTimeout at most: the objects that the process holds
// then remain, and are reported.
func awaitEnd(fd int) {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(endTimeout.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
