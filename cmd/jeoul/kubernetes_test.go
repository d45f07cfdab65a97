// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindKubernetes: the program is found beside jeoul, in libexec and in PATH, in this order; where it is missing,
// the error says how to install it.
func TestFindKubernetes(t *testing.T) {
	root := t.TempDir()
	own := filepath.Join(root, "bin/jeoul")
	self := func() (string, error) { return own, nil }
	nowhere := func(name string) (string, error) { return "", &exec.Error{Name: name, Err: exec.ErrNotFound} }
	if _, err := findKubernetes(self, nowhere); err == nil ||
		!strings.Contains(err.Error(), "install the package jeoul-kubernetes") {
		t.Errorf("missing: %v", err)
	}
	inPath := func(string) (string, error) { return "/elsewhere/jeoul-kubernetes", nil }
	expect := func(want string) {
		t.Helper()
		if got, err := findKubernetes(self, inPath); got != want || err != nil {
			t.Errorf("found %s, %v, want %s", got, err, want)
		}
	}
	expect("/elsewhere/jeoul-kubernetes")
	put := func(path string, mode os.FileMode) string {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	expect(put("libexec/jeoul/jeoul-kubernetes", 0o755))
	beside := put("bin/jeoul-kubernetes", 0o644)
	expect(filepath.Join(root, "libexec/jeoul/jeoul-kubernetes"))
	if err := os.Chmod(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	expect(beside)
}
