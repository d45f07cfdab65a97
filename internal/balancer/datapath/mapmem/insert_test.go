// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// TestInsert: where the kernel had no memory at hand, an insertion is tried again after some was reclaimed. A lack of
// memory that lasts is returned in the end, and any other error at once.
func TestInsert(t *testing.T) {
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
		"no memory":              {results: []error{noMemory}, want: unix.ENOMEM, attempts: insertAttempts},
		"no room in the map":     {results: []error{unix.ENOSPC}, want: unix.ENOSPC, attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts, reclaims := 0, 0
				reclaim = func() { reclaims++ }
				err := Insert(func() error {
					result := test.results[min(attempts, len(test.results)-1)]
					attempts++
					return result
				})
				if !errors.Is(err, test.want) || attempts != test.attempts || reclaims != attempts-1 {
					t.Errorf("%v after %d attempts and %d times of reclaiming, want %v after %d and %d", err, attempts,
						reclaims, test.want, test.attempts, test.attempts-1)
				}
			})
		})
	}
}
