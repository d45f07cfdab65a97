// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"
)

// TestSlowShare: ten steps from a twentieth to all of it, and on average a line.
func TestSlowShare(t *testing.T) {
	const d = 10 * time.Second
	sum := 0
	for at, want := range []uint16{5, 15, 25, 35, 45, 55, 65, 75, 85, 95} {
		for _, within := range []time.Duration{0, time.Second - 1} {
			share, next := slowShare(time.Duration(at)*time.Second+within, d)
			if share != want || next != time.Second-within {
				t.Errorf("%d s and %s: %d%%, the next in %s; want %d%%", at, within, share, next, want)
			}
		}
		sum += int(want)
	}
	if share, next := slowShare(d, d); share != 100 || next != 0 || sum != 500 {
		t.Errorf("at the end: %d%%, the next in %s; on average %d%%", share, next, sum/10)
	}
	if share, _ := slowShare(-time.Hour, d); share != 5 { // the clock was set back
		t.Errorf("before it began: %d%%", share)
	}
}
