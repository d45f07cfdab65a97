// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A process may be in a chroot. Its "/" is then any directory, which may be no mount point. After setns, a thread's
// root is not that directory, but the root of the namespace.

// isolateMounts separates the calling thread's new mount namespace from the machine's: what is mounted in it stays in
// it. It returns the thread's root as seen from the root of the namespace, "/" where the process is in no chroot.
func isolateMounts() (root string, err error) {
	root, dir, err := makeRootSlave()
	if err != nil {
		return "", err
	}
	if root != "/" {
		// Mounts below it must be visible in it, and programs expect their root to be a mount point.
		if err := unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return "", fmt.Errorf("bind the root of the chroot, %s, to itself: %w", root, err)
		}
	}
	return root, EnterRoot(root, dir)
}

// unshareMounts gives the calling thread its own mount namespace, with the machine's mounts: what is unmounted in it
// stays mounted in the machine's.
func unshareMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare the mount namespace: %w", err)
	}
	root, dir, err := makeRootSlave()
	if err != nil {
		return fmt.Errorf("part the mounts from the machine's: %w", err)
	}
	return EnterRoot(root, dir)
}

// makeRootSlave makes the mounts of the calling thread's new mount namespace slaves of the machine's, and leaves the
// thread at the root of that namespace. It returns the root and the working directory of the process, which the caller
// enters again.
func makeRootSlave() (root, dir string, err error) {
	if dir, err = os.Getwd(); err != nil {
		return "", "", err
	}
	if root, err = leaveChroot("/proc/thread-self/ns/mnt"); err != nil {
		return "", "", err
	}
	// Slave, not private: when another lab unmounts its namespaces, this copy
	// must follow, or it would keep them alive.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return "", "", fmt.Errorf("make the mounts slaves: %w", err)
	}
	return root, dir, nil
}

// leaveChroot moves the calling thread, which shares its root with no other thread, to the root of a mount namespace
// that contains the thread's present root. It returns the path of that root in the namespace.
func leaveChroot(namespace string) (root string, err error) {
	at, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open the root: %w", err)
	}
	defer unix.Close(at)
	ns, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open the mount namespace: %w", err)
	}
	defer unix.Close(ns)
	if err := errors.Join(unix.Setns(ns, unix.CLONE_NEWNS), unix.Fchdir(at)); err != nil {
		return "", fmt.Errorf("find the root of the mount namespace: %w", err)
	}
	path := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(path)
	if err != nil {
		return "", fmt.Errorf("find this process's root: %w", err)
	}
	// The kernel puts "(unreachable)" before a path that does not exist in the namespace.
	if root = string(path[:n-1]); root[0] != '/' {
		return "", fmt.Errorf(
			"this process's root is not in its mount namespace (%s): start it from a shell that has entered the namespace as a whole, as `nsenter --mount --root` does", root)
	}
	return root, nil
}

// EnterRoot gives the calling thread a root, seen from the root of its mount namespace, and a working directory in it.
func EnterRoot(root, dir string) error {
	if root != "/" {
		if err := unix.Chroot(root); err != nil {
			return fmt.Errorf("enter the chroot %s: %w", root, err)
		}
	}
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("enter the directory %s: %w", dir, err)
	}
	return nil
}

// RootHere returns this process's root as seen from the root of its mount namespace.
func RootHere() (root string, err error) {
	done := make(chan struct{})
	OnOwnThread(func() {
		defer close(done)
		if err = unix.Unshare(unix.CLONE_FS); err == nil {
			root, err = leaveChroot("/proc/thread-self/ns/mnt")
		}
	})
	<-done
	return root, err
}

// OwnMounts gives the calling thread a mount namespace with a /sys of its network namespace, and with its own
// /sys/fs/bpf: objects pinned there are gone with the host. It returns the thread's root as seen from the namespace's
// root.
func OwnMounts() (root string, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return "", fmt.Errorf("unshare the mount namespace: %w", err)
	}
	if root, err = isolateMounts(); err != nil {
		return "", fmt.Errorf("part the mounts from the machine's: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return "", fmt.Errorf("mount the host's /sys: %w", err)
	}
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700"); err != nil {
		return "", fmt.Errorf("mount the host's /sys/fs/bpf: %w", err)
	}
	return root, nil
}
