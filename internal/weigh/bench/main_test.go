// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"

	_ "github.com/jeoul/jeoul/internal/weigh/bench/kind"
)

// builds is the directory for the binary of buildJeoul. The end of the tests removes it.
var builds string

func TestMain(m *testing.M) {
	var err error
	if builds, err = os.MkdirTemp("", "jeoul-bench-"); err != nil {
		fmt.Fprintf(os.Stderr, "make a directory for the tests' binary: %v\n", err)
		os.Exit(1)
	}
	// The tests wait for most of their time: for servers to start, for loads to end, and until silent hosts are
	// noticed.
	testenv.Parallel(4)
	code := m.Run()
	os.RemoveAll(builds)
	os.Exit(code)
}

// benchTarget is the target that runs every subject, load and event; `make test` runs some of each kind.
const benchTarget = "test-bench"

// some returns names of subjects, loads or events; in the run of benchTarget it returns none, which means all.
func some(names ...string) []string {
	if testenv.InTarget(benchTarget) {
		return nil
	}
	return names
}

// begin marks a test that builds a laboratory: it needs root, and belongs to benchTarget as well as to `make test`.
func begin(t *testing.T) {
	t.Helper()
	testenv.Also(t, benchTarget)
	testenv.Root(t)
}

// binaryVariable names the environment variable with the path of our own binary, which `make test` builds before it
// sets the variable.
const binaryVariable = "JEOUL_TEST_BINARY"

// built builds our own binary once for all tests of the package, and the BGP speaker beside it, unless binaryVariable
// names one: linking takes some ten seconds of a core.
var built = sync.OnceValues(func() (string, error) {
	if executable := os.Getenv(binaryVariable); executable != "" {
		return executable, nil
	}
	if output, err := exec.Command("go", "build", "-o", builds+"/", "github.com/jeoul/jeoul/cmd/jeoul",
		"github.com/jeoul/jeoul/cmd/jeoul-bgp").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build jeoul: %w: %s", err, output)
	}
	return filepath.Join(builds, "jeoul"), nil
})

// buildJeoul returns the path of our own binary.
func buildJeoul(t *testing.T) string {
	t.Helper()
	testenv.Program(t, "go")
	executable, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return executable
}
