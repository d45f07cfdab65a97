// SPDX-License-Identifier: Apache-2.0

package testkill

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// where is the environment variable with the directory of a victim.
const where = "JEOUL_TEST_KILL_WHERE"

// TestVictim kills a process that makes a directory, a file and a link to it before each of its steps, and lets one
// process end.
func TestVictim(t *testing.T) {
	testenv.Root(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for last, want := range []string{"", "made", "made made/new", "made made/named", "made made/named"} {
		dir := t.TempDir()
		command := exec.Command(program, "-test.run=^TestOfVictim$")
		command.Env = append(os.Environ(), where+"="+dir)
		v, err := Start(command)
		if err != nil {
			t.Fatal(err)
		}
		if last == 4 {
			last = -1
		}
		steps, killed, err := v.End(last)
		if err != nil {
			t.Fatal(err)
		}
		if all := 3; killed != (last >= 0 && last < all) || len(steps) != int(min(uint(last), uint(all))) {
			t.Errorf("before step %d: killed: %v, steps: %q", last, killed, steps)
		}
		if got := strings.Join(below(t, dir), " "); got != want {
			t.Errorf("before step %d there is %q, want %q", last, got, want)
		}
		if len(steps) > 0 && steps[0] != "mkdirat "+filepath.Join(dir, "made") {
			t.Errorf("the first step is %q", steps[0])
		}
	}
}

func below(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if name, _ := filepath.Rel(dir, path); name != "." {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// TestNoVictim starts a process that ends before it begins.
func TestNoVictim(t *testing.T) {
	testenv.Root(t)
	if _, err := Start(exec.Command("true")); err == nil {
		t.Error("a process that has not begun is taken for one that has")
	}
}

// TestOfVictim is the process that is killed.
func TestOfVictim(t *testing.T) {
	if !IsVictim() {
		t.Skip("runs as a process of TestVictim only")
	}
	dir := os.Getenv(where)
	made := filepath.Join(dir, "made")
	if err := Report(); err != nil {
		t.Fatal(err)
	}
	// A system call before the beginning is no step.
	if err := os.WriteFile(filepath.Join(dir, "before"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "before")); err != nil {
		t.Fatal(err)
	}
	if err := Begin(); err != nil {
		t.Fatal(err)
	}
	for _, do := range []func() error{
		func() error { return os.Mkdir(made, 0o700) },
		func() error { return os.WriteFile(filepath.Join(made, "new"), nil, 0o600) },
		func() error { return os.Rename(filepath.Join(made, "new"), filepath.Join(made, "named")) },
	} {
		if err := do(); err != nil {
			t.Fatal(fmt.Errorf("a step: %w", err))
		}
	}
}
