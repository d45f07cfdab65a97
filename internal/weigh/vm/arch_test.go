// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestArchitectures: an error names a program of another architecture than its machine, and an unknown architecture of
// a machine, with the remedy.
func TestArchitectures(t *testing.T) {
	t.Parallel()
	own, other := AMD64, ARM64
	if Own() == ARM64 {
		own, other = other, own
	}
	if err := own.CheckProgram(os.Args[0]); err != nil {
		t.Errorf("this program in a machine of its own architecture: %v", err)
	}
	err := other.CheckProgram(os.Args[0])
	if !errors.Is(err, ErrArch) || !strings.Contains(err.Error(), "make build ARCH="+string(other)) {
		t.Errorf("this program in a machine of the other: %v", err)
	}
	if _, err := Version(t.Context(), "riscv64"); !errors.Is(err, ErrArch) {
		t.Errorf("QEMU of no such architecture: %v", err)
	}
	if _, err := Fetch(t.Context(), t.TempDir(), DefaultRelease, "riscv64", func(string) {}); !errors.Is(err, ErrArch) {
		t.Errorf("the kernel of no such architecture: %v", err)
	}
	if accelerator, why := Choose(t.Context(), &Kernel{Arch: other}); accelerator != TCG || why == "" {
		t.Errorf("the other architecture runs by %s, because %q", accelerator, why)
	}
	args := Counting.arguments(&Kernel{Arch: ARM64, Image: "vmlinuz"}, "")
	for _, want := range []string{"virt,gic-version=3", "neoverse-n1", "console=ttyAMA0 " + commandLine} {
		if !slices.Contains(args, want) {
			t.Errorf("a machine of arm64 has no %q: %q", want, args)
		}
	}
}

// TestRootOfPackages: packages are unpacked through the links that merge directories, nothing of them is written
// outside of the root, and the machine has all of it.
func TestRootOfPackages(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	write(t, filepath.Join(root, "usr", "lib", "kept"), "kept")
	link(t, "usr/lib", filepath.Join(root, "lib"))
	archive := func(headers ...tar.Header) *bytes.Buffer {
		var to bytes.Buffer
		w := tar.NewWriter(&to)
		for _, h := range headers {
			if h.Typeflag == tar.TypeReg {
				h.Size = int64(len("text"))
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := w.Write([]byte("text")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &to
	}
	err := unpackTar(archive(
		tar.Header{Name: "./", Typeflag: tar.TypeDir}, tar.Header{Name: "./lib/", Typeflag: tar.TypeDir},
		tar.Header{Name: "./lib/libx.so.1.2", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "./lib/libx.so.1", Typeflag: tar.TypeSymlink, Linkname: "libx.so.1.2"},
		tar.Header{Name: "./usr/bin/x", Typeflag: tar.TypeReg, Mode: 0o4755},
	), root)
	if err != nil {
		t.Fatal(err)
	}
	im := emptyImage()
	if err := im.tree(root); err != nil {
		t.Fatal(err)
	}
	has := unpacked(t, im)
	got := map[string]string{}
	for _, name := range []string{"usr/lib/kept", "usr/lib/libx.so.1.2", "usr/bin/x"} {
		got[name] = has[name]
	}
	want := map[string]string{"usr/lib/kept": "kept", "usr/lib/libx.so.1.2": "text", "usr/bin/x": "text"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := unpackTar(archive(tar.Header{Name: "../beside", Typeflag: tar.TypeReg, Mode: 0o644}), root); err == nil {
		t.Error("a file beside the root was written")
	}
}
