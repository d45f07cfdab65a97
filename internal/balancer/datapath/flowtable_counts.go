// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// eachBackend calls do for each backend, with the index of its counters.
func (p *picture) eachBackend(do func(key lb.BackendKey, index uint32)) {
	for _, r := range p.records {
		for i, b := range r.service.Backends {
			do(r.service.BackendKey(b), r.places[i].index)
		}
	}
}

// countFlows adds what is remembered now. What was met may be that of the moment before or
// after the picture: where an index changes hands in between, its flows are those of the other
// owner, once.
func (p *picture) countFlows(c *lb.Counters, met flowtable.Presence) {
	c.Flows = met.Flows
	c.Flows.ProvenLimit, c.Flows.UnprovenLimit = uint64(p.plan.ProvenLimit), uint64(p.plan.UnprovenLimit)
	c.Flows.Bytes = p.plan.Proven + p.plan.Unproven + p.plan.Returns
	p.eachBackend(func(key lb.BackendKey, index uint32) {
		if int(index) < len(met.Backends) {
			has := met.Backends[index]
			if key.Service.Hairpin {
				has.Held = 0 // of ports that are not the pool's
			}
			key = visible(key)
			count := c.Backends[key]
			count.Active, count.Flows, count.PortsHeld = count.Active+has.Active, count.Flows+has.Entries,
				count.PortsHeld+has.Held
			c.Backends[key] = count
		}
	})
	c.Services = make(map[lb.ServiceKey]lb.ServiceCount, len(p.records))
	for _, r := range p.records {
		key := visibleService(r.key)
		count := c.Services[key]
		if int(r.id) < len(met.Services) {
			has := met.Services[r.id]
			count.Active, count.Flows = count.Active+has.Active, count.Flows+has.Entries
			if r.key.Hairpin {
				count.Hairpins = has.Active
			}
		}
		if !r.key.Hairpin {
			count.Transition, count.TableDigest = r.view.Transition(), r.digest()
		}
		c.Services[key] = count
	}
}
