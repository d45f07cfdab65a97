// SPDX-License-Identifier: Apache-2.0

package datapath

import "github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"

// putLimits writes the limits of the services and the backends that are new or differ, into what turn and load return
// for a service's id and a backend's index.
func (c *revision) putLimits(turn, load func(number uint32) mapmem.Storage, clock uint32) {
	for _, a := range c.places.arrived {
		forgiveLoad(load(a.of.places[a.at].index))
	}
	for _, s := range c.services {
		limits := turn(s.is.id)
		if !s.was.keepsFlows(s.is) {
			// What had the id before has no flow left.
			for i := range limits {
				limits.Store(uint32(i), 0)
			}
		}
		s.is.putTurn(limits)
		for i := range s.is.service.Backends {
			s.is.putLoad(load(s.is.places[i].index), i)
		}
	}
	c.noteUnremembered(turn, clock)
}
