// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/test/testdisk"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// openOnDisk opens a datapath whose snapshots are written to that file system.
func (k *restartRig) openOnDisk(disk *testdisk.FileSystem) (*Datapath, error) {
	d, err := k.open()
	if err == nil {
		d.keeper.Files = durable.New(durable.Options{FileSystem: disk})
	}
	return d, err
}

// TestUnwritableSnapshot makes changes while snapshots cannot be written, by each trouble of a file system and
// from each of the operations of a write on: they are in force, and the process that comes after a kill knows the
// last of them.
func TestUnwritableSnapshot(t *testing.T) {
	testenv.Also(t, "test-disk")
	testenv.Root(t)
	for i, trouble := range testdisk.Faults {
		for n, after := range []int{0, 1, 3} {
			// no room at all, and a disk that becomes read-only meanwhile
			if !testenv.InTarget("test-disk") && i != 3*n {
				continue
			}
			t.Run(fmt.Sprintf("%s after %d", trouble.Name, after), func(t *testing.T) {
				testenv.In(t, newNICs(t), func() error {
					k, disk := newRestartRigPass(t), &testdisk.FileSystem{}
					first, err := k.openOnDisk(disk)
					if err == nil {
						err = first.Apply(testState())
					}
					if err != nil {
						return err
					}
					flow := rememberFlow(t, first)
					disk.Fail(&trouble, after)
					for _, n := range []int{1, 0, 1} {
						if err := first.Apply(withSwappedService(testState(), n)); err != nil {
							return errors.Join(err, first.Close())
						}
					}
					places := maps.Clone(first.register.Places.Backends)
					again, err := k.next(first)
					if err != nil {
						return err
					}
					defer again.Close()
					if again.keeper.Number != first.keeper.Number ||
						!maps.Equal(again.register.Places.Backends, places) {
						t.Errorf("the next process goes on with snapshot %d of %d: %v, want %v",
							again.keeper.Number, first.keeper.Number, again.register.Places.Backends, places)
					}
					if err := again.Apply(withSwappedService(testState(), 1)); err != nil {
						return err
					}
					if _, there := again.shared.Proven.Find(&flow); !there {
						t.Error("a flow is forgotten")
					}
					disk.Fail(nil, 0)
					if _, err := again.Repin(); err != nil {
						return err
					}
					if _, err := os.Stat(again.keeper.File(again.keeper.Number)); err != nil ||
						len(again.keeper.Pinned()) != 0 {
						t.Errorf("with room again: %v, pinned %v", err, again.keeper.Pinned())
					}
					return nil
				})
			})
		}
	}
}

// TestSnapshotIsNowhere: changes whose snapshot could be written nowhere are in force. The next process goes on with
// the newest snapshot that there is, and gives no index to a backend whose flows could be taken for those of another.
func TestSnapshotIsNowhere(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		k, disk := newRestartRigPass(t), &testdisk.FileSystem{}
		first, err := k.openOnDisk(disk)
		if err == nil {
			err = first.Apply(testState())
		}
		if err != nil {
			return err
		}
		flow := rememberFlow(t, first)
		known := maps.Clone(first.register.Places.Backends)
		disk.Fail(&testdisk.Faults[3], 0)
		// As where the kernel has no memory for it.
		first.keeper.PinContent = func(string, []byte) error { return unix.ENOMEM }
		if err := first.Apply(withSwappedService(testState(), 1)); err != nil {
			return errors.Join(err, first.Close())
		}
		unknown := maps.Clone(first.register.Places.Backends)
		maps.DeleteFunc(unknown, func(key lb.BackendKey, _ generation.Place) bool {
			_, there := known[key]
			return there
		})
		if len(unknown) == 0 {
			t.Fatal("the change brought no backend")
		}
		if _, err := first.keeper.Decode(first.keeper.Number); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the last snapshot is there: %v", err)
		}
		again, err := k.next(first)
		if err != nil {
			return err
		}
		defer again.Close()
		if !slices.ContainsFunc(again.Notes(), func(n string) bool { return n == staleNote }) {
			t.Errorf("it says %q", again.Notes())
		}
		if err := again.Apply(withSwappedService(testState(), 1)); err != nil {
			return err
		}
		for key, was := range unknown {
			if is := again.register.Places.Backends[key]; is == was || is == (generation.Place{}) {
				t.Errorf("%v has the place %v, and flows that it or another had from one that nothing knows", key, is)
			}
		}
		if _, there := again.shared.Proven.Find(&flow); !there {
			t.Error("a flow of a backend that is known is forgotten")
		}
		return nil
	})
}

// TestReserve: the file for the next snapshot has its room before it is written, so that a disk that others fill
// in between takes it.
func TestReserve(t *testing.T) {
	testenv.Root(t)
	testenv.In(t, newNICs(t), func() error {
		k := newRestartRigPass(t)
		d, err := k.openWith(testState())
		if err != nil {
			return err
		}
		defer d.Close()
		for range 3 {
			if err := d.Apply(withSwappedService(testState(), 1)); err != nil {
				return err
			}
			if d.keeper.Reserved < d.keeper.Size+keeper.MinReserve {
				t.Errorf("for a snapshot of %d bytes, %d are reserved", d.keeper.Size, d.keeper.Reserved)
			}
			if numbers := d.keeper.SnapshotFiles(); len(numbers) != 1 {
				t.Errorf("snapshots: %v", numbers)
			}
		}
		return nil
	})
}
