// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"maps"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
)

// commitGroups updates the groups after services were added and removed.
func (p *Places) commitGroups(c *Revision) {
	groups := maps.Clone(p.Groups)
	for name, id := range c.Places.newGroups {
		groups[name] = group{ID: id}
	}
	p.groupIDs += uint32(len(c.Places.newGroups))
	count := func(r *Record, n int) {
		if name := r.Service.Persistence.Group; name != "" {
			g := groups[name]
			g.Members += n
			if n > 0 {
				g.timeout = flowtable.Milliseconds(r.Service.Persistence.Timeout)
			}
			groups[name] = g
		}
	}
	for _, s := range c.services {
		count(s.after, 1)
		if s.before != nil {
			count(s.before, -1)
		}
	}
	for _, before := range c.removed {
		count(before, -1)
	}
	maps.DeleteFunc(groups, func(_ string, g group) bool { return g.Members == 0 })
	p.Groups = groups
}

// Commit records that the change was made.
func (r *Register) Commit(c *Revision) {
	r.Places.pool = c.Numbers()
	c.Places.commit()
	r.Places.commitGroups(c)
	r.noteFlows(c)
	for _, before := range c.removed {
		delete(r.ByKey, before.Key)
	}
	for _, s := range c.services {
		r.ByKey[s.after.Key] = s.after
	}
	r.State, r.Records = c.State, c.Records
}

// noteFlows updates the janitor's view of backends and services.
func (r *Register) noteFlows(c *Revision) {
	p := r.Places
	r.FlowBackends = append(r.FlowBackends, make([]flowtable.Backend, len(p.generations)-len(r.FlowBackends))...)
	r.FlowServices = append(r.FlowServices, make([]flowtable.Service, int(p.IDs)-len(r.FlowServices))...)
	for _, d := range c.Places.removed {
		r.FlowBackends[d.Index].Generation = 0
	}
	for _, a := range c.Places.added {
		place := a.record.Places[a.at]
		r.FlowBackends[place.Index] = flowtable.Backend{Generation: place.Generation, Service: a.record.ID}
	}
	for _, before := range c.removed {
		r.FlowServices[before.ID].Present = false
	}
	for _, s := range c.services {
		if s.before != nil && s.before.ID != s.after.ID {
			r.FlowServices[s.before.ID].Present = false
		}
		r.FlowServices[s.after.ID] = s.after.flows()
		for i, place := range s.after.Places {
			r.FlowBackends[place.Index].Service = s.after.ID
			r.FlowBackends[place.Index].Weight = s.after.weight(i)
		}
	}
}
