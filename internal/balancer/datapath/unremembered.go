// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// noteUnremembered notes for what services of a change there may be such flows from now on:
// before packets find the change.
func (c *revision) noteUnremembered(turn func(id uint32) mapmem.Storage, clock uint32) {
	for _, s := range c.services {
		if s.is.service.Mode != lb.NAT || !s.is.remembers {
			continue
		}
		entry := &mapmem.ElementsOf[objects.XDPTurn](turn(s.is.id))[0]
		if !s.was.keepsFlows(s.is) || !s.was.remembers {
			entry.NoteUnremembered(clock)
		}
		if c.places.returns(s.is) {
			entry.NoteCameBack(clock)
		}
	}
}

// returns says whether a service has a backend that left of late and is there again: it is
// another to the flows that it had.
func (r *placeChange) returns(is *record) (returns bool) {
	is.endpointsOf(func(key endpointKey, _ natEndpoint) {
		previous, there := r.places.previous[key]
		returns = returns || there && !r.now.After(previous.until)
	})
	return returns
}
