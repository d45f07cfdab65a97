// SPDX-License-Identifier: Apache-2.0

package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/test/testdisk"
)

// onDisk keeps operations in a file.
type onDisk struct{ *durable.Content }

func (o onDisk) Load() ([]byte, error) { return o.Content.Load(os.ReadFile) }

// TestUnwritableOperations: a drain is in force though it cannot be written, and says that it is not durable;
// status and log say so too, for as long as that lasts, and not a moment longer than the next attempt.
func TestUnwritableOperations(t *testing.T) {
	for _, trouble := range testdisk.Faults {
		synctest.Test(t, func(t *testing.T) {
			disk, path := &testdisk.FileSystem{}, filepath.Join(t.TempDir(), "run.operations")
			w := newWorld(t)
			w.found("192.0.2.1", 1)
			w.found("192.0.2.2", 2)
			c := w.controller(web)
			files := durable.New(durable.Options{FileSystem: disk})
			c.opt.Memory = onDisk{files.Content("the drains", path, "operations", 0o600)}
			c.opt.Files = files
			c.loop.OnSignal(files.Changes(), c.storage.logFaults) // as New does where it is notified of files
			stop := w.run(c)
			w.quiet()
			disk.Fail(&trouble, 0)
			done, err := do(t, c, "drain web/web01")
			const notDurable = "in force, and not durable yet: the drains cannot be written to "
			if err != nil || len(done.Notes) != 1 || !strings.HasPrefix(done.Notes[0], notDurable+path) {
				t.Errorf("%s: a drain says %q: %v", trouble.Name, done.Notes, err)
			}
			synctest.Wait()
			status, err := c.Status()
			if err != nil || len(status.Unwritten) != 1 || status.Unwritten[0].Path != path ||
				status.WriteFailures == 0 ||
				!strings.Contains(strings.Join(status.Problems, "\n"), "it ends with this process") {
				t.Errorf("%s: unwritten %v, problems %q: %v", trouble.Name, status.Unwritten, status.Problems, err)
			}
			if !w.logged("the drains cannot be written to") {
				t.Errorf("%s: nothing is logged", trouble.Name)
			}
			disk.Fail(nil, 0)
			time.Sleep(rewriteInterval)
			synctest.Wait()
			if status, err = c.Status(); err != nil || len(status.Unwritten) != 0 ||
				!w.logged("writing the drains to") {
				t.Errorf("%s: with room again, unwritten %v: %v", trouble.Name, status.Unwritten, err)
			}
			if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), "192.0.2.1") {
				t.Errorf("%s: the file has %q: %v", trouble.Name, data, err)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestUnwritableEjections: a backend is ejected, and readmitted, though that cannot be written; the status says so
// until the next attempt, and the file has the ejections in force then.
func TestUnwritableEjections(t *testing.T) {
	for _, trouble := range testdisk.Faults {
		synctest.Test(t, func(t *testing.T) {
			disk, path := &testdisk.FileSystem{}, filepath.Join(t.TempDir(), "run.ejections")
			files := durable.New(durable.Options{FileSystem: disk, Fallback: &testdisk.Spare{}})
			kept := onDisk{files.Content("the ejected backends", path, "ejections", 0o600)}
			w, c, _, stop := newEjectingInto(t, natWeb, kept, files)
			w.clients(20)
			w.expect()
			disk.Fail(&trouble, 0)
			w.clients(8, "web01")
			w.expect("apply web: web01=1!e web02=2 web03=3")
			status, err := c.Status()
			if err != nil || len(status.Unwritten) != 1 || status.Unwritten[0].Path != path ||
				!status.Unwritten[0].Kept {
				t.Errorf("%s: ejected, and unwritten is %v: %v", trouble.Name, status.Unwritten, err)
			}
			w.clients(8, "web01")
			w.expect("apply web: web01=1 web02=2 web03=3")
			disk.Fail(nil, 0)
			time.Sleep(rewriteInterval)
			synctest.Wait()
			data, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(data), "192.0.2.1") || len(files.Faults()) != 0 {
				t.Errorf("%s: with room again, the file has %q: %v, %v", trouble.Name, data, err, files.Faults())
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
