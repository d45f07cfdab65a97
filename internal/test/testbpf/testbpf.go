// SPDX-License-Identifier: Apache-2.0

// Package testbpf compiles eBPF programs of tests as an outside developer would, without this tree's build.
package testbpf

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// Compile compiles a source with clang, and returns the path of the object file, which is removed after the test. It
// skips the test if there is no clang.
func Compile(tb testing.TB, source string) string {
	tb.Helper()
	clang := testenv.Program(tb, "clang")
	file := filepath.Join(tb.TempDir(), "object.o")
	// The kernel's headers for the architecture (asm/), where Debian installs them.
	if output, err := exec.CommandContext(tb.Context(), clang, "-g", "-O2", "-target", "bpf",
		"-idirafter", "/usr/include/x86_64-linux-gnu", "-idirafter", "/usr/include/aarch64-linux-gnu",
		"-c", source, "-o", file).CombinedOutput(); err != nil {
		tb.Fatalf("compiling %s: %v: %s", source, err, output)
	}
	return file
}
