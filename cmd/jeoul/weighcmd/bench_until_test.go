// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"testing"
)

// TestUntil: a margin is in per cent, with or without the sign, and bounds the repeats.
func TestUntil(t *testing.T) {
	var c benchRunCmd
	if err := c.Until.UnmarshalText([]byte("5 %")); err != nil || c.Until != 0.05 {
		t.Fatalf("%v, %v", c.Until, err)
	}
	if repeats, enough := c.until(); repeats != maxUntilRepeats || enough == nil {
		t.Errorf("%d repeats at most, %v", repeats, enough != nil)
	}
	c.Until, c.Repeats = 0, 3
	if repeats, enough := c.until(); repeats != 3 || enough != nil {
		t.Errorf("%d repeats without --until, %v", repeats, enough != nil)
	}
}
