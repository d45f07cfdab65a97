// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// Bound is the time that the end of a lab may take.
const Bound = 5 * time.Second

// pollInterval is the interval at which a condition that the kernel brings about is polled.
const pollInterval = 5 * time.Millisecond

var idPattern = regexp.MustCompile(`^[0-9a-f]{4}$`)

// Clean removes the remains of labs whose owner is dead: processes, namespaces, mounts, directories, and finally the
// lock. It returns the IDs of those labs. Running labs, and everything else, are left alone.
func Clean(ctx context.Context) (removed []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), suffix)
		// An ID is part of patterns of names: another text, such as "*", would name what is not this lab's.
		if !idPattern.MatchString(id) {
			continue
		}
		done, err := cleanOne(ctx, id)
		if err != nil {
			errs = append(errs, fmt.Errorf("clean up after dead lab %s: %w", id, err))
		}
		if done {
			removed = append(removed, id)
		}
	}
	return removed, errors.Join(errs...)
}

func cleanOne(ctx context.Context, id string) (done bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	l, err := open(id)
	if l == nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, Bound)
	defer cancel()
	if err := Remove(ctx, id, l.Read()); err != nil {
		l.Release()
		return false, err
	}
	return true, l.Remove()
}

// Remove removes all of a lab but its lock, which the caller holds. A directory that has not the name of the lab's work
// directory is not the lab's.
func Remove(ctx context.Context, id string, r Record) error {
	errs := []error{killInside(ctx, id), netns.RemoveNames(id), removeCgroup(ctx, id)}
	if filepath.Base(r.Dir) == DirName(id) {
		errs = append(errs, os.RemoveAll(r.Dir))
	}
	return errors.Join(errs...)
}

// killInside kills, by PID, every process whose network namespace has a name of the lab, until there is none: processes
// may fork in the meantime.
func killInside(ctx context.Context, id string) error {
	inodes, err := namespaceInodes(id)
	if err != nil || len(inodes) == 0 {
		return err
	}
	return Poll(ctx, func() (bool, error) {
		procs, err := procfs.AllProcs()
		if err != nil {
			return false, err
		}
		var left []int
		for _, p := range procs {
			if p.PID != os.Getpid() && killIfInside(p.PID, inodes) {
				left = append(left, p.PID)
			}
		}
		if len(left) > 0 {
			return false, fmt.Errorf("processes %v do not end", left)
		}
		return true, nil
	})
}

// namespaceInodes returns the inode numbers of the network namespaces that a lab's names refer to.
func namespaceInodes(id string) (map[uint64]bool, error) {
	mounted, err := netns.MountedNames(id)
	if err != nil {
		return nil, err
	}
	inodes := map[uint64]bool{}
	for _, m := range mounted {
		// The mount's root is "net:[4026532250]" on nsfs.
		var inode uint64
		if _, err := fmt.Sscanf(m.Root, "net:[%d]", &inode); err == nil {
			inodes[inode] = true
		}
	}
	return inodes, nil
}

// killIfInside kills a process of the given namespaces, and reports whether it is one. The pidfd holds the process
// between the check and the kill, so that a reused PID is never hit.
func killIfInside(pid int, inodes map[uint64]bool) bool {
	if inode, err := netns.OfProcess(pid); err != nil || !inodes[inode] {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if inode, err := netns.OfProcess(pid); err != nil || !inodes[inode] {
		return false
	}
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	return true
}

// Poll calls f until it is done or ctx ends, and then returns f's last error.
func Poll(ctx context.Context, f func() (done bool, err error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		done, err := f()
		if done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}
