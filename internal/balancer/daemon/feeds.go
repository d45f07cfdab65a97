// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// withFeeds wraps a source of statuses: it adds the configuration sources that programs keep, and a line for each that
// is old or in trouble.
func (b *balancer) withFeeds(status func() (ops.Status, error)) func() (ops.Status, error) {
	return func() (ops.Status, error) {
		s, err := status()
		if err != nil {
			return s, err
		}
		now := time.Now()
		s.Feeds = b.sources.Feeds(now)
		s.NameObjects()
		s.Problems = s.Problems[:len(s.Problems):len(s.Problems)] // others read the same list
		for i := range s.Feeds {
			s.Problems = append(s.Problems, s.Feeds[i].Lines(now)...)
		}
		return s, nil
	}
}
