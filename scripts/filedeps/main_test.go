// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMeasure: a, b and c depend on each other in a cycle: by a function, by a field and by a method. a uses d, e uses
// a, and the test of the package does not count.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod": "module example.test/m\n\ngo 1.26.0\n",
		"k/a.go": "package k\n\nfunc A() int { return B() + D }\n",
		"k/b.go": "package k\n\nfunc B() int { return get().field }\n",
		"k/c.go": "package k\n\ntype c struct{ field int }\n\nfunc (c) call() int { return A() }\n\n" +
			"func get() c { return c{} }\n",
		"k/d.go":        "package k\n\nconst D = 1\n",
		"k/e.go":        "package k\n\nimport \"example.test/m/lone\"\n\nvar E = A() + lone.L\n",
		"k/all_test.go": "package k\n\nvar all = E\n",
		"lone/l.go":     "package lone\n\nconst L = 1\n",
	})
	found, err := measure(dir, []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	want := []figures{
		{path: "example.test/m/k", files: 5, block: []string{"a.go", "b.go", "c.go"}},
		{path: "example.test/m/lone", files: 1, block: []string{"l.go"}},
	}
	if diff := cmp.Diff(want, found, cmp.AllowUnexported(figures{})); diff != "" {
		t.Error(diff)
	}
}

func TestMeasureSaysWhatDoesNotCompile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod": "module example.test/m\n\ngo 1.26.0\n",
		"a.go":   "package m\n\nvar a = missing\n",
	})
	if _, err := measure(dir, []string{"./..."}); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("got %v, want an error that names missing", err)
	}
}

func TestLimits(t *testing.T) {
	block := func(n int) []string { return make([]string, n) }
	for _, test := range []struct {
		name, limits string
		found        []figures
		want         string
	}{
		{"kept", "5 2 others\n# big ones\n9 4 m/big\n", []figures{{"m/big", 9, block(4)}, {"m/small", 5, block(2)}},
			""},
		{"files of others", "5 2 others", []figures{{"m/small", 6, block(2)}}, "has 6 files, of at most 5"},
		{"block of others", "5 2 others", []figures{{"m/small", 5, block(3)}},
			"small has 3 files that depend on each other"},
		{"own files", "5 2 others\n9 4 m/big", []figures{{"m/big", 10, block(4)}}, "m/big has 10 files, of at most 9"},
		{"own block", "5 2 others\n9 4 m/big", []figures{{"m/big", 9, block(5)}}, "5 files that depend on each other"},
		{"shrunk", "5 2 others\n9 4 m/big", []figures{{"m/big", 8, block(4)}}, `write "8 4 m/big" into`},
		{"gone", "5 2 others\n9 4 m/big", nil, "there is no package m/big"},
		{"no others", "9 4 m/big", nil, `no line for "others"`},
		{"twice", "5 2 others\n9 4 m\n9 4 m", nil, ":3: m has two lines"},
		{"others twice", "5 2 others\n5 2 others", nil, ":2: others has two lines"},
		{"short", "5 others", nil, "want FILES BLOCK PACKAGE"},
		{"no number", "5 x others", nil, `"x": want a number`},
		{"zero", "0 1 others", nil, `"0": want a number`},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "limits.txt")
			write(t, filepath.Dir(file), map[string]string{"limits.txt": test.limits})
			limits, err := readLimits(file)
			if err == nil {
				err = limits.check(test.found)
			}
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func FuzzParseLimit(f *testing.F) {
	f.Add("5 2 others")
	f.Fuzz(func(t *testing.T, line string) {
		path, allowed, err := parseLimit(line)
		if err == nil && (path == "" || allowed.files < 1 || allowed.block < 1) {
			t.Errorf("%q is read as %q, %+v", line, path, allowed)
		}
	})
}
