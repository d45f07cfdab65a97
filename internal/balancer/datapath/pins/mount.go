// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountName is the directory in the state directory on which a bpf file system is mounted if the host has none.
const mountName = "bpf"

func mountPoint(stateDir string) string { return filepath.Join(stateDir, mountName) }

// isBPF reports whether a directory is on a bpf file system.
func isBPF(dir string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(dir, &stat) == nil && int64(stat.Type) == unix.BPF_FS_MAGIC
}

// writable returns a directory on a bpf file system for balancers' directories.
func writable(stateDir string) (string, error) {
	root := filepath.Join(system, balancersDir)
	var refused error
	// An unprivileged service may see only the directory of balancers, which root has created.
	if isBPF(system) || isBPF(root) {
		if refused = makeRoot(root); refused == nil {
			return root, nil
		}
	}
	// Not the mount point itself, because a bpf file system has files of its own.
	root = filepath.Join(mountPoint(stateDir), balancersDir)
	err := mount(mountPoint(stateDir))
	if err == nil {
		err = makeRoot(root)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %v", ErrUnavailable, errors.Join(refused, err))
	}
	return root, nil
}

// makeRoot creates a directory, and checks that it is writable.
func makeRoot(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fmt.Errorf("%s cannot be written to: %w", dir, err)
	}
	return nil
}

// mount mounts a bpf file system, unless there is one. The removal of the last store unmounts it, and so does a reboot.
func mount(dir string) error {
	if isBPF(dir) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return errors.Join(fmt.Errorf("mounting a bpf file system on %s: %w", dir, err), os.Remove(dir))
	}
	return nil
}

// Private reports whether the store is on a bpf file system that ends with this process, because it is in a mount
// namespace that the process' parent is not in: `ip netns exec` and `unshare --mount` make one for each command.
func (s *Store) Private() bool {
	if strings.HasPrefix(s.dir, filepath.Join(system, balancersDir)+"/") {
		return false
	}
	var own, parents unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/mnt", &own) != nil || unix.Stat(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()),
		&parents) != nil {
		return false // reading another user's namespace needs privileges
	}
	return own.Ino != parents.Ino
}

func unmount(dir string) error {
	if !isBPF(dir) {
		return nil
	}
	if err := unix.Unmount(dir, 0); err != nil {
		return fmt.Errorf("unmounting %s: %w", dir, err)
	}
	return os.Remove(dir)
}
