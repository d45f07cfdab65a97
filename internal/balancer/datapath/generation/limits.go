// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// PutLimits writes the limits of new and changed services and their backends, into the memory that turn and load return
// for a service's id and a backend's index. The clock is that of struct head, and now the time of the monotonic clock.
func (c *Revision) PutLimits(turn, load func(number uint32) mapmem.Storage, clock uint32, now time.Duration) {
	for _, a := range c.Places.added {
		clearPenalty(load(a.record.Places[a.at].Index))
	}
	for _, s := range c.services {
		limits := turn(s.after.ID)
		if !s.before.keepsFlows(s.after) {
			// The id's previous service has no flow left.
			for i := range limits {
				limits.Store(uint32(i), 0)
			}
		}
		s.after.PutTurn(limits, now)
		if s.after.Remembers && s.before.keepsFlows(s.after) && !s.before.Remembers {
			to := &mapmem.ElementsOf[objects.XDPTurn](limits)[0]
			to.Tracked = uint8(objects.XDPTurnTrackedTURN_TRACKED_LATER)
		}
		for i := range s.after.Service.Backends {
			s.after.PutLoad(load(s.after.Places[i].Index), i)
		}
	}
	c.NoteUnremembered(turn, clock)
}
