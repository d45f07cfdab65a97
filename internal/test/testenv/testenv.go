// SPDX-License-Identifier: Apache-2.0

// Package testenv checks a test's requirements on the machine that it runs on.
package testenv

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// SlownessVariable has the factor by which this machine is slower than others, such as a machine that QEMU emulates.
// scripts/test-kernels.sh sets it.
const SlownessVariable = "JEOUL_TEST_SLOWNESS"

// Slowed returns the time for this machine of something that may take d on others.
func Slowed(d time.Duration) time.Duration {
	if slowness, err := strconv.Atoi(os.Getenv(SlownessVariable)); err == nil && slowness > 1 {
		return time.Duration(slowness) * d
	}
	return d
}

// WaitLimit limits waits that have no other limit. It does not measure anything: a busy machine may keep the programs
// of a test from running for many seconds, and a balancer itself takes time for some things, such as the minute for
// which it continues to balance after another one has taken its VIPs.
var WaitLimit = Slowed(3 * time.Minute)

// RunVariable names the directory of a run of scripts/swept.sh.
const RunVariable = "JEOUL_TEST_RUN"

// CgroupPrefix returns the prefix of the names of control groups that the tests of this run make. scripts/sweep uses it
// to remove them after an interrupted run.
func CgroupPrefix() string { return CgroupPrefixOf(os.Getenv(RunVariable)) }

// CgroupPrefixOf returns CgroupPrefix for the run with a directory.
func CgroupPrefixOf(dir string) string { return "jeoul-test-" + filepath.Base(dir) + "-" }

// Parallel sets how many tests of a package that call t.Parallel run at once, unless -parallel is given. A TestMain
// calls it where tests wait most of the time. The default is the number of cores.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // fails for no number
	}
}

// Root skips the test unless it runs as root, which namespaces and eBPF need. With JEOUL_TEST_ROOT=1 (set by `make
// test`) a missing right is a failure instead, so that a run that was meant to be complete cannot pass by skipping.
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

// Program returns the path of an installed program, and skips the test if the program is missing. With
// JEOUL_TEST_ROOT=1 that is a failure, as for Root.
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
