// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// removable is a hold whose program another program has removed.
type removable struct {
	attach.Hold
	removed bool
	err     error
	puts    int
}

func (r *removable) Running() bool { return !r.removed }

func (r *removable) PutBack(*ebpf.Program, attach.WithClsact) error {
	r.puts++
	r.removed = r.err != nil
	return r.err
}

// TestPutBack: a program that another has removed is put back, and each result is noted once.
func TestPutBack(t *testing.T) {
	h := &removable{removed: true}
	d := &Datapath{method: attach.TCFilter, holds: []attach.Hold{nil, h}, current: &loader.Programs{
		Ports:    []attach.Port{{Name: "eth0", Index: 2}, {Name: "eth1", Index: 3}},
		Programs: make([]*ebpf.Program, 2)}}
	look := func(wantPuts int, wantNote string) {
		t.Helper()
		note, err := d.Repin()
		if err != nil || h.puts != wantPuts || (note == "") != (wantNote == "") || !strings.Contains(note, wantNote) {
			t.Errorf("put back %d times, noted %q (%v), want %d, %q", h.puts, note, err, wantPuts, wantNote)
		}
	}
	look(1, "from eth1 (a TC filter): it is put back")
	look(1, "")
	h.removed, h.err = true, errors.New("refused")
	look(2, "packets there are not balanced: refused")
	look(3, "")
	h.err = nil
	look(4, "it is put back")
	look(4, "")
}

// bpfRoot is where hosts have a bpf file system.
const bpfRoot = "/sys/fs/bpf"

// mountBPF mounts a new bpf file system there, over the present one.
func mountBPF() error { return unix.Mount("bpf", bpfRoot, "bpf", 0, "mode=0700") }

// unmountBPF takes it away, though files in it are open.
func unmountBPF() error { return unix.Unmount(bpfRoot, unix.MNT_DETACH) }

func remountBPF() error { return errors.Join(unmountBPF(), mountBPF()) }

// onOwnBPF runs a test with veth0 in a mount namespace of its own, whose bpf file system is new.
func onOwnBPF(t *testing.T, w attach.Method, test func(*restartRig) error) {
	t.Helper()
	testenv.In(t, newNICs(t), func() error {
		// The thread ends with this function, and its mounts with it.
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), mountBPF()); err != nil {
			return err
		}
		k := &restartRig{dir: t.TempDir(), hook: w.Hook, attempts: onlyBy(w), programs: passProgram}
		return test(k)
	})
}

// TestKeptAgain unmounts the bpf file system under a process, or mounts another one over it: the data plane is pinned
// again, and the next process takes it over. A closed one is off the interface, though it has pins that cannot be
// reached any more.
func TestKeptAgain(t *testing.T) {
	testenv.Root(t)
	methods := ofThisKernel(attach.NativeXDP, attach.TCX, attach.TCFilter)
	for _, w := range testenv.Some(t, testenv.HooksTarget, 1, methods) {
		for name, replace := range map[string]func() error{
			"unmounted": unmountBPF, "mounted anew": remountBPF, "another one is over it": mountBPF} {
			for what, notice := range map[string]func(*Datapath) error{
				"looked at": func(*Datapath) error { return nil },
				"changed":   func(d *Datapath) error { return d.Apply(withSwappedService(testState(), 1)) },
			} {
				t.Run(w.Name+", "+name+", "+what, func(t *testing.T) {
					onOwnBPF(t, w, func(k *restartRig) error { return testRepin(t, k, replace, notice) })
				})
			}
		}
	}
}

func testRepin(t *testing.T, k *restartRig, replace func() error, notice func(*Datapath) error) error {
	first, err := k.openWith(testState())
	if err != nil {
		return err
	}
	if note, err := first.Repin(); note != "" || err != nil {
		t.Errorf("with nothing lost: %q, %v", note, err)
	}
	flow := rememberFlow(t, first)
	if err := errors.Join(replace(), notice(first)); err != nil {
		return errors.Join(err, first.Close())
	}
	if note, err := first.Repin(); !strings.Contains(note, "they are in ") || err != nil {
		t.Errorf("it says %q, %v", note, err)
	}
	if note, err := first.Repin(); note != "" || err != nil {
		t.Errorf("a second time: %q, %v", note, err)
	}
	if err := expectRunning("veth0", first.Program()); err != nil {
		t.Error(err)
	}
	again, err := k.next(first)
	if err != nil {
		return err
	}
	if err := again.Apply(testState()); err != nil {
		return errors.Join(err, again.Close())
	}
	if _, there := again.shared.Proven.Find(&flow); !there {
		t.Error("a flow is forgotten")
	}
	if err := again.Close(); err != nil {
		return err
	}
	return expectNothingKept(k)
}

