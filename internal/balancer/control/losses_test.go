// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestLossesDoNotHoldUpAStatus: a status gets the drivers' counters as they are now; while the kernel does not give
// them out, it gets the last ones, and one reading at a time waits for the kernel.
func TestLossesDoNotHoldUpAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r lossReader
		read := func(get func() []uint64, want []uint64, within time.Duration) {
			t.Helper()
			began := time.Now()
			if got := r.read(get); !slices.Equal(got, want) {
				t.Errorf("read %d, want %d", got, want)
			}
			if took := time.Since(began); took > within {
				t.Errorf("it took %v, want at most %v", took, within)
			}
		}
		now := func(n uint64) func() []uint64 { return func() []uint64 { return []uint64{n} } }
		read(now(1), []uint64{1}, 0)
		read(now(2), []uint64{2}, 0)
		held := make(chan struct{})
		read(func() []uint64 { <-held; return []uint64{3} }, []uint64{2}, lossWait)
		read(func() []uint64 { t.Error("two readings at once"); return nil }, []uint64{2}, lossWait)
		close(held)
		synctest.Wait()
		read(now(4), []uint64{4}, 0)
	})
}
