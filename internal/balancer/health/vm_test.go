// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/vm"
)

// startsVM reports whether this program is the first process of a virtual machine. Then it makes that ready, runs as
// the test in it, and switches it off.
func startsVM() bool {
	if os.Getpid() != 1 {
		return false
	}
	for name, value := range map[string]string{"JEOUL_TEST_ROOT": "1", clockIsOurs: "1", measureInto: "/tmp",
		fewEndpoints: "100"} {
		os.Setenv(name, value)
	}
	err := vm.Init()
	if errors.Is(err, vm.ErrNotInit) {
		return false
	}
	if err != nil {
		fmt.Println(err)
	}
	vm.PowerOff()
	return true
}

// inVM runs a test of this package in a virtual machine, and returns its output.
func inVM(t *testing.T, test string) string {
	t.Helper()
	cache, err := vm.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := vm.Fetch(t.Context(), cache, vm.DefaultRelease, vm.Own(), func(what string) { t.Log(what) })
	if err != nil {
		t.Fatal(err)
	}
	// Linked statically, as the machine needs it.
	program := filepath.Join(t.TempDir(), "health.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	accelerator, _ := vm.Choose(t.Context(), kernel)
	passed, printed := false, strings.Builder{}
	end, err := vm.Run(t.Context(), vm.Machine{
		Kernel: kernel, Accelerator: accelerator, Executable: program, Limit: 9 * time.Minute,
		Job: vm.Job{Args: []string{"-test.run=^" + test + "$", "-test.v"}, Result: "/tmp/nothing"},
		Line: func(line string) {
			t.Log(line)
			printed.WriteString(line + "\n")
			passed = passed || strings.HasPrefix(line, "--- PASS: "+test+" ")
		},
		Hello:  func(vm.Hello) {},
		Result: func([]byte) error { return nil },
	})
	if err != nil || end.Status != 0 || !passed {
		t.Errorf("it passed: %t; the machine ended with %+v, %v", passed, end, err)
	}
	return printed.String()
}
