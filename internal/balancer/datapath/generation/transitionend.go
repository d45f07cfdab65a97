// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"time"
)

// EndTransitions returns the change that ends transitions whose time is over, nil where there is none.
func (r *Register) EndTransitions(now time.Time, flowsOf map[uint32]uint64) *Revision {
	c := r.Unchanged(now)
	c.Records = nil
	for i, before := range r.Records {
		if !before.View.InTransition() {
			continue
		}
		after, changed := before.View.AfterRound(now, before.Remembers, flowsOf[before.ID])
		if !changed {
			continue
		}
		if c.Records == nil {
			c.Records = append(c.Records, r.Records...)
		}
		next := *before
		next.View = after
		c.Records[i] = &next
		c.services = append(c.services, serviceChange{before, &next})
	}
	if c.services == nil {
		return nil
	}
	return c
}
