// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// withSystem calls f in a mount namespace of its own, in which the host's bpf file system is a new one.
// remount makes that read-only.
func withSystem(t *testing.T, f func(remount func() error) error) {
	t.Helper()
	testenv.Root(t)
	done := make(chan error, 1)
	go func() {
		// The thread ends with the goroutine, and its mounts with it.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			done <- err
			return
		}
		err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("bpf", system, "bpf", 0, "mode=0700"))
		if err == nil {
			err = f(func() error { return unix.Mount("", system, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") })
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestReadOnlySystem: where the host's bpf file system cannot be written to, one in the state
// directory is used.
func TestReadOnlySystem(t *testing.T) {
	dir := t.TempDir()
	withSystem(t, func(remount func() error) error {
		if err := remount(); err != nil {
			return err
		}
		s, err := Open(dir, "run-eth0-7")
		if err != nil {
			return err
		}
		if !strings.HasPrefix(s.Dir(), mountPoint(dir)) {
			t.Errorf("the store is %s", s.Dir())
		}
		return errors.Join(s.Put(1, map[string]Pinner{"map": pinnedMap{Map: newMap(t)}}), s.Remove())
	})
}

// TestSystemBecomesReadOnly: a pinned set is found again, and stays whole where another set cannot be pinned beside it.
func TestSystemBecomesReadOnly(t *testing.T) {
	dir := t.TempDir()
	withSystem(t, func(remount func() error) error {
		s, err := Open(dir, "run-eth0-7")
		if err != nil {
			return err
		}
		if !strings.HasPrefix(s.Dir(), system) {
			t.Errorf("the store is %s", s.Dir())
		}
		objects := map[string]Pinner{"map": pinnedMap{Map: newMap(t)}}
		if err := s.Put(1, objects); err != nil {
			return err
		}
		s.Close()
		if err := remount(); err != nil {
			return err
		}
		if s, err = Open(dir, "run-eth0-7"); err != nil {
			return err
		}
		defer s.Close()
		if err := s.Put(2, objects); !errors.Is(err, unix.EROFS) {
			t.Errorf("another set was refused with %v", err)
		}
		sets, err := s.Sets()
		if err == nil && !slices.Equal(sets, []uint64{1}) {
			t.Errorf("there are the sets %v", sets)
		}
		names, failed := s.Objects(1)
		if !slices.Equal(names, []string{"map"}) {
			t.Errorf("the set has %v", names)
		}
		return errors.Join(err, failed)
	})
}

// TestPrivate: pins on a file system that was mounted in a mount namespace of our own end with that, and on the host's
// they do not.
func TestPrivate(t *testing.T) {
	dir := t.TempDir()
	withSystem(t, func(remount func() error) error {
		host, err := Open(dir, "run-eth0-7")
		if err != nil {
			return err
		}
		if host.Private() {
			t.Errorf("%s is taken for one that only this process sees", host.Dir())
		}
		if err := errors.Join(host.Remove(), remount()); err != nil {
			return err
		}
		own, err := Open(dir, "run-eth0-7")
		if err != nil {
			return err
		}
		if !own.Private() {
			t.Errorf("%s is taken for one that outlives the mount namespace", own.Dir())
		}
		return own.Remove()
	})
}
