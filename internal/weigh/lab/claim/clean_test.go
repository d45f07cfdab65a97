// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"os"
	"path/filepath"
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
