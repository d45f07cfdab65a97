// SPDX-License-Identifier: Apache-2.0

package readview

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// eachBackend calls do for each backend of services, with the index of its counters.
func eachBackend(records []*generation.Record, do func(key lb.BackendKey, index uint32)) {
	for _, r := range records {
		for i, b := range r.Service.Backends {
			do(r.Service.BackendKey(b), r.Places[i].Index)
		}
	}
}

// countFlows adds the present flows, and the counters of services. The janitor's numbers may be from slightly before or
// after the view: if an index gets another owner in between, its flows count for the other owner once.
func (p *View) countFlows(c *lb.Counters, records []*generation.Record, sums flowtable.Presence) {
	c.Flows = sums.Flows
	c.Flows.ProvenLimit, c.Flows.UnprovenLimit = uint64(p.Plan.ProvenLimit), uint64(p.Plan.UnprovenLimit)
	c.Flows.Bytes = p.Plan.Proven + p.Plan.Unproven + p.Plan.Returns
	eachBackend(records, func(key lb.BackendKey, index uint32) {
		if int(index) < len(sums.Backends) {
			sum := sums.Backends[index]
			if key.Service.Hairpin {
				sum.Held = 0 // a hairpin's ports are not from the pool
			}
			key = generation.Visible(key)
			count := c.Backends[key]
			count.Active, count.Flows, count.PortsHeld = count.Active+sum.Active, count.Flows+sum.Entries,
				count.PortsHeld+sum.Held
			c.Backends[key] = count
		}
	})
	c.Services = make(map[lb.ServiceKey]lb.ServiceCount, len(records))
	for _, r := range records {
		key := generation.VisibleService(r.Key)
		count := c.Services[key]
		if int(r.ID) < len(sums.Services) {
			sum := sums.Services[r.ID]
			count.Active, count.Flows = count.Active+sum.Active, count.Flows+sum.Entries
			if r.Key.Hairpin {
				count.Hairpins = sum.Active
			}
		}
		if !r.Key.Hairpin {
			count.Transition, count.TableDigest = r.View.Transition(), r.Digest()
		}
		c.Services[key] = count
	}
}
