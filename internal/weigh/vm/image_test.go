// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"
)

// unpacked reads an archive: files by their path, a link as its target after an arrow.
func unpacked(t *testing.T, im *image) map[string]string {
	t.Helper()
	var archive bytes.Buffer
	if err := im.write(&archive); err != nil {
		t.Fatal(err)
	}
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(archive.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range records {
		if _, twice := all[r.Name]; twice {
			t.Errorf("%s is there twice", r.Name)
		}
		text := ""
		if r.ReaderAt != nil {
			content, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
			if err != nil {
				t.Fatal(err)
			}
			text = string(content)
		}
		switch r.Mode & cpio.S_IFMT {
		case cpio.S_IFLNK:
			text = "-> " + text
		case cpio.S_IFDIR:
			text = "directory"
		}
		all[r.Name] = text
	}
	return all
}

func emptyImage() *image { return &image{have: map[string]bool{}, read: cpio.NewRecorder()} }

func TestFilesComeWithTheirLinksAndDirectories(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "lib", "libx.so.1.2"), "the library")
	link(t, "libx.so.1.2", filepath.Join(dir, "lib", "libx.so.1"))
	link(t, filepath.Join(dir, "lib", "libx.so.1"), filepath.Join(dir, "libx.so"))
	link(t, "lib", filepath.Join(dir, "lib64"))
	im := emptyImage()
	for _, path := range []string{filepath.Join(dir, "libx.so"), filepath.Join(dir, "lib64", "libx.so.1")} {
		if err := im.file(path); err != nil {
			t.Fatal(err)
		}
	}
	im.text("/job/note", "do it")
	below := func(name string) string { return cpio.Normalize(filepath.Join(dir, name)) }
	want := map[string]string{
		below("libx.so"):         "-> " + filepath.Join(dir, "lib", "libx.so.1"),
		below("lib/libx.so.1"):   "-> libx.so.1.2",
		below("lib/libx.so.1.2"): "the library",
		"job/note":               "do it",
	}
	got := unpacked(t, im)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is %q, want %q", name, got[name], text)
		}
		for parent := filepath.Dir(name); parent != "."; parent = filepath.Dir(parent) {
			if got[parent] != "directory" {
				t.Errorf("%s of %s is %q", parent, name, got[parent])
			}
		}
	}
	link(t, "loop", filepath.Join(dir, "loop"))
	if err := im.file(filepath.Join(dir, "loop")); err == nil {
		t.Error("a link to itself was put in")
	}
	if err := im.file(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there was put in")
	}
}

// TestProgramsComeWithTheirLibraries puts this machine's programs into an image: it must contain everything that the
// dynamic linker will look for.
func TestProgramsComeWithTheirLibraries(t *testing.T) {
	path, err := find("ip")
	if err != nil {
		t.Skip(err)
	}
	im := emptyImage()
	if err := im.programs(); err != nil {
		t.Fatal(err)
	}
	if !im.have[cpio.Normalize(inUsr(path))] {
		t.Fatalf("%s is not in it", path)
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	if err != nil || len(libraries) == 0 {
		t.Skipf("%s is linked with nothing: %v", path, err)
	}
	names := map[string]bool{}
	for name := range im.have {
		names[filepath.Base(name)] = true
	}
	for _, library := range libraries {
		if !names[library] {
			t.Errorf("%s, which %s is linked with, is not in it", library, path)
		}
	}
}

func TestWhereFilesLie(t *testing.T) {
	for path, want := range map[string]string{
		"/lib/x86_64-linux-gnu/libc.so.6": "/usr/lib/x86_64-linux-gnu/libc.so.6",
		"/lib64/ld-linux-x86-64.so.2":     "/usr/lib64/ld-linux-x86-64.so.2",
		"/usr/bin/ab":                     "/usr/bin/ab",
		"/libexec/x":                      "/libexec/x",
	} {
		if got := inUsr(path); got != want {
			t.Errorf("%s is at %s, want %s", path, got, want)
		}
	}
}

func TestWantedModules(t *testing.T) {
	for path, want := range map[string]bool{
		"kernel/net/netfilter/ipvs/ip_vs.ko.xz": true,
		"kernel/drivers/net/veth.ko.xz":         true,
		"kernel/lib/libcrc32c.ko.xz":            true,
		"modules.builtin":                       true,
		"kernel/drivers/virtio/virtio_pci.ko":   true,
		"kernel/drivers/char/virtio_console.ko": true,
		"kernel/drivers/char/lp.ko":             false,
		"kernel/drivers/net/ethernet/e1000.ko":  false,
		"kernel/drivers/gpu/drm/drm.ko.xz":      false,
	} {
		if got := wantedModule(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestDependenciesOfAPackage(t *testing.T) {
	output := []byte("linux-image-6.19-amd64\n  PreDepends: linux-base\n  Depends: linux-binary-6.19.4-amd64\n" +
		" |Depends: linux-modules-6.19.4-amd64\n  Depends: linux-modules-6.19.4-amd64\n  Depends: kmod\n")
	want := []string{"linux-binary-6.19.4-amd64", "linux-modules-6.19.4-amd64"}
	if diff := cmp.Diff(want, dependencies(output, "binary|modules")); diff != "" {
		t.Error(diff)
	}
}

func TestKernelsThatAreNotWhole(t *testing.T) {
	make := func() (string, *Kernel) {
		dir := t.TempDir()
		k := &Kernel{Dir: dir, Package: "linux-image-6.12-cloud-amd64",
			Image: filepath.Join(dir, "boot", "vmlinuz-6.12-cloud-amd64")}
		write(t, k.Image, "a kernel")
		write(t, filepath.Join(dir, "modules", "6.12-cloud-amd64", "modules.dep"), "")
		if err := k.mark(); err != nil {
			t.Fatal(err)
		}
		return dir, k
	}
	dir, _ := make()
	got, err := OpenKernel(dir)
	if err != nil || got.Version != "6.12-cloud-amd64" || got.Package != "linux-image-6.12-cloud-amd64" {
		t.Fatalf("a whole one is %+v, %v", got, err)
	}
	for name, corrupt := range map[string]func(k *Kernel) error{
		"changed":       func(k *Kernel) error { return os.WriteFile(k.Image, []byte("another"), 0o644) },
		"not complete":  func(k *Kernel) error { return os.Remove(filepath.Join(k.Dir, markName)) },
		"not indexed":   func(k *Kernel) error { return os.RemoveAll(filepath.Join(k.Dir, modulesBelow)) },
		"without image": func(k *Kernel) error { return os.Remove(k.Image) },
	} {
		dir, k := make()
		if err := corrupt(k); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKernel(dir); err == nil {
			t.Errorf("a kernel that is %s was opened", name)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}
