// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// withTimestamps wraps a source of statuses: it adds the time of the status, and converts all times in it to the clock
// as it is set then. wall has followed that clock since the first of these times.
func withTimestamps(wall *clock.WallClock, status func() (ops.Status, error),
	read func() clock.Reading) func() (ops.Status, error) {
	return func() (ops.Status, error) {
		s, err := status()
		if err != nil {
			return s, err
		}
		now := read()
		if of := wall.Of(now); of != nil {
			s = clock.Map(s, of)
		}
		s.At = now.Wall
		return s, nil
	}
}
