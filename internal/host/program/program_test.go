// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFind: a program is found beside this one, in libexec and in PATH, in this order. If it is missing, the error
// explains how to install it.
func TestFind(t *testing.T) {
	root := t.TempDir()
	own := filepath.Join(root, "bin/jeoul")
	self := func() (string, error) { return own, nil }
	nowhere := func(name string) (string, error) { return "", &exec.Error{Name: name, Err: exec.ErrNotFound} }
	if _, err := find("kubernetes", self, nowhere); !errors.Is(err, ErrNotInstalled) ||
		!strings.Contains(err.Error(), "install the package jeoul-kubernetes") {
		t.Errorf("missing: %v", err)
	}
	inCurrentDir := func(name string) (string, error) { return "./" + name, &exec.Error{Name: name, Err: exec.ErrDot} }
	if got, err := find("kubernetes", self, inCurrentDir); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("in the current directory: %s, %v", got, err)
	}
	inPath := func(name string) (string, error) { return "/elsewhere/" + name, nil }
	expect := func(want string) {
		t.Helper()
		if got, err := find("kubernetes", self, inPath); got != want || err != nil {
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

// TestBuild: the same file has the same build ID, a file with another build ID has another one, and a file that is no
// Go program has none.
func TestBuild(t *testing.T) {
	own, err := OwnBuild()
	if err != nil || own == "" {
		t.Fatalf("of this program: %q, %v", own, err)
	}
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Build(bytes.NewReader(text)); again != own || err != nil {
		t.Errorf("of a copy: %q, %v, want %q", again, err, own)
	}
	executable, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	text[executable.Section(".note.go.buildid").Offset+noteHeader] ^= 1
	if other, err := Build(bytes.NewReader(text)); other == own || err != nil {
		t.Errorf("with another build ID: %q, %v", other, err)
	}
	for _, text := range [][]byte{nil, []byte("#!/bin/sh\n"), text[:1000]} {
		if got, err := Build(bytes.NewReader(text)); err == nil {
			t.Errorf("of %d bytes that are no program: %q", len(text), got)
		}
	}
}
