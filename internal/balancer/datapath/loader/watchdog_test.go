// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// TestStartTimer: an allocation that the kernel gave up without need is tried again, any other error is returned at
// once, and a lack of memory that lasts is returned in the end.
func TestStartTimer(t *testing.T) {
	wrapped := fmt.Errorf("run the program: %w", unix.ENOMEM)
	for name, c := range map[string]struct {
		results  []uint32
		err      error
		want     error
		attempts int
	}{
		"works":                    {results: []uint32{0}, attempts: 1},
		"no memory for a moment":   {results: []uint32{uint32(unix.ENOMEM), uint32(unix.ENOMEM), 0}, attempts: 3},
		"no memory":                {results: []uint32{uint32(unix.ENOMEM)}, want: unix.ENOMEM, attempts: 10},
		"no memory to run it with": {results: []uint32{0}, err: wrapped, want: unix.ENOMEM, attempts: 10},
		"another error":            {results: []uint32{uint32(unix.EPERM)}, want: unix.EPERM, attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				err := startTimer(func(frame []byte) (uint32, []byte, error) {
					if len(frame) < 14 {
						t.Errorf("a frame of %d bytes, which the kernel refuses", len(frame))
					}
					result := c.results[min(attempts, len(c.results)-1)]
					attempts++
					return result, nil, c.err
				})
				if !errors.Is(err, c.want) || attempts != c.attempts {
					t.Errorf("%v after %d attempts, want %v after %d", err, attempts, c.want, c.attempts)
				}
			})
		})
	}
}
