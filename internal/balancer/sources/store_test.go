// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestDirectoryOf: files that differ have directories that differ, also where their names would read alike.
func TestDirectoryOf(t *testing.T) {
	for path, want := range map[string]string{
		"/etc/jeoul/jeoul.yaml": "etc-jeoul-jeoul.yaml",
		"/etc/jeoul-jeoul.yaml": `etc-jeoul\x2djeoul.yaml`,
		"/저울":                   `\xec\xa0\x80\xec\x9a\xb8`,
	} {
		if got, err := DirectoryOf("/var/lib/jeoul/sources", path); err != nil ||
			got != "/var/lib/jeoul/sources/"+want {
			t.Errorf("%s: %s, %v; want %s", path, got, err, want)
		}
	}
}

// TestStoreOfAnother: of two balancers with one file, only the first stores something; a start beside
// it takes nothing away that it is writing.
func TestStoreOfAnother(t *testing.T) {
	dir := t.TempDir()
	first, _ := open(t, dir)
	if _, err := ask(t, first, Put, Place{Service: "shop"}, service("shop", 101, 1)); err != nil {
		t.Fatal(err)
	}
	writing := filepath.Join(dir, "sources", "api"+stored+pending)
	if err := os.WriteFile(writing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second, p := open(t, dir)
	if _, err := os.Stat(writing); err != nil {
		t.Error(err)
	}
	before, text := p.cfg, read(t, dir)
	_, err := ask(t, second, Put, Place{Service: "shop"}, service("shop", 101, 1, 2))
	if !errors.Is(err, ErrNotStored) || !strings.Contains(err.Error(), "--store-dir") || p.cfg != before ||
		read(t, dir) != text {
		t.Errorf("error %v; in force: %s; stored:\n%s", err, names(p.cfg), read(t, dir))
	}
	first.store.release() // as its end does
	third, _ := open(t, dir)
	if _, err := os.Stat(writing); err == nil {
		t.Error("what a dead process was writing is still there")
	}
	if _, err := ask(t, third, Put, Place{Service: "shop"}, service("shop", 101, 1, 2)); err != nil {
		t.Error(err)
	}
}

// TestMove: fragments of the previous directory move to the present one, unless that has newer ones.
func TestMove(t *testing.T) {
	root := t.TempDir()
	from, to := filepath.Join(root, "from"), filepath.Join(root, "below", "to")
	put := func(dir, name string, generation uint64, text string) {
		t.Helper()
		s := store{dir: dir}
		defer s.release()
		if err := s.put(Fragment{Name: name, Generation: generation, Text: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	if moved, err := Move(from, to); err != nil || moved != nil {
		t.Errorf("without a directory: %v, %v", moved, err)
	}
	put(from, "api", 3, "of from\n")
	put(from, "kube", 3, "of from\n")
	put(from, "new", 1, "of from\n")
	put(to, "api", 3, "of to\n")
	put(to, "kube", 2, "of to\n")
	if moved, err := Move(from, to); err != nil || strings.Join(moved, " ") != "kube new" {
		t.Errorf("%v, %v", moved, err)
	}
	all, err := (&store{dir: to}).load()
	var got []string
	for _, f := range all {
		got = append(got, f.Name+" "+strings.TrimSpace(string(f.Text)))
	}
	if want := "api of to, kube of from, new of from"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("%v, %v; want %s", got, err, want)
	}
	if _, err := os.Stat(from); err == nil {
		t.Error("the directory of before is still there")
	}
	if at, err := os.Stat(filepath.Dir(to)); err != nil || at.Mode().Perm() != 0o755 {
		t.Errorf("the directory above is %v, %v", at.Mode(), err)
	}
}

// TestFullDisk: where there is no room, nothing changes, in force or stored, and the previous text can be read; with
// room the same request succeeds. Move leaves everything where it was.
func TestFullDisk(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	s, p := open(t, dir)
	full := smallDisk(t, filepath.Join(dir, "sources"))
	if _, err := ask(t, s, Put, Place{Service: "shop"}, service("shop", 101, 1)); err != nil {
		t.Fatal(err)
	}
	before, text := p.cfg, read(t, dir)
	filler := filepath.Join(full, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte("x"), 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	_, err := ask(t, s, Put, Place{Service: "shop"}, service("shop", 101, 1, 2))
	if !errors.Is(err, ErrNotStored) || !errors.Is(err, unix.ENOSPC) ||
		!strings.Contains(err.Error(), "make room there") {
		t.Errorf("error %v", err)
	}
	if p.cfg != before || s.Config() != before || read(t, dir) != text {
		t.Errorf("in force: %s; stored:\n%s", names(p.cfg), read(t, dir))
	}
	again, _ := open(t, dir)
	if got := names(again.Config()); got != names(before) {
		t.Errorf("after a restart: %s", got)
	}
	from := store{dir: filepath.Join(dir, "from")}
	if err := from.put(Fragment{Name: "kube", Generation: 1, Text: []byte("services: []\n")}); err != nil {
		t.Fatal(err)
	}
	s.store.release()
	if _, err := Move(from.dir, full); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("moving there: %v", err)
	}
	if left, err := from.load(); err != nil || len(left) != 1 {
		t.Errorf("left where it was: %v, %v", left, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, s, Put, Place{Service: "shop"}, service("shop", 101, 1, 2)); err != nil ||
		names(p.cfg) == names(before) {
		t.Errorf("with room again: %s, %v", names(p.cfg), err)
	}
}

// smallDisk mounts a file system of four pages, which only the test's own thread sees; it goes with the
// test.
func smallDisk(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""),
		unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
