// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/cpus"
	"github.com/jeoul/jeoul/internal/weigh/bench"
)

// pinnedTest names the environment variable of a test process that may use the last CPU only.
const pinnedTest = "JEOUL_TEST_PINNED"

// TestCPUsAreAllowed: cores for loads are some of those that the process may use, also where these do not begin with 0.
func TestCPUsAreAllowed(t *testing.T) {
	all := cpus.Allowed()
	point := bench.Point{Pinned: true}
	got := []int{bench.FirstCPU(), bench.LastCPU(), point.CPUs(0).Client}
	if only := os.Getenv(pinnedTest); only != "" {
		if slices.ContainsFunc(got, func(cpu int) bool { return strconv.Itoa(cpu) != only }) {
			t.Errorf("loads run on CPUs %v, and only %s is allowed", got, only)
		}
		return
	}
	last := all[len(all)-1]
	if want := []int{all[0], last, all[0]}; !slices.Equal(got, want) {
		t.Errorf("loads run on CPUs %v, want %v", got, want)
	}
	command := exec.Command(os.Args[0], "-test.run=^TestCPUsAreAllowed$")
	command.Env = append(os.Environ(), pinnedTest+"="+strconv.Itoa(last))
	if output, err := onCPU(last, command.CombinedOutput); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// onCPU runs a program from a thread that may use one CPU only, which the program inherits.
func onCPU(cpu int, run func() ([]byte, error)) (output []byte, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with this function
		var set unix.CPUSet
		set.Set(cpu)
		if err = unix.SchedSetaffinity(0, &set); err == nil {
			output, err = run()
		}
	}()
	<-done
	return output, err
}
