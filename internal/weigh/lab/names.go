// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// namespacesDir is where `ip netns` looks for namespaces by name: each name is an empty file with
// the namespace mounted on it.
const namespacesDir = "/run/netns"

// prepareNamespacesDir makes namespacesDir a shared mount point, as `ip netns add` of iproute2 does
// before it makes the first name of a machine. Otherwise a later `ip netns add` would mount the
// directory over itself, and the names made before could not be removed: their mounts would lie below,
// out of reach of any path, and the kernel removes no file that something is mounted on (EBUSY).
//
// Where names are there before the mount, they are moved up into it. The lock is iproute2's: without
// it, two starters would mount twice.
func prepareNamespacesDir() error {
	if err := os.MkdirAll(namespacesDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(namespacesDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", namespacesDir, err)
	}
	err = shareMount(namespacesDir)
	if err != unix.EINVAL {
		return os.NewSyscallError("make "+namespacesDir+" a shared mount", err)
	}
	// EINVAL: it is no mount point. What it contains is mounted in the copy, too.
	err = unix.Mount(namespacesDir, namespacesDir, "", unix.MS_BIND|unix.MS_REC, "")
	if err == unix.EPERM {
		return fmt.Errorf("%w: mounting %s on itself is refused; a container needs CAP_SYS_ADMIN", ErrNoRights,
			namespacesDir)
	}
	if err != nil {
		return fmt.Errorf("mount %s on itself: %w", namespacesDir, err)
	}
	if err := shareMount(namespacesDir); err != nil {
		return fmt.Errorf("make %s a shared mount: %w", namespacesDir, err)
	}
	return unmountCovered(dir)
}

func shareMount(path string) error {
	return unix.Mount("", path, "", unix.MS_SHARED|unix.MS_REC, "")
}

// unmountCovered unmounts the names below the new mount on namespacesDir, which has them as well. dir
// was opened before, and leads below.
func unmountCovered(dir *os.File) error {
	below, err := mountID(dir)
	if err != nil {
		return err
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return fmt.Errorf("list the mounts: %w", err)
	}
	for _, m := range mounts {
		if m.MountID == below && m.OptionalFields["shared"] != "" {
			// The new mount is its peer: to unmount a name in one is to unmount it in both, now and later.
			return nil
		}
	}
	for _, m := range mounts {
		if m.ParentID != below || filepath.Dir(m.MountPoint) != namespacesDir {
			continue
		}
		path := fmt.Sprintf("/proc/thread-self/fd/%d/%s", dir.Fd(), filepath.Base(m.MountPoint))
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s below the mount on %s: %w", m.MountPoint, namespacesDir, err)
		}
	}
	return nil
}

// mountID returns the number, in mountinfo, of the mount that a file was opened in.
func mountID(f *os.File) (int, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, err
	}
	info, err := self.FDInfo(strconv.Itoa(int(f.Fd())))
	if err != nil {
		return 0, fmt.Errorf("find the mount of %s: %w", f.Name(), err)
	}
	return strconv.Atoi(info.MntID)
}

// nameNamespace binds the calling thread's network namespace to a name, as
// `ip netns add` does.
func nameNamespace(name string) error {
	path := filepath.Join(namespacesDir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		os.Remove(path)
		return fmt.Errorf("bind the namespace to %s: %w", path, err)
	}
	return nil
}

// mountedNames returns the mounts on the names of a lab, those below another mount included. A
// name may be mounted several times.
func mountedNames(id string) ([]*procfs.MountInfo, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return nil, fmt.Errorf("list the mounts: %w", err)
	}
	pattern := namesPattern(id)
	return slices.DeleteFunc(mounts, func(m *procfs.MountInfo) bool {
		matched, _ := filepath.Match(pattern, m.MountPoint)
		return !matched
	}), nil
}

// namesPattern is that of the paths of a lab's names, as [filepath.Match] takes it.
func namesPattern(id string) string {
	return filepath.Join(namespacesDir, namespacePrefix(id)+"*")
}

// removeNames removes all names of a lab, also those that something was mounted over.
func removeNames(id string) error {
	left, err := removeVisibleNames(id)
	if err != nil {
		return err
	}
	mounted, err := mountedNames(id)
	if err != nil || left == nil && len(mounted) == 0 {
		return err
	}
	var failed error
	done := make(chan struct{})
	onOwnThread(func() {
		defer close(done)
		if failed = partMountsOnly(); failed == nil {
			failed = removeCoveredNames(id)
		}
	})
	<-done
	if failed != nil {
		return fmt.Errorf("remove the names below another mount on %s: %w", namespacesDir, failed)
	}
	return nil
}

// removeVisibleNames removes the names that a path leads to. left says why names are left that something
// is mounted on elsewhere.
func removeVisibleNames(id string) (left, err error) {
	paths, err := filepath.Glob(namesPattern(id))
	if err != nil {
		return nil, err
	}
	var failed, busy []error
	for _, path := range paths {
		err := removeName(path)
		if errors.Is(err, unix.EBUSY) {
			busy = append(busy, err)
			continue
		}
		failed = append(failed, err)
	}
	return errors.Join(busy...), errors.Join(failed...)
}

// removeName unmounts and removes a name. A file that nothing is mounted on, left by
// a death at the wrong moment, is removed too.
func removeName(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if err == unix.EINVAL || err == unix.ENOENT {
			break
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// removeCoveredNames removes a lab's names on a thread with a mount namespace of its own, in which
// it takes one mount on namespacesDir after the other away. The machine's mounts stay as they are
// but for those on the names: the kernel removes a file that is a mount point in other mount namespaces only,
// and unmounts it there (since Linux 3.18).
func removeCoveredNames(id string) error {
	for {
		left, err := removeVisibleNames(id)
		if err != nil {
			return err
		}
		err = unix.Unmount(namespacesDir, unix.MNT_DETACH)
		if err == unix.EINVAL { // the last one was taken away
			return left
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", namespacesDir, err)
		}
	}
}
