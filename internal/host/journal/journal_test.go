// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

var errDamaged = errors.New("damaged")

func TestReplaceAndRead(t *testing.T) {
	for name, replace := range map[string]func(string, []byte, os.FileMode) error{
		"replace": Replace, "replace on disk": ReplaceOnDisk} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "journal")
			for _, text := range []string{"first, and longer", "second"} {
				if err := replace(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if got, err := Read(path, errDamaged); err != nil || string(got) != text {
					t.Errorf("read %q (%v), want %q", got, err, text)
				}
			}
			// A path that cannot be replaced stays, and no other file remains.
			if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := replace(filepath.Join(dir, "taken"), []byte("x"), 0o600); err == nil {
				t.Error("a directory was replaced")
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
				t.Errorf("left %v (%v)", entries, err)
			}
			// A link with the new file's name is not followed.
			other := filepath.Join(dir, "other")
			if err := os.Symlink(other, path+NewSuffix); err != nil {
				t.Fatal(err)
			}
			if err := replace(path, []byte("x"), 0o600); err == nil {
				t.Error("a link was followed")
			}
			if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the link's target was written: %v", err)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	write := func(data []byte, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte("{}"), 0o622)
	if _, err := Read(path, errDamaged); !errors.Is(err, errDamaged) {
		t.Errorf("one that others can write: %v", err)
	}
	write(bytes.Repeat([]byte(" "), MaxSize+1), 0o600)
	if _, err := Read(path, errDamaged); !errors.Is(err, errDamaged) {
		t.Errorf("one that is too long: %v", err)
	}
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(link, errDamaged); err == nil {
		t.Error("a link was followed")
	}
	if _, err := Read(path+".none", errDamaged); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
}

func TestDecode(t *testing.T) {
	var into struct{ A int }
	if err := Decode([]byte(`{"a": 1}`+"\n"), &into); err != nil || into.A != 1 {
		t.Errorf("%+v, %v", into, err)
	}
	for _, text := range []string{``, `{"a": 1`, `{"a": 1, "b": 2}`, `{"a": 1} {"a": 2}`} {
		if err := Decode([]byte(text), &into); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
