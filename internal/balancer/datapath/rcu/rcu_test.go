// SPDX-License-Identifier: Apache-2.0

package rcu

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestWait: with one CPU, on which membarrier does not wait, and where the kernel rejects it, another call waits;
// without any, time has to pass.
func TestWait(t *testing.T) {
	barrier, one, replace := callBarrier, hasOneCPU, replaceElement
	t.Cleanup(func() { callBarrier, hasOneCPU, replaceElement = barrier, one, replace })
	for name, test := range map[string]struct {
		oneCPU           bool
		barrier, replace error
		replaced         int
		waits            time.Duration
	}{
		"several CPUs":                   {},
		"one CPU":                        {oneCPU: true, replaced: 1},
		"nohz_full":                      {barrier: unix.EINVAL, replaced: 1},
		"one CPU, without rights":        {oneCPU: true, replace: unix.EPERM, replaced: 1, waits: fallbackWait},
		"several CPUs, nothing possible": {barrier: unix.ENOSYS, replace: unix.EPERM, replaced: 1, waits: fallbackWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replaced := 0
				hasOneCPU = func() bool { return test.oneCPU }
				callBarrier = func() error { return test.barrier }
				replaceElement = func() error { replaced++; return test.replace }
				began := time.Now()
				Wait()
				if waited := time.Since(began); waited != test.waits || replaced != test.replaced {
					t.Errorf("it waited %v and replaced %d elements, want %v and %d", waited, replaced, test.waits,
						test.replaced)
				}
			})
		})
	}
}

// TestReplaceElement: the kernel has the call that waits with one CPU.
func TestReplaceElement(t *testing.T) {
	testenv.Root(t)
	for range 2 {
		if err := replaceElement(); err != nil {
			t.Error(err)
		}
	}
}
