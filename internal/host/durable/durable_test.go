// SPDX-License-Identifier: Apache-2.0

package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/test/testdisk"
)

// contentOf reads a content as the next process does.
func contentOf(t *testing.T, c *durable.Content) string {
	t.Helper()
	data, err := c.Load(os.ReadFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "(none)"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestTroubles makes each operation of a write fail by each fault. The next process reads the content saved last, the
// fault is reported while it lasts, and a retry ends it. Without a fallback, the file has the content that was written
// last.
func TestTroubles(t *testing.T) {
	for _, trouble := range testdisk.Faults {
		for after := range 6 {
			for _, with := range []bool{true, false} {
				disk, path := &testdisk.FileSystem{}, filepath.Join(t.TempDir(), "run.operations")
				options := durable.Options{FileSystem: disk}
				if with {
					options.Fallback = &testdisk.Spare{}
				}
				open := func() (*durable.Files, *durable.Content) {
					files := durable.New(options)
					return files, files.Content("the drains", path, "operations", 0o600)
				}
				files, c := open()
				if err := c.Save([]byte("old, and longer")); err != nil {
					t.Fatal(err)
				}
				disk.Fail(&trouble, after)
				err := c.Save([]byte("new"))
				_, next := open()
				want := map[bool]string{true: "new", false: "old, and longer"}[err == nil || with]
				if got := contentOf(t, next); got != want {
					t.Errorf("%s after %d, a second place %v: the next process reads %q, want %q (%v)",
						trouble.Name, after, with, got, want, err)
				}
				faults := files.Faults()
				reported := errors.Is(err, durable.ErrNotWritten) && errors.Is(err, trouble.Err)
				if (err != nil) != (len(faults) == 1) || err != nil && (!reported || faults[0].InFallback != with) {
					t.Errorf("%s after %d: faults %v, error %v", trouble.Name, after, faults, err)
				}
				if failed := disk.Failed() > 0; failed != (err != nil) {
					t.Errorf("%s after %d: an operation failed: %v, and the error is %v", trouble.Name, after,
						failed, err)
				}
				disk.Fail(nil, 0)
				files.Retry()
				if got := contentOf(t, next); got != "new" || len(files.Faults()) != 0 {
					t.Errorf("%s after %d: after a retry it is %q, faults %v", trouble.Name, after, got, files.Faults())
				}
				if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
					t.Errorf("%s after %d: there is left %v: %v", trouble.Name, after, left, err)
				}
			}
		}
	}
}

// TestRemovalFails: the next process does not read a file whose removal failed, but reads one that is written later.
func TestRemovalFails(t *testing.T) {
	disk, spare, path := &testdisk.FileSystem{}, &testdisk.Spare{}, filepath.Join(t.TempDir(), "run.operations")
	files := durable.New(durable.Options{FileSystem: disk, Fallback: spare})
	c := files.Content("the drains", path, "operations", 0o600)
	if err := c.Save([]byte("a drain")); err != nil {
		t.Fatal(err)
	}
	disk.Fail(&testdisk.Fault{Err: os.ErrPermission, Ops: []testdisk.Op{testdisk.Remove}}, 0)
	if err := c.Save(nil); !errors.Is(err, durable.ErrNotWritten) {
		t.Errorf("removing it: %v", err)
	}
	if got := contentOf(t, c); got != "(none)" {
		t.Errorf("the next process reads %q", got)
	}
	// A build without a fallback does the same.
	if err := os.WriteFile(path+".other", []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".other", path); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, c); got != "another" {
		t.Errorf("beside an older copy, the next process reads %q", got)
	}
	disk.Fail(nil, 0)
	if err := c.Forget(); err != nil {
		t.Error(err)
	}
	if _, err := spare.Load("operations"); !errors.Is(err, fs.ErrNotExist) || len(files.Faults()) != 0 {
		t.Errorf("after Forget: %v, %v", err, files.Faults())
	}
}

// TestDirectoryIsGone: a content whose directory was removed is written into a new one.
func TestDirectoryIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jeoul")
	files := durable.New(durable.Options{})
	c := files.Content("the drains", filepath.Join(dir, "run.operations"), "operations", 0o600)
	for _, content := range []string{"first", "second"} {
		if err := c.Save([]byte(content)); err != nil {
			t.Error(err)
		}
		if got := contentOf(t, c); got != content {
			t.Errorf("the next process reads %q, want %q", got, content)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoFiles: a nil Files writes, and records no faults.
func TestNoFiles(t *testing.T) {
	var files *durable.Files
	notDir := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(notDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := files.Content("the drains", filepath.Join(notDir, "run.operations"), "operations", 0o600)
	if err := c.Save([]byte("x")); !errors.Is(err, durable.ErrNotWritten) || !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("it says %v", err)
	}
	files.Retry()
	if len(files.Faults()) != 0 || files.Failures() != 0 || files.Changes() != nil {
		t.Error("it keeps an account")
	}
}
