// SPDX-License-Identifier: Apache-2.0

// Package testenv says what a test needs from the machine it runs on.
package testenv

import (
	"os"
	"os/exec"
	"testing"
)

// Root skips the test unless it runs as root: namespaces and eBPF need it.
// With JEOUL_TEST_ROOT=1 (set by `make test`) a missing right is a failure
// instead, so that a run that was meant to be complete cannot pass by skipping.
func Root(tb testing.TB) {
	tb.Helper()
	skipUntargeted(tb)
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("JEOUL_TEST_ROOT") != "" {
		tb.Fatal("this test needs root and JEOUL_TEST_ROOT is set: run `make test`, which uses sudo")
	}
	tb.Skip("needs root (namespaces, eBPF): run `make test`")
}

// Program returns the path of an installed program, and skips the test if it
// is missing; with JEOUL_TEST_ROOT=1 that is a failure, as for Root.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("JEOUL_TEST_ROOT") != "" {
		tb.Fatalf("%s is not installed: run `make deps`", name)
	}
	tb.Skipf("%s is not installed: run `make deps`", name)
	return ""
}
