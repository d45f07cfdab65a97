// SPDX-License-Identifier: Apache-2.0

package loglines

import (
	"fmt"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/events"
)

// TestBound: an entry beyond Most is an event all the same, but no line, and is counted at the end.
func TestBound(t *testing.T) {
	t.Parallel()
	var last string
	logged, unlogged := 0, 0
	lines := New(func(text string, attributes ...any) {
		if last = text; len(attributes) == 0 {
			return
		}
		if fmt.Sprint(attributes[0]) == fmt.Sprint((events.About{Unlogged: true}).Attr()) {
			unlogged++
		} else {
			logged++
		}
	})
	for n := range MaxLines + 3 {
		lines.Logf(events.About{}, "line %d", n)
	}
	lines.Flush("%d more")
	if logged != MaxLines || unlogged != 3 || last != "3 more" {
		t.Errorf("%d lines, %d events without one, and at the end %q", logged, unlogged, last)
	}
}
