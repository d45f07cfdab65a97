// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// NoteUnremembered notes the services of a change that may have such flows from now on, before packets find the change.
func (c *Revision) NoteUnremembered(turn func(id uint32) mapmem.Storage, clock uint32) {
	for _, s := range c.services {
		if s.after.Service.Mode != lb.NAT || !s.after.Remembers {
			continue
		}
		entry := &mapmem.ElementsOf[objects.XDPTurn](turn(s.after.ID))[0]
		if !s.before.keepsFlows(s.after) || !s.before.Remembers {
			entry.NoteUnremembered(clock)
		}
		if c.Places.bringsBack(s.after) {
			entry.NoteReturn(clock)
		}
	}
}

// bringsBack reports whether a service has a backend that left lately and is configured again: to its earlier flows it
// is another backend.
func (r *PlaceChange) bringsBack(after *Record) (returns bool) {
	after.endpointsOf(func(key endpointKey, _ natEndpoint) {
		previous, there := r.Places.Previous[key]
		returns = returns || there && !r.now.After(previous.Until)
	})
	return returns
}
