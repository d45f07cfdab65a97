// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"testing"
	"time"
)

// TestTime: a number with a unit, or without one, up to a year.
func TestTime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0":     0,
		"0s":    0,
		"3":     3 * time.Millisecond,
		"500us": 500 * time.Microsecond,
		"1.5s":  1500 * time.Millisecond,
		"365d":  365 * 24 * time.Hour,
	} {
		if got, err := Time(text, time.Millisecond); err != nil || got != want {
			t.Errorf("%q is %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "s", "-1", "-1s", "366d", "3y", "NaN"} {
		if got, err := Time(text, time.Millisecond); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}
