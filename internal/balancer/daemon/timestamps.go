// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// withTimestamps wraps a source of statuses: it adds the time of the status, and converts all times in it to the clock
// as it is set then.
func withTimestamps(status func() (ops.Status, error), read func() clock.Reading) func() (ops.Status, error) {
	present := clock.NewWallClock(read())
	return func() (ops.Status, error) {
		s, err := status()
		if err != nil {
			return s, err
		}
		now := read()
		if of := present.Of(now); of != nil {
			s = clock.Map(s, of)
		}
		s.At = now.Wall
		return s, nil
	}
}
