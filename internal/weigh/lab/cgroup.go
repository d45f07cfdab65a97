// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The balancer of a lab with [Spec.Containers] has a cgroup (of version 2) in which all that
// is started on it runs, and which holds nothing else of this machine: what a balancer
// attaches there serves the programs of its host, and meets no others.

// cgroupsDir is where the balancer's programs see the machine's cgroups.
const cgroupsDir = "/sys/fs/cgroup"

// cgroupName is the name of a lab's cgroup, below the root.
func cgroupName(id string) string { return "jeoul-lab-" + id }

// openCgroups opens the root of the machine's cgroups, wherever they are mounted, if they are:
// as a mount of its own that has no path.
func openCgroups() (*os.File, error) {
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open the file system cgroup2: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("open the file system cgroup2: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount the file system cgroup2: %w", err)
	}
	return os.NewFile(uintptr(mount), "cgroup2"), nil
}

// groupBalancer makes the balancer's cgroup, and shows the machine's cgroups to its programs.
func (l *Lab) groupBalancer() error {
	root, err := openCgroups()
	if err != nil {
		return err
	}
	defer root.Close()
	name := cgroupName(l.ID)
	if err := unix.Mkdirat(int(root.Fd()), name, 0o755); err != nil {
		return fmt.Errorf("make the cgroup %s: %w", name, err)
	}
	fd, err := unix.Openat(int(root.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the cgroup %s: %w", name, err)
	}
	l.Balancer.cgroup = os.NewFile(uintptr(fd), name)
	err = l.Balancer.onKeeper(func() error { return unix.Mount("cgroup2", cgroupsDir, "cgroup2", 0, "") })
	if err != nil {
		return fmt.Errorf("mount the cgroups on %s: %w", l.Balancer.Name, err)
	}
	l.Balancer.Cgroup = filepath.Join(cgroupsDir, name)
	return nil
}

// removeCgroup removes the cgroup of a lab whose processes have ended, if it had one.
func removeCgroup(ctx context.Context, id string) error {
	root, err := openCgroups()
	if err != nil {
		return nil // a kernel without cgroups has none to remove
	}
	defer root.Close()
	name := cgroupName(id)
	return poll(ctx, func() (bool, error) {
		switch err := unix.Unlinkat(int(root.Fd()), name, unix.AT_REMOVEDIR); err {
		case nil, unix.ENOENT:
			return true, nil
		case unix.EBUSY:
			return false, fmt.Errorf("remove the cgroup %s: %w", name, err)
		default:
			return true, fmt.Errorf("remove the cgroup %s: %w", name, err)
		}
	})
}
