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
// the test names with Target; CONTRIBUTING.md lists the targets. TargetVariable has the name of the running target. All
// means every test of the tree.
const (
	TargetVariable = "JEOUL_TEST_TARGET"
	All            = "all"
)

// targeted has the top-level tests that belong to the running target.
var targeted sync.Map

// Target declares that the test belongs to a target of the Makefile, such as "test-matrix", and skips it in every other
// run. It must be the first call of the test, because Root skips tests that do not belong to the running target.
func Target(tb testing.TB, name string) {
	tb.Helper()
	if !InTarget(name) {
		tb.Skipf("runs in `make %s`, and not in `make test`", name)
	}
	targeted.Store(topLevel(tb), true)
}

// Also declares that the test runs in `make test`, and has more cases, by InTarget, in a target of the Makefile. It
// must be the first call of the test, like Target.
func Also(tb testing.TB, name string) {
	if InTarget(name) {
		targeted.Store(topLevel(tb), true)
	}
}

// InTarget reports whether the target is running.
func InTarget(name string) bool {
	running := os.Getenv(TargetVariable)
	return running == name || running == All
}

// skipUntargeted skips a test that does not belong to the running target.
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

// HooksTarget is the target that runs, in every hook, the tests that `make test` runs in one hook.
const HooksTarget = "test-hooks"

// OneOf returns the index of one of n variants of a test, such as the hooks for a program. It depends on the test's
// name, so that every run selects the same variant, and the tests of a package spread evenly over the variants.
func OneOf(tb testing.TB, n int) int {
	sum := fnv.New32a()
	sum.Write([]byte(tb.Name())) // cannot fail
	return int(sum.Sum32() % uint32(n))
}

// Some returns n of a test's cases, or all of them in the run of a target. It is for cases that are expensive and show
// much the same, such as a product of modes, families and schedulers. The cases depend on the test's name, so they are
// the same in every run, and are spread evenly over all.
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
