// SPDX-License-Identifier: Apache-2.0

// Package bpfhost probes the kernel for the features that eBPF programs need, and returns those that it lacks.
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

// MissingFeature is a feature that a kernel lacks, or has in an untested form.
type MissingFeature struct {
	// The missing feature, its consequence, and the remedy; each a sentence without its end.
	Feature, Consequence, Remedy string
	// Fatal: no program can be loaded.
	Fatal bool
}

// String returns the feature, its consequence and the remedy in one line.
func (l MissingFeature) String() string { return l.Feature + ": " + l.Consequence + "; " + l.Remedy }

// Host is the host whose kernel is examined.
type Host struct {
	// Root is the file system, from "/" on.
	Root fs.FS
	// Arch is the architecture of this program, by Go's name, and PageSize that of the kernel's pages, in bytes.
	Arch     string
	PageSize int
}

// Local returns the host of this machine and this program.
func Local() Host { return Host{os.DirFS("/"), runtime.GOARCH, os.Getpagesize()} }

// machines are the kernel's names of architectures, by Go's.
var machines = map[string][]string{"amd64": {"x86_64"}, "arm64": {"aarch64", "arm64"}}

// testedPageSizes are the sizes of pages, in bytes, with which tests of the eBPF programs have run
// (docs/internals/kernels.md).
var testedPageSizes = []int{4 << 10, 16 << 10}

// MissingFeatures returns the missing features of the kernel. A feature that cannot be read counts as present: loading
// the programs fails otherwise.
func (h Host) MissingFeatures() []MissingFeature {
	var features []MissingFeature
	for _, check := range []func() *MissingFeature{h.checkArchitecture, h.checkBTF, h.checkJIT, h.checkPageSize} {
		if missing := check(); missing != nil {
			features = append(features, *missing)
		}
	}
	return features
}

// checkArchitecture compares the kernel with this program, which an emulator may run (binfmt_misc with QEMU): it has no
// eBPF.
func (h Host) checkArchitecture() *MissingFeature {
	text, err := fs.ReadFile(h.Root, "proc/sys/kernel/arch") // since Linux 6.1
	kernel := strings.TrimSpace(string(text))
	names, known := machines[h.Arch]
	if err != nil || kernel == "" || !known || slices.Contains(names, kernel) {
		return nil
	}
	return &MissingFeature{Feature: fmt.Sprintf("this jeoul is built for %s, and the kernel is of %s", h.Arch, kernel),
		Consequence: "an emulator runs it, which has no eBPF", Remedy: "install the jeoul that is built for " + kernel,
		Fatal: true}
}

// checkBTF checks the kernel's BTF.
func (h Host) checkBTF() *MissingFeature {
	if _, err := fs.Stat(h.Root, "sys/kernel"); err != nil {
		return nil // no sysfs: nothing is known
	}
	if _, err := fs.Stat(h.Root, "sys/kernel/btf/vmlinux"); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &MissingFeature{Feature: "the kernel has no BTF (/sys/kernel/btf/vmlinux)",
		Consequence: "programs that read the kernel's own structures cannot be loaded",
		Remedy:      "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, as Debian's are", Fatal: true}
}

// checkJIT checks the kernel's JIT compiler of eBPF programs. Without it, a kernel interprets them, but not those
// that call kernel functions, or end one program in another.
func (h Host) checkJIT() *MissingFeature {
	// Only the initial network namespace has either file.
	if _, err := fs.Stat(h.Root, "proc/sys/net/core/netdev_max_backlog"); err != nil {
		return nil
	}
	text, err := fs.ReadFile(h.Root, "proc/sys/net/core/bpf_jit_enable")
	missing := &MissingFeature{Feature: "the kernel has no JIT compiler for eBPF",
		Consequence: "it interprets programs, several times slower, and refuses some",
		Remedy:      "boot a kernel with CONFIG_BPF_JIT=y"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing
	case err != nil || strings.TrimSpace(string(text)) != "0":
		return nil
	}
	missing.Feature = "the kernel's JIT compiler for eBPF is off"
	missing.Remedy = "run sysctl -w net.core.bpf_jit_enable=1, then start jeoul again"
	return missing
}

// checkPageSize checks the size of pages.
func (h Host) checkPageSize() *MissingFeature {
	if slices.Contains(testedPageSizes, h.PageSize) {
		return nil
	}
	return &MissingFeature{Feature: fmt.Sprintf("the kernel has pages of %d KiB", h.PageSize>>10),
		Consequence: "nothing of jeoul has been tried on such a kernel",
		Remedy:      "boot a kernel with pages of 4 or 16 KiB"}
}
