// SPDX-License-Identifier: Apache-2.0

// Package netns holds the namespaces of a laboratory's hosts: threads that live in them, their names in the form of `ip
// netns`, and mount namespaces for them, also in a chroot.
package netns

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

// ErrNoRights means that making namespaces needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN).
var ErrNoRights = errors.New("no rights to build a lab")

// NamesDir is the directory in which `ip netns` looks for namespaces by name: each name is an empty file on which the
// namespace is mounted.
const NamesDir = "/run/netns"

// PrepareNames makes NamesDir a shared mount point, as `ip netns add` of iproute2 does before it makes the first name
// of a machine. Otherwise a later `ip netns add` would mount the directory over itself, and the names made before could
// not be removed: their mounts would be below the new one, out of reach of any path, and the kernel removes no file
// that something is mounted on (EBUSY).
//
// Names that exist before the mount are moved up into it. The lock is iproute2's: without it, two processes that start
// would mount twice.
func PrepareNames() error {
	if err := os.MkdirAll(NamesDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(NamesDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", NamesDir, err)
	}
	err = shareMount(NamesDir)
	if err != unix.EINVAL {
		return os.NewSyscallError("make "+NamesDir+" a shared mount", err)
	}
	// EINVAL: NamesDir is no mount point. The copy also contains what is mounted in it.
	err = unix.Mount(NamesDir, NamesDir, "", unix.MS_BIND|unix.MS_REC, "")
	if err == unix.EPERM {
		return fmt.Errorf("%w: mounting %s on itself is refused; a container needs CAP_SYS_ADMIN", ErrNoRights,
			NamesDir)
	}
	if err != nil {
		return fmt.Errorf("mount %s on itself: %w", NamesDir, err)
	}
	if err := shareMount(NamesDir); err != nil {
		return fmt.Errorf("make %s a shared mount: %w", NamesDir, err)
	}
	return unmountCovered(dir)
}

func shareMount(path string) error {
	return unix.Mount("", path, "", unix.MS_SHARED|unix.MS_REC, "")
}

// unmountCovered unmounts the names below the new mount on NamesDir, which has them as well. dir was opened before the
// mount, and refers to the directory below.
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
			// The new mount is its peer: unmounting a name in one unmounts it in both, now and later.
			return nil
		}
	}
	for _, m := range mounts {
		if m.ParentID != below || filepath.Dir(m.MountPoint) != NamesDir {
			continue
		}
		path := fmt.Sprintf("/proc/thread-self/fd/%d/%s", dir.Fd(), filepath.Base(m.MountPoint))
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s below the mount on %s: %w", m.MountPoint, NamesDir, err)
		}
	}
	return nil
}

// mountID returns the ID, in mountinfo, of the mount in which a file was opened.
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

// Bind binds the calling thread's network namespace to a name, as
// `ip netns add` does.
func Bind(name string) error {
	path := filepath.Join(NamesDir, name)
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

// MountedNames returns the mounts on the names of a lab, including those below another mount. A name may be mounted
// several times.
func MountedNames(id string) ([]*procfs.MountInfo, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return nil, fmt.Errorf("list the mounts: %w", err)
	}
	pattern := NamesPattern(id)
	return slices.DeleteFunc(mounts, func(m *procfs.MountInfo) bool {
		matched, _ := filepath.Match(pattern, m.MountPoint)
		return !matched
	}), nil
}

// NamesPattern is the pattern of the paths of a lab's names, for [filepath.Match].
func NamesPattern(id string) string {
	return filepath.Join(NamesDir, NamePrefix(id)+"*")
}

// RemoveNames removes all names of a lab, including those that something was mounted over.
func RemoveNames(id string) error {
	left, err := removeVisibleNames(id)
	if err != nil {
		return err
	}
	mounted, err := MountedNames(id)
	if err != nil || left == nil && len(mounted) == 0 {
		return err
	}
	var failed error
	done := make(chan struct{})
	OnOwnThread(func() {
		defer close(done)
		if failed = unshareMounts(); failed == nil {
			failed = removeCoveredNames(id)
		}
	})
	<-done
	if failed != nil {
		return fmt.Errorf("remove the names below another mount on %s: %w", NamesDir, failed)
	}
	return nil
}

// removeVisibleNames removes the names that a path leads to. left is the reason why names remain on which something is
// mounted elsewhere.
func removeVisibleNames(id string) (left, err error) {
	paths, err := filepath.Glob(NamesPattern(id))
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

// removeName unmounts and removes a name. It also removes a file on which nothing is mounted, which a process leaves
// that dies between the two steps.
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

// removeCoveredNames removes a lab's names on a thread with its own mount namespace, in which it unmounts one mount on
// NamesDir after the other. The machine's mounts stay as they are, except for those on the names: the kernel removes a
// file that is a mount point only in other mount namespaces, and unmounts it there (since Linux 3.18).
func removeCoveredNames(id string) error {
	for {
		left, err := removeVisibleNames(id)
		if err != nil {
			return err
		}
		err = unix.Unmount(NamesDir, unix.MNT_DETACH)
		if err == unix.EINVAL { // the last mount was removed
			return left
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", NamesDir, err)
		}
	}
}

// Name is the name of a host's namespace under /run/netns.
func Name(id, host string) string { return NamePrefix(id) + host }

// NamePrefix begins the names of a lab.
func NamePrefix(id string) string { return "jeoul-" + id + "-" }
