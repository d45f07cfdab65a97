// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// namesVariable makes the test binary run one of namesTests, in a mount namespace with a private /run: the test does
// not change the machine's /run/netns.
const namesVariable = "JEOUL_TEST_LAB_NAMES"

var namesTests = map[string]func(ctx context.Context) error{
	"ip netns first":     func(ctx context.Context) error { return labBesideIP(ctx, true) },
	"laboratory first":   func(ctx context.Context) error { return labBesideIP(ctx, false) },
	"one mount":          prepareAtOnce,
	"ip at it":           prepareWaits,
	"moved up":           namesMoveUp,
	"covered":            func(ctx context.Context) error { return cleanCovered(ctx, coverByIP) },
	"covered, half gone": func(ctx context.Context) error { return cleanCovered(ctx, coverByIP, removeUpper) },
	"covered by another": func(ctx context.Context) error { return cleanCovered(ctx, coverByTmpfs) },
	"covered several deep": func(ctx context.Context) error {
		return cleanCovered(ctx, coverByIP, coverByTmpfs, coverByBind)
	},
}

// TestNamesDirectory runs namesTests where mounts below /run do not propagate, as in many containers, and where they
// do, as with systemd.
func TestNamesDirectory(t *testing.T) {
	testenv.Root(t)
	testenv.Program(t, "ip")
	for name := range namesTests {
		for _, propagation := range []string{"private", "shared"} {
			t.Run(name+"/"+propagation, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command("/proc/self/exe")
				// The laboratory's directory is named after its ID, which another laboratory of this machine may have.
				cmd.Env = append(os.Environ(), namesVariable+"="+propagation+":"+name, "TMPDIR="+t.TempDir())
				cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// namesApart runs a test in the mount namespace of this process.
func namesApart(arg string) error {
	propagation, name, _ := strings.Cut(arg, ":")
	// The machine's names would be below the new /run, and be counted.
	mounts, err := procfs.GetMounts()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if strings.HasPrefix(m.MountPoint, netns.NamesDir) {
			unix.Unmount(m.MountPoint, unix.MNT_DETACH)
		}
	}
	if coveredMounts, err = mountsOfNames(); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	if propagation == "shared" {
		if err := unix.Mount("", "/run", "", unix.MS_SHARED, ""); err != nil {
			return err
		}
	}
	// The timeout ends a test that hangs.
	ctx, cancel := context.WithTimeout(context.Background(), testenv.WaitLimit)
	defer cancel()
	return namesTests[name](ctx)
}

func ipNetns(args ...string) error {
	if out, err := exec.Command("ip", append([]string{"netns"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip netns %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// labBesideIP builds a laboratory, makes ip create names before it or while it exists, and closes it.
func labBesideIP(ctx context.Context, first bool) error {
	if first {
		if err := ipNetns("add", "before"); err != nil {
			return err
		}
	}
	l, err := New(ctx, Spec{Clients: 1, Servers: 1})
	if err != nil {
		return err
	}
	// Checked before ip makes another name, because that would make the mount, too.
	n, err := mountsOfNames()
	if err == nil && n != 1 {
		err = fmt.Errorf("%s is mounted %d times, not once", netns.NamesDir, n)
	}
	err = errors.Join(err, ipNetns("add", "meanwhile"), ipNetns("exec", l.Servers[0].Namespace, "true"), l.Close(),
		nothingLeft(l.ID))
	if first {
		err = errors.Join(err, ipNetns("del", "before"))
	}
	return errors.Join(err, ipNetns("del", "meanwhile"), noName())
}

// nothingLeft looks for names and mounts of a laboratory.
func nothingLeft(id string) error {
	paths, err := filepath.Glob(netns.NamesPattern(id))
	mounted, listed := netns.MountedNames(id)
	if err := errors.Join(err, listed); err != nil {
		return err
	}
	if len(paths) > 0 || len(mounted) > 0 {
		return fmt.Errorf("of laboratory %s are left the names %q and %d mounts", id, paths, len(mounted))
	}
	return nil
}

func noName() error {
	left, err := os.ReadDir(netns.NamesDir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left in %s: %v", netns.NamesDir, left)
	}
	return err
}

// coveredMounts is the number of mounts on the directory of the names that another mount covers, so that they cannot be
// unmounted.
var coveredMounts int

// mountsOfNames counts the mounts on the directory of the names that are not covered.
func mountsOfNames() (n int, err error) {
	mounts, err := procfs.GetMounts()
	for _, m := range mounts {
		if m.MountPoint == netns.NamesDir {
			n++
		}
	}
	return n - coveredMounts, err
}

// prepareAtOnce makes many processes create the mount at once, while ip runs.
func prepareAtOnce(context.Context) error {
	var starters sync.WaitGroup
	failed := make([]error, 16)
	for i := range failed {
		starters.Go(func() {
			if i%4 == 0 {
				failed[i] = ipNetns("add", fmt.Sprint("name", i))
			} else {
				failed[i] = netns.PrepareNames()
			}
		})
	}
	starters.Wait()
	n, err := mountsOfNames()
	if n != 1 {
		err = errors.Join(err, fmt.Errorf("%s is mounted %d times, not once", netns.NamesDir, n))
	}
	return errors.Join(append(failed, err)...)
}

// prepareWaits makes another process hold the lock that `ip netns add` takes, and checks that PrepareNames waits for
// it.
func prepareWaits(ctx context.Context) error {
	if err := os.MkdirAll(netns.NamesDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(netns.NamesDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := errors.Join(unix.Flock(int(dir.Fd()), unix.LOCK_EX), unix.Fstat(int(dir.Fd()), &st)); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- netns.PrepareNames() }()
	// Such as "1: -> FLOCK  ADVISORY  WRITE 4711 00:36:2 0 EOF": see proc_locks(5).
	waiting := regexp.MustCompile(fmt.Sprintf(`-> FLOCK .*:%d 0 EOF`, st.Ino))
	if err := claim.Poll(ctx, func() (bool, error) {
		select {
		case <-done:
			return true, errors.New("it did not wait for the lock")
		default:
		}
		locks, err := os.ReadFile("/proc/locks")
		return err != nil || waiting.Match(locks), err
	}); err != nil {
		return err
	}
	return errors.Join(unix.Flock(int(dir.Fd()), unix.LOCK_UN), <-done)
}

// earlierLab holds the remains of a laboratory of a version without the mount, whose owner is dead: a lock, and a name
// with a process in its namespace.
type earlierLab struct {
	id      string
	process *exec.Cmd
}

func newEarlierLab() (*earlierLab, error) {
	lock, err := claim.New()
	if err != nil {
		return nil, err
	}
	l := &earlierLab{id: lock.ID, process: exec.Command("sleep", "1000")}
	if err := os.MkdirAll(netns.NamesDir, 0o755); err != nil {
		return nil, err
	}
	failed := make(chan error)
	netns.OnOwnThread(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = netns.Bind(netns.Name(l.id, "switch"))
		}
		if err == nil {
			err = l.process.Start()
		}
		failed <- err
	})
	err = <-failed
	lock.Release()
	return l, err
}

func (l *earlierLab) path() string {
	return filepath.Join(netns.NamesDir, netns.Name(l.id, "switch"))
}

// cover mounts something over the directory of the names.
type cover func(l *earlierLab) error

func coverByIP(*earlierLab) error { return ipNetns("add", "other") }

func coverByTmpfs(*earlierLab) error {
	return unix.Mount("tmpfs", netns.NamesDir, "tmpfs", 0, "mode=0755")
}

func coverByBind(*earlierLab) error {
	return unix.Mount("/run/netns", netns.NamesDir, "", unix.MS_BIND|unix.MS_REC, "")
}

// removeUpper removes a lab's name as an earlier version did, after it had killed the processes that ran there.
func removeUpper(l *earlierLab) error {
	if err := l.process.Process.Kill(); err != nil {
		return err
	}
	if err := unix.Unmount(l.path(), unix.MNT_DETACH); err != nil {
		return err
	}
	os.Remove(l.path()) // EBUSY, where the mount below is out of reach
	return nil
}

// cleanCovered cleans up after a dead laboratory whose names are below other mounts.
func cleanCovered(ctx context.Context, covers ...cover) error {
	l, err := newEarlierLab()
	if err != nil {
		return err
	}
	for _, cover := range covers {
		if err := cover(l); err != nil {
			return err
		}
	}
	before, err := mountsOfNames()
	if err != nil {
		return err
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { l.process.Wait() })
	if _, err := CleanStale(ctx); err != nil {
		l.process.Process.Kill()
		return err
	}
	waiting.Wait()
	after, err := mountsOfNames()
	if before != after {
		err = errors.Join(err, fmt.Errorf("%s was mounted %d times, and is %d times", netns.NamesDir, before, after))
	}
	for unix.Unmount(netns.NamesDir, unix.MNT_DETACH) == nil {
		err = errors.Join(err, nothingLeft(l.id))
	}
	names, listed := filepath.Glob(filepath.Join(netns.NamesDir, "*"))
	if slices.ContainsFunc(names, func(path string) bool { return path != filepath.Join(netns.NamesDir, "other") }) {
		err = errors.Join(err, fmt.Errorf("left below all mounts: %q", names))
	}
	return errors.Join(err, listed, nothingLeft(l.id))
}

// namesMoveUp makes the mount over a name that is in use: its owner, which does not know of the mount, must be able to
// remove the name.
func namesMoveUp(context.Context) error {
	l, err := newEarlierLab()
	if err != nil {
		return err
	}
	defer l.process.Wait()
	defer l.process.Process.Kill()
	if err := netns.PrepareNames(); err != nil {
		return err
	}
	if err := ipNetns("exec", filepath.Base(l.path()), "true"); err != nil {
		return fmt.Errorf("the name is gone: %w", err)
	}
	if err := unix.Unmount(l.path(), unix.MNT_DETACH); err != nil {
		return err
	}
	return errors.Join(os.Remove(l.path()), nothingLeft(l.id))
}
