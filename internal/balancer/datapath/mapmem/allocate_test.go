// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// TestAllocate: where the kernel had no memory at hand, an allocation is tried again after some was reclaimed. A lack
// of memory that lasts is returned in the end, and any other error at once.
func TestAllocate(t *testing.T) {
	before := reclaim
	t.Cleanup(func() { reclaim = before })
	noMemory := fmt.Errorf("update: %w", unix.ENOMEM)
	for name, test := range map[string]struct {
		results  []error
		want     error
		attempts int
	}{
		"works":                  {results: []error{nil}, attempts: 1},
		"no memory for a moment": {results: []error{noMemory, noMemory, nil}, attempts: 3},
		"no memory":              {results: []error{noMemory}, want: unix.ENOMEM, attempts: attempts},
		"no room in the map":     {results: []error{unix.ENOSPC}, want: unix.ENOSPC, attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made, reclaims := 0, 0
				reclaim = func() { reclaims++ }
				err := Allocate(func() error {
					result := test.results[min(made, len(test.results)-1)]
					made++
					return result
				})
				if !errors.Is(err, test.want) || made != test.attempts || reclaims != made-1 {
					t.Errorf("%v after %d attempts and %d times of reclaiming, want %v after %d and %d", err, made,
						reclaims, test.want, test.attempts, test.attempts-1)
				}
			})
		})
	}
}
