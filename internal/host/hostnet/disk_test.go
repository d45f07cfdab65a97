// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/test/testdisk"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestUnwritableJournal changes a host while the journal cannot be written, for each fault of a file system. The
// changes are in force, Close undoes them, and with a fallback the next process knows them.
func TestUnwritableJournal(t *testing.T) {
	for _, trouble := range testdisk.Faults {
		for _, killed := range []bool{false, true} {
			t.Run(trouble.Name+map[bool]string{true: ", killed", false: ", stopped"}[killed], func(t *testing.T) {
				ns, dir, disk := testenv.Namespace(t), t.TempDir(), &testdisk.FileSystem{}
				before, spare := readSettings(t, ns), &testdisk.Spare{}
				files := durable.New(durable.Options{FileSystem: disk, Fallback: spare})
				testenv.In(t, ns, func() error {
					c, err := hostnet.Open(dir, "test", hostnet.Files(files))
					if err != nil {
						return err
					}
					disk.Fail(&trouble, 0)
					if err := change(c); err != nil {
						return err
					}
					if faults := files.Faults(); len(faults) != 1 || !errors.Is(faults[0].Err, trouble.Err) {
						t.Errorf("faults are %v", faults)
					}
					if killed {
						c.Detach() // like a kill: nothing more is written
						files = durable.New(durable.Options{FileSystem: disk, Fallback: spare})
						if c, err = hostnet.Adopt(dir, "test", hostnet.Files(files)); err != nil {
							return err
						}
						if held, err := c.InstalledAddresses("lo"); err != nil || len(held) != 2 {
							t.Errorf("the next process knows of %v: %v", held, err)
						}
						if err := c.AddAddresses("lo", []netip.Addr{vip4, vip6}, vip); err != nil {
							return err
						}
					}
					disk.Fail(nil, 0)
					return c.Close()
				})
				same(t, "taken back", before, readSettings(t, ns))
				empty(t, dir)
			})
		}
	}
}

// TestLockComesLater: a lock whose file could not be created at the start is taken as soon as it can be, without a
// change.
func TestLockComesLater(t *testing.T) {
	ns, dir := testenv.Namespace(t), filepath.Join(t.TempDir(), "jeoul")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file in the place of the directory
		t.Fatal(err)
	}
	files := durable.New(durable.Options{})
	testenv.In(t, ns, func() error {
		c, err := hostnet.Open(dir, "test", hostnet.Files(files))
		if err != nil {
			return err
		}
		if len(files.Faults()) == 0 {
			t.Error("that there is no lock is no fault")
		}
		if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o755)); err != nil {
			return err
		}
		files.Retry()
		if faults := files.Faults(); len(faults) != 0 {
			t.Errorf("faults are %v", faults)
		}
		if _, err := hostnet.Open(dir, "test"); !errors.Is(err, hostnet.ErrBusy) {
			t.Errorf("a second process: %v", err)
		}
		return c.Close()
	})
}
