// SPDX-License-Identifier: Apache-2.0

package libxdp

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestSweep has directories as killed processes leave them, and such as belong to others: on an interface of the same
// index in another network namespace, and on another interface.
func TestSweep(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Setenv(environment, dir)
	if err := os.Mkdir(root(), 0o700); err != nil {
		t.Fatal(err)
	}
	ours, foreign, elsewhere := passing(t), passing(t), passing(t)
	const index, gone = 7, 1 << 30
	// name is the directory of a dispatcher on an interface, which has these programs; one that is nil is not pinned
	// yet.
	name := func(index int, programs ...*ebpf.Program) string {
		d, err := (&config{version: oldestVersion, slots: make([]slot, len(programs))}).load(ebpf.AttachXDP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.close)
		name := dirName(index, d.id)
		if err := os.Mkdir(filepath.Join(root(), name), 0o700); err != nil {
			t.Fatal(err)
		}
		for i, p := range programs {
			if p != nil {
				if err := pinCopy(p, filepath.Join(root(), name, programPin(i))); err != nil {
					t.Fatal(err)
				}
			}
		}
		return name
	}
	attached := name(index, ours, foreign)
	name(index, ours, foreign)  // exchanged, or to be attached
	name(index, foreign)        // to be attached without ours
	name(index, elsewhere, nil) // half pinned
	stay := []string{attached, name(index, elsewhere), name(index+1, ours, foreign)}
	if err := os.Mkdir(filepath.Join(root(), dirName(index, gone)), 0o700); err != nil { // not even begun to be pinned
		t.Fatal(err)
	}
	_, now, _ := parseDir(attached)
	if err := (&nic{index: index}).sweep(now, []ebpf.ProgramID{idOf(t, ours), idOf(t, foreign)}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(got)
	slices.Sort(stay)
	if !slices.Equal(got, stay) {
		t.Errorf("there are %q, want %q", got, stay)
	}
}

// passing is a program that passes everything.
func passing(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func idOf(t *testing.T, p *ebpf.Program) ebpf.ProgramID {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return id
}
