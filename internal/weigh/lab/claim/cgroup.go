// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CgroupName is the name of a lab's cgroup (of version 2), below the root. Everything started on the balancer of a lab
// of containers runs in this cgroup, and nothing else of this machine does: a balancer's programs that are attached
// there serve the programs of its host, and no others.
func CgroupName(id string) string { return "jeoul-lab-" + id }

// OpenCgroups opens the root of the machine's cgroups, wherever they are mounted, if they are: as a mount of its own
// without a path.
func OpenCgroups() (*os.File, error) {
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

// MakeCgroup makes the cgroup of a lab, and returns its directory.
func MakeCgroup(id string) (*os.File, error) {
	root, err := OpenCgroups()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := CgroupName(id)
	if err := unix.Mkdirat(int(root.Fd()), name, 0o755); err != nil {
		return nil, fmt.Errorf("make the cgroup %s: %w", name, err)
	}
	fd, err := unix.Openat(int(root.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the cgroup %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// removeCgroup removes the cgroup of a lab whose processes have ended, if it had one.
func removeCgroup(ctx context.Context, id string) error {
	root, err := OpenCgroups()
	if err != nil {
		return nil // a kernel without cgroups has none to remove
	}
	defer root.Close()
	name := CgroupName(id)
	return Poll(ctx, func() (bool, error) {
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
