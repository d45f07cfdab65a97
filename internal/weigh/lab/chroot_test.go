// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// chrootVariable makes this test's program build a lab in a chroot. Its value is the kind of the chroot, a colon, and
// the directory.
const chrootVariable = "JEOUL_TEST_LAB_CHROOT"

// borrowed are the directories of the machine that a chroot has.
var borrowed = []string{"bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"}

// TestChroot builds labs in a process whose root is a directory: a plain one, and one
// that is a mount point.
func TestChroot(t *testing.T) {
	testenv.Root(t)
	for _, how := range []string{"plain", "mounted"} {
		t.Run(how, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "jeoul-chroot-")
			if err != nil {
				t.Fatal(err)
			}
			// Not os.RemoveAll of the whole directory: the machine's own directories were mounted in it.
			defer func() {
				err := errors.Join(os.RemoveAll(filepath.Join(dir, "run")), os.RemoveAll(filepath.Join(dir, "tmp")))
				for _, name := range borrowed {
					if gone := os.Remove(filepath.Join(dir, name)); !errors.Is(gone, fs.ErrNotExist) {
						err = errors.Join(err, gone)
					}
				}
				if err = errors.Join(err, os.Remove(filepath.Join(dir, "marker")), os.Remove(dir)); err != nil {
					t.Error(err)
				}
			}()
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), chrootVariable+"="+how+":"+dir, "TMPDIR=/tmp") // the only one that is there
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// labInChroot builds a lab in a chroot, inspects it from within, and closes it.
func labInChroot(arg string) error {
	how, dir, _ := strings.Cut(arg, ":")
	// Shared, as on most machines, so that mounts that a lab leaks are visible. But not with the machine's own: mounts
	// of others there would count as the lab's.
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", propagation|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	if how == "mounted" {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	if err := populateRoot(dir); err != nil {
		return err
	}
	mounts, err := os.Open("/proc/self/mountinfo") // as seen from the root of now
	if err != nil {
		return err
	}
	defer mounts.Close()
	// The mount on /run/netns stays, as iproute2's does: make it first.
	if err := errors.Join(unix.Chroot(dir), unix.Chdir("/"), netns.PrepareNames()); err != nil {
		return err
	}
	before, err := mountsOf(mounts, dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.WaitLimit)
	defer cancel()
	l, err := New(ctx, Spec{Clients: 1, Servers: 1})
	if err != nil {
		return err
	}
	err = errors.Join(checkRoot(ctx, l.Servers[0]), l.Close())
	after, again := mountsOf(mounts, dir)
	if err = errors.Join(err, again); err == nil && before != after {
		return fmt.Errorf("the mounts of outside were\n%s\nand are\n%s", before, after)
	}
	return err
}

// populateRoot puts into a chroot the directories that a lab needs, and a file that identifies it.
func populateRoot(dir string) error {
	for _, name := range borrowed {
		to := filepath.Join(dir, name)
		info, err := os.Lstat("/" + name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink("/" + name)
			if err = errors.Join(err, os.Symlink(target, to)); err != nil {
				return err
			}
			continue
		}
		if err := errors.Join(os.Mkdir(to, 0o755), unix.Mount("/"+name, to, "", unix.MS_BIND|unix.MS_REC,
			"")); err != nil {
			return err
		}
	}
	return errors.Join(os.Mkdir(filepath.Join(dir, "run"), 0o755), os.Mkdir(filepath.Join(dir, "tmp"), 0o777),
		os.WriteFile(filepath.Join(dir, "marker"), nil, 0o644))
}

// mountsOf reads the mounts again, without those of other programs: a mount disappears from every namespace when its
// program removes the directory that it is on.
func mountsOf(file *os.File, dir string) (string, error) {
	text := make([]byte, 1<<20)
	n, err := file.ReadAt(text, 0)
	if n == 0 {
		return "", err
	}
	var ours strings.Builder
	for line := range strings.Lines(string(text[:n])) {
		// The fifth field is the mount point (proc_pid_mountinfo(5)).
		at := strings.Fields(line)[4]
		if strings.HasPrefix(at, dir) || !strings.HasPrefix(at, os.TempDir()+"/") && !strings.HasPrefix(at, "/run/") {
			ours.WriteString(line)
		}
	}
	return ours.String(), nil
}

// checkRoot checks that programs on a host have the chroot as their root, and the host's own /sys.
func checkRoot(ctx context.Context, host *Host) error {
	check := func() error {
		if _, err := os.Stat("/marker"); err != nil {
			return fmt.Errorf("the root is not that of the chroot: %w", err)
		}
		entries, err := os.ReadDir("/sys/class/net")
		if err != nil || !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == host.Interface }) {
			return fmt.Errorf("/sys/class/net has %v: %v", entries, err)
		}
		return nil
	}
	if err := host.Do(func() error { return errors.Join(check(), host.Do(check)) }); err != nil {
		return err
	}
	var out bytes.Buffer
	p, err := host.Start(ctx,
		Command{Path: "sh", Args: []string{"-c", "test -e /marker && test -e /sys/class/net/" + host.Interface +
			" && pwd -P"}, Stdout: &out, Stderr: &out})
	if err == nil {
		err = p.Wait()
	}
	if got := strings.TrimSpace(out.String()); err != nil || got != host.Dir {
		return fmt.Errorf("a program on the host is in %q, want %q: %v", got, host.Dir, err)
	}
	return nil
}