// expectNothingKept returns an error unless nothing is attached, and no file is left.
func expectNothingKept(k *restartRig) error {
	left, err := os.ReadDir(k.dir)
	if err == nil && len(left) != 0 {
		err = fmt.Errorf("there is left: %v", left)
	}
	return errors.Join(err, expectAttached([]string{"veth0"}, false))
}

// leaveDataPlane leaves a data plane on veth0, and returns its program.
func leaveDataPlane(k *restartRig) (*ebpf.Program, error) {
	d, err := k.openWith(testState())
	if err != nil {
		return nil, err
	}
	program, err := d.Program().Clone()
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return program, d.Release()
}

// TestKeptWithoutFileSystem unmounts the bpf file system while no process runs. A program that a link keeps goes with
// its pins; a filter stays, until that of the next process is in its place. The next start reports the loss.
func TestKeptWithoutFileSystem(t *testing.T) {
	testenv.Root(t)
	for _, w := range ofThisKernel(attach.NativeXDP, attach.TCX, attach.TCFilter) {
		t.Run(w.Name, func(t *testing.T) {
			onOwnBPF(t, w, func(k *restartRig) error {
				program, err := leaveDataPlane(k)
				if err != nil {
					return err
				}
				defer program.Close()
				if err := remountBPF(); err != nil {
					return err
				}
				if w == attach.TCFilter {
					err = expectRunning("veth0", program)
				} else {
					testenv.Eventually(t, testenv.WaitLimit, "the program has gone with its pins", func() bool {
						return expectAttached([]string{"veth0"}, false) == nil
					})
				}
				if err != nil {
					return err
				}
				again, err := k.open()
				if err != nil {
					return err
				}
				if notes := strings.Join(again.Notes(), " "); again.Adopted() ||
					!strings.Contains(notes, "nothing of it is pinned any more") {
					t.Errorf("taken over: %v, and it says %q", again.Adopted(), notes)
				}
				if w == attach.TCFilter {
					err = expectRunning("veth0", program)
				}
				if err := errors.Join(err, again.Apply(testState())); err != nil {
					return errors.Join(err, again.Close())
				}
				if err := expectRunning("veth0", again.Program()); err != nil {
					t.Error(err)
				}
				if err := again.Close(); err != nil {
					return err
				}
				return expectNothingKept(k)
			})
		})
	}
}

// TestKeptUnderAnotherFileSystem mounts one over the pins while no process runs: the start is refused and
// nothing is touched, and once it is unmounted the next one takes all over.
func TestKeptUnderAnotherFileSystem(t *testing.T) {
	testenv.Root(t)
	for _, w := range ofThisKernel(attach.NativeXDP, attach.TCX) {
		t.Run(w.Name, func(t *testing.T) {
			onOwnBPF(t, w, func(k *restartRig) error {
				program, err := leaveDataPlane(k)
				if err != nil {
					return err
				}
				defer program.Close()
				if err := mountBPF(); err != nil {
					return err
				}
				if d, err := k.open(); err == nil {
					return errors.Join(errors.New("a start beside a data plane whose pins cannot be seen"), d.Close())
				} else if !strings.Contains(err.Error(), "findmnt") || !strings.Contains(err.Error(), "veth0") {
					t.Errorf("the error is %q", err)
				}
				if err := errors.Join(expectRunning("veth0", program), unmountBPF()); err != nil {
					return err
				}
				again, err := k.adopt()
				if err != nil {
					return err
				}
				if err := again.Close(); err != nil {
					return err
				}
				return expectNothingKept(k)
			})
		})
	}
}
