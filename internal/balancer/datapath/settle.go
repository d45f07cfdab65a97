// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"time"
)

// endTransitions returns the change that ends transitions, nil where there is nothing to do.
func (r *register) endTransitions(now time.Time, flowsOf map[uint32]uint64) *revision {
	c := r.unchanged(now)
	c.records = nil
	for i, was := range r.records {
		if !was.view.InTransition() {
			continue
		}
		after, changed := was.view.Settled(now, was.remembers, flowsOf[was.id])
		if !changed {
			continue
		}
		if c.records == nil {
			c.records = append(c.records, r.records...)
		}
		is := *was
		is.view = after
		c.records[i] = &is
		c.services = append(c.services, served{was, &is})
	}
	if c.services == nil {
		return nil
	}
	return c
}
