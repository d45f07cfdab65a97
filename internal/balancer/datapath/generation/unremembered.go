// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// NoteUnremembered records, before the change is published, which services may have flows without an entry: see
// flowtable/unremembered.go.
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

// bringsBack reports whether a service has a backend that was removed recently and is configured again: its earlier
// flows belong to another owner of an index.
func (r *PlaceChange) bringsBack(after *Record) (returns bool) {
	after.endpointsOf(func(key endpointKey, _ natEndpoint) {
		previous, found := r.Places.Previous[key]
		returns = returns || found && !r.now.After(previous.Until)
	})
	return returns
}
