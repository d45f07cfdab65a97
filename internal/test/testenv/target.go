// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"hash/fnv"
	"os"
	"strings"
	"sync"
	"testing"
)

// `make test` runs one case of each kind and must stay short. A longer test belongs to a target of the Makefile that
// the test names with Target; CONTRIBUTING.md lists the targets. TargetVariable holds the name of the target that runs;
// All stands for every test of the tree.
const (
	TargetVariable = "JEOUL_TEST_TARGET"
	All            = "all"
)

// targeted holds the top-level tests that belong to the target that runs.
var targeted sync.Map

// Target says that the test belongs to a target of the Makefile, such as "test-matrix", and skips it in
// every other run. It is the first call of the test: Root skips, in the run of a target, the tests that
// do not belong to it.
func Target(tb testing.TB, name string) {
	tb.Helper()
	if !InTarget(name) {
		tb.Skipf("runs in `make %s`, and not in `make test`", name)
	}
	targeted.Store(topLevel(tb), true)
}

// Also says that the test runs in `make test`, and has more cases, by InTarget, in a target of the Makefile.
// It is the first call of the test, as Target is.
func Also(tb testing.TB, name string) {
	if InTarget(name) {
		targeted.Store(topLevel(tb), true)
	}
}

// InTarget reports whether the target of that name runs.
func InTarget(name string) bool {
	running := os.Getenv(TargetVariable)
	return running == name || running == All
}

// skipUntargeted skips a test in the run of a target that it does not belong to.
func skipUntargeted(tb testing.TB) {
	tb.Helper()
	running := os.Getenv(TargetVariable)
	if running == "" || running == All {
		return
	}
	if _, belongs := targeted.Load(topLevel(tb)); !belongs {
		tb.Skipf("runs in `make test`, and not in `make %s`", running)
	}
}

func topLevel(tb testing.TB) string {
	name, _, _ := strings.Cut(tb.Name(), "/")
	return name
}

// HooksTarget is the target that runs in every hook the tests that `make test` runs in one.
const HooksTarget = "test-hooks"

// OneOf returns the index of one of n variants of a test, such as the hooks that a program runs in. It
// follows from the test's name, so that every run takes the same one, and the tests of a package
// share the variants evenly.
func OneOf(tb testing.TB, n int) int {
	sum := fnv.New32a()
	sum.Write([]byte(tb.Name())) // cannot fail
	return int(sum.Sum32() % uint32(n))
}

// Some returns some of a test's cases, n of them, and all of them in the run of a target: where each case costs
// much and shows much the same, as of a product of modes, families and schedulers. The cases are the same in every
// run: they follow from the test's name, evenly spread over all.
func Some[T any](tb testing.TB, target string, n int, all []T) []T {
	tb.Helper()
	if InTarget(target) || n >= len(all) {
		return all
	}
	var some []T
	for i := range n {
		some = append(some, all[(OneOf(tb, len(all))+i*len(all)/n)%len(all)])
	}
	return some
}
