// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"slices"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, span := range []float64{1e-9, 0.7, 1, 3, 59, 61, 12000, 4e9} {
		if n := len((ticks{}).on(0, span)); n < 3 || n > 8 {
			t.Errorf("%d ticks from 0 to %v", n, span)
		}
	}
	for _, high := range []float64{2, 20, 1000, 1e9, 1e100} {
		if n := len((ticks{log: true, room: 300}).on(1, high)); n < 2 || n > 12 {
			t.Errorf("%d ticks from 1 to %v", n, high)
		}
	}
}

// TestLegendWraps has more lines than fit one row, at every width.
func TestLegendWraps(t *testing.T) {
	c := &Chart{Kind: Lines}
	for i := range 12 {
		c.Lines = append(c.Lines, Series{Name: fmt.Sprintf("jeoul-l2dsr-xdp · scheduler %d", i)})
	}
	last := 0.0
	for _, width := range []float64{2000, 800, 300} {
		places, height := c.legendPlaces(width)
		if len(places) != 12 || float64(height) <= last {
			t.Errorf("at %g pixels the legend is %g high, at a greater width it was %g", width, float64(height), last)
		}
		if slices.ContainsFunc(places[1:], func(p legendPlace) bool { return p == places[0] }) {
			t.Errorf("at %g pixels entries are on top of each other", width)
		}
		last = float64(height)
	}
}
