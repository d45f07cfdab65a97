// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: while changes do not cease, pushes take a third of the time, and none waits for longer than the limit; a
// change after a pause is pushed soon, however long the push before took.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct{ push, pause, collecting time.Duration }{
		"quick pushes":           {push: 5 * time.Millisecond, collecting: leastCollecting},
		"pushes that take time":  {push: 100 * time.Millisecond, collecting: 200 * time.Millisecond},
		"slow pushes":            {push: 7 * time.Second, collecting: mostCollecting},
		"a change after a while": {push: 100 * time.Millisecond, pause: time.Second, collecting: leastCollecting},
		"in the middle of it": {push: 100 * time.Millisecond, pause: 80 * time.Millisecond,
			collecting: 120 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p pace
				if got := p.collecting(time.Now()); got != leastCollecting {
					t.Errorf("before the first push, changes are collected for %s, want %s", got, leastCollecting)
				}
				p.measure(func() { time.Sleep(c.push) })
				time.Sleep(c.pause)
				if got := p.collecting(time.Now()); got != c.collecting {
					t.Errorf("changes are collected for %s, want %s", got, c.collecting)
				}
			})
		})
	}
}
