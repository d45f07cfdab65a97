// SPDX-License-Identifier: Apache-2.0

// Package bpfhost finds the features that eBPF programs need and a kernel lacks: asked, not assumed.
package bpfhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
)

// Lack is something that a kernel lacks, or has otherwise than is tried.
type Lack struct {
	// The missing feature, its consequence, and the remedy; each a sentence without its end.
	What, Means, Remedy string
	// Fatal: no program can be loaded.
	Fatal bool
}

// String returns the feature, its consequence and the remedy in one line.
func (l Lack) String() string { return l.What + ": " + l.Means + "; " + l.Remedy }

// Host is the host whose kernel is examined.
type Host struct {
	// Root is the file system, from "/" on.
	Root fs.FS
	// Arch is the architecture of this program, by Go's name, and PageSize that of the kernel's pages, in bytes.
	Arch     string
	PageSize int
}

// Here is this machine, and this program.
func Here() Host { return Host{os.DirFS("/"), runtime.GOARCH, os.Getpagesize()} }

// machines are the kernel's names of architectures, by Go's.
var machines = map[string][]string{"amd64": {"x86_64"}, "arm64": {"aarch64", "arm64"}}

// triedPages are the sizes of pages, in bytes, with which tests of the eBPF programs have run
// (docs/internals/kernels.md).
var triedPages = []int{4 << 10, 16 << 10}

// Lacks returns the missing features of the kernel, nothing where all are there. A feature that cannot be read is taken
// to be there: the load of the programs tells.
func (h Host) Lacks() []Lack {
	var lacks []Lack
	for _, ask := range []func() *Lack{h.architecture, h.types, h.compiler, h.pages} {
		if lack := ask(); lack != nil {
			lacks = append(lacks, *lack)
		}
	}
	return lacks
}

// architecture compares the kernel with this program, which an emulator may run (binfmt_misc with QEMU): it has no
// eBPF.
func (h Host) architecture() *Lack {
	text, err := fs.ReadFile(h.Root, "proc/sys/kernel/arch") // since Linux 6.1
	kernel := strings.TrimSpace(string(text))
	names, known := machines[h.Arch]
	if err != nil || kernel == "" || !known || slices.Contains(names, kernel) {
		return nil
	}
	return &Lack{What: fmt.Sprintf("this jeoul is built for %s, and the kernel is of %s", h.Arch, kernel),
		Means: "an emulator runs it, which has no eBPF", Remedy: "install the jeoul that is built for " + kernel,
		Fatal: true}
}

// types asks for the kernel's BTF.
func (h Host) types() *Lack {
	if _, err := fs.Stat(h.Root, "sys/kernel"); err != nil {
		return nil // no sysfs: nothing is known
	}
	if _, err := fs.Stat(h.Root, "sys/kernel/btf/vmlinux"); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &Lack{What: "the kernel has no BTF (/sys/kernel/btf/vmlinux)",
		Means:  "programs that read the kernel's own structures cannot be loaded",
		Remedy: "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, as Debian's are", Fatal: true}
}

// compiler asks for the kernel's compiler of eBPF programs. Without it, a kernel interprets them, but not those that
// call kernel functions, or end one program in another.
func (h Host) compiler() *Lack {
	// In other network namespaces than the first, neither is there.
	if _, err := fs.Stat(h.Root, "proc/sys/net/core/netdev_max_backlog"); err != nil {
		return nil
	}
	text, err := fs.ReadFile(h.Root, "proc/sys/net/core/bpf_jit_enable")
	lack := &Lack{What: "the kernel has no JIT compiler for eBPF",
		Means:  "it interprets programs, several times slower, and refuses some",
		Remedy: "boot a kernel with CONFIG_BPF_JIT=y"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return lack
	case err != nil || strings.TrimSpace(string(text)) != "0":
		return nil
	}
	lack.What = "the kernel's JIT compiler for eBPF is off"
	lack.Remedy = "run sysctl -w net.core.bpf_jit_enable=1, then start jeoul again"
	return lack
}

// pages asks for the size of pages.
func (h Host) pages() *Lack {
	if slices.Contains(triedPages, h.PageSize) {
		return nil
	}
	return &Lack{What: fmt.Sprintf("the kernel has pages of %d KiB", h.PageSize>>10),
		Means:  "nothing of jeoul has been tried on such a kernel",
		Remedy: "boot a kernel with pages of 4 or 16 KiB"}
}
