// SPDX-License-Identifier: Apache-2.0

package paced

import "testing"

// TestSearch finds a ceiling with rates that are each tried once.
func TestSearch(t *testing.T) {
	for _, tc := range []struct {
		search  Search
		ceiling int
		want    []int
	}{
		{Search{From: 100, To: 10_000, Within: 10}, 700, []int{100, 200, 400, 800, 600, 700, 750}},
		{Search{From: 100, To: 300}, 1000, []int{100, 200, 300}},
		{Search{From: 100, To: 300}, 50, []int{100}},
		{Search{From: 1, To: 4, Within: 1}, 2, []int{1, 2, 4, 3}},
	} {
		held, failed := 0, 0
		var tried []int
		for rate := tc.search.next(held, failed); rate > 0; rate = tc.search.next(held, failed) {
			tried = append(tried, rate)
			if len(tried) > 50 {
				t.Fatalf("%+v has no end: %v", tc.search, tried)
			}
			if rate <= tc.ceiling {
				held = rate
			} else {
				failed = rate
			}
		}
		if len(tried) != len(tc.want) {
			t.Errorf("%+v with a ceiling of %d: tried %v, want %v", tc.search, tc.ceiling, tried, tc.want)
			continue
		}
		for i := range tried {
			if tried[i] != tc.want[i] {
				t.Errorf("%+v with a ceiling of %d: tried %v, want %v", tc.search, tc.ceiling, tried, tc.want)
				break
			}
		}
	}
}
