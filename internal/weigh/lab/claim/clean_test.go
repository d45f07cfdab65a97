// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// remains lists a lab's lock and the names of its namespaces, as far as they exist.
func remains(t *testing.T, id string) (left []string) {
	t.Helper()
	left, err := filepath.Glob(netns.NamesPattern(id))
	if err != nil {
		t.Fatal(err)
	}
	mounted, err := netns.MountedNames(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounted {
		left = append(left, "mount on "+m.MountPoint)
	}
	if _, err := os.Lstat(Path(id)); err == nil {
		left = append(left, Path(id))
	}
	return left
}

// inTempDir puts the locks of this test's labs into a directory of its own, which needs no root.
func inTempDir(t *testing.T) {
	t.Helper()
	before := dir
	dir = t.TempDir()
	t.Cleanup(func() { dir = before })
}

// TestCleanRemovesOnlyLabs: files that no lab has made do not make Clean, which root runs, remove anything else.
func TestCleanRemovesOnlyLabs(t *testing.T) {
	inTempDir(t)
	mine := filepath.Join(t.TempDir(), "mine")
	if err := os.Mkdir(mine, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	err = l.Write(Record{PID: 1, Dir: mine})
	l.Release()
	// An ID is part of patterns of names, so a file "*.lock" would name all labs.
	other := Path("other")
	if err := errors.Join(err, os.WriteFile(other, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	removed, err := Clean(t.Context())
	if err != nil || !slices.Equal(removed, []string{l.ID}) {
		t.Errorf("removed labs %q, error %v; want %q", removed, err, l.ID)
	}
	for _, path := range []string{mine, other} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestCleanRemovesTheDirectory: the work directory of a dead lab is removed with it.
func TestCleanRemovesTheDirectory(t *testing.T) {
	inTempDir(t)
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(t.TempDir(), DirName(l.ID))
	err = errors.Join(os.Mkdir(work, 0o755), l.Write(Record{PID: 1, Dir: work}))
	l.Release()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(work); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", work, err)
	}
}

// TestCleanHalfMade: a death between any two steps of New leaves remains that can be cleaned up.
func TestCleanHalfMade(t *testing.T) {
	testenv.Root(t)
	tests := []struct {
		name string
		make func(t *testing.T, l *Lock)
	}{
		{"a lock alone", func(*testing.T, *Lock) {}},
		{"a torn record", func(t *testing.T, l *Lock) {
			if _, err := l.file.WriteString(`{"pid":`); err != nil {
				t.Fatal(err)
			}
		}},
		{"a name without a namespace", func(t *testing.T, l *Lock) {
			if err := os.MkdirAll(netns.NamesDir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(netns.NamesDir+"/"+netns.Name(l.ID, "switch"), nil, 0o444); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, err := New()
			if err != nil {
				t.Fatal(err)
			}
			test.make(t, l)
			l.Release()
			if _, err := Clean(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := remains(t, l.ID); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}
