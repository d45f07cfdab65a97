// SPDX-License-Identifier: Apache-2.0

package testdisk

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// where is the environment variable with the directory of a process of TestInjector.
const where = "JEOUL_TEST_DISK_WHERE"

// TestInjector makes each change of files by a process fail in turn. The process gets the error, and its earlier
// changes remain.
func TestInjector(t *testing.T) {
	testenv.Root(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, fails := range []Op{MkdirAll, Create, Write, Sync, Chmod, Rename, Remove, Bind, "nothing"} {
		dir, mu, asked := t.TempDir(), sync.Mutex{}, []string{}
		injector, err := Inject(t.TempDir(), func(op Op, path string) unix.Errno {
			name, below := strings.CutPrefix(path, dir+"/")
			if !below {
				return 0
			}
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, string(op)+" "+name)
			if op == fails {
				return unix.EDQUOT
			}
			return 0
		})
		if err != nil {
			t.Fatal(err)
		}
		command := exec.Command(program, "-test.run=^TestOfInjected$")
		command.Env = append(os.Environ(), where+"="+dir, injector.Env())
		output, err := command.CombinedOutput()
		says := strings.Contains(string(output), unix.EDQUOT.Error())
		if (err == nil) != (fails == "nothing") || says == (err == nil) {
			t.Errorf("where %s fails: %v\n%s", fails, err, output)
		}
		if err := injector.Close(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"mkdir made", "create made/file.new", "write made/file.new", "sync made/file.new",
			"chmod made/file.new", "rename made/file", "bind made/socket", "remove made/file"} {
			if fails == "nothing" && !slices.Contains(asked, want) {
				t.Errorf("of %q, it was not asked about %q", asked, want)
			}
		}
	}
}

// TestOfInjected is a process of TestInjector.
func TestOfInjected(t *testing.T) {
	dir := os.Getenv(where)
	if dir == "" {
		t.Skip("it is a process of TestInjector")
	}
	if err := Report(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "made", "file")
	err := durable.OS.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = durable.Replace(durable.OS, path, []byte("x"), 0o600, true)
	}
	if err == nil {
		var l net.Listener
		if l, err = net.Listen("unix", filepath.Join(dir, "made", "socket")); err == nil {
			defer l.Close()
		}
	}
	if err = errors.Join(err, os.Remove(path)); err != nil {
		t.Fatal(err)
	}
}
