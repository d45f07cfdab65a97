// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jeoul/jeoul/internal/testenv"
)

// builds is where buildJeoul puts our own binary; the tests' end removes it.
var builds string

func TestMain(m *testing.M) {
	var err error
	if builds, err = os.MkdirTemp("", "jeoul-bench-"); err != nil {
		fmt.Fprintf(os.Stderr, "make a directory for the tests' binary: %v\n", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(builds)
	os.Exit(code)
}

// built builds our own binary once for all tests of the package: linking it takes some six seconds of a core.
var built = sync.OnceValues(func() (string, error) {
	executable := filepath.Join(builds, "jeoul")
	if output, err := exec.Command("go", "build", "-o", executable, "github.com/jeoul/jeoul/cmd/jeoul").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build jeoul: %w: %s", err, output)
	}
	return executable, nil
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
