// SPDX-License-Identifier: Apache-2.0

package readview

import (
	"testing"
	"time"
)

// TestUsedWithin: a neighbour counts as used for two seconds only, wherever the clock is, and however long ago the last
// reply was.
func TestUsedWithin(t *testing.T) {
	const day = 24 * time.Hour
	for _, now := range []uint32{100, 1 << 31, 1<<32 - 1} {
		for age, want := range map[time.Duration]bool{0: true, 200 * time.Millisecond: true, 2 * time.Second: true,
			3 * time.Second: false, time.Hour: false, 24 * day: false, 25 * day: false, 49 * day: false} {
			if got := usedWithin(now, now-uint32(age.Milliseconds()), 2*time.Second); got != want {
				t.Errorf("at %d, %v after the last reply: %t, want %t", now, age, got, want)
			}
		}
	}
}
