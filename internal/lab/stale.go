// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// pollInterval is how often a condition that the kernel brings about is looked at.
const pollInterval = 5 * time.Millisecond

// CleanStale removes what labs left whose owner is dead: processes, namespaces,
// mounts, directories, and at last the lock. It returns the IDs of those labs.
// Labs that live, and everything else, are left alone.
func CleanStale(ctx context.Context) (removed []string, err error) {
	files, err := filepath.Glob(filepath.Join(locksDir, "*"+lockSuffix))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), lockSuffix)
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
	l, err := openLock(id)
	if l == nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := removeRemains(ctx, id, l.read()); err != nil {
		l.release()
		return false, err
	}
	return true, l.remove()
}

// removeRemains removes all of a lab but its lock, which the caller holds.
func removeRemains(ctx context.Context, id string, r record) error {
	paths, err := filepath.Glob(filepath.Join(namespacesDir, namespacePrefix(id)+"*"))
	if err != nil {
		return err
	}
	errs := []error{killInside(ctx, paths)}
	for _, path := range paths {
		errs = append(errs, removeNamespace(path))
	}
	errs = append(errs, removeCgroup(ctx, id))
	if r.Dir != "" {
		errs = append(errs, os.RemoveAll(r.Dir))
	}
	return errors.Join(errs...)
}

// removeNamespace takes a namespace's name away. A file that nothing is mounted
// on, left by a death at the wrong moment, is removed too.
func removeNamespace(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// killInside kills, by PID, every process whose network namespace is one of the
// named ones, until there is none: they may fork meanwhile.
func killInside(ctx context.Context, paths []string) error {
	inodes, err := namespaceInodes(paths)
	if err != nil || len(inodes) == 0 {
		return err
	}
	return poll(ctx, func() (bool, error) {
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

// namespaceInodes leaves out files that no namespace is mounted on.
func namespaceInodes(paths []string) (map[uint64]bool, error) {
	inodes := map[uint64]bool{}
	for _, path := range paths {
		var filesystem unix.Statfs_t
		var st unix.Stat_t
		if err := errors.Join(unix.Statfs(path, &filesystem), unix.Stat(path, &st)); err != nil {
			return nil, fmt.Errorf("stat %s: %w", path, err)
		}
		if filesystem.Type == unix.NSFS_MAGIC {
			inodes[st.Ino] = true
		}
	}
	return inodes, nil
}

// killIfInside kills a process of the given namespaces, and tells whether it is
// one. The pidfd holds the process between the look and the kill, so that a
// reused PID is never hit.
func killIfInside(pid int, inodes map[uint64]bool) bool {
	if inode, err := netnsOf(pid); err != nil || !inodes[inode] {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if inode, err := netnsOf(pid); err != nil || !inodes[inode] {
		return false
	}
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	return true
}

// poll calls f until it is done or ctx ends, and then returns f's last error.
func poll(ctx context.Context, f func() (done bool, err error)) error {
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
