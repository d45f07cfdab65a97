// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestMemlock runs with a limit of no locked memory, as services may have: since Linux 5.11 the kernel charges maps to
// the memory control group, and no more to that limit.
func TestMemlock(t *testing.T) {
	testenv.Root(t)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was); err != nil {
			t.Error(err)
		}
	})
	testenv.In(t, newNICs(t), func() error {
		k := newRestartRig(t)
		k.hook, k.programs = lb.HookTC, passProgram
		first, err := k.openWith(testState())
		if err != nil {
			return err
		}
		again, err := k.next(first)
		if err != nil {
			return err
		}
		defer again.Close()
		if err := again.Apply(withSwappedService(testState(), 1)); err != nil {
			return err
		}
		var is unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &is); err != nil || is.Cur != 0 {
			t.Errorf("the limit is %d, and not what it was set to: %v", is.Cur, err)
		}
		return expectRunning("veth0", again.Program())
	})
}
