// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"maps"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
)

// commitGroups takes note of the services that have come and gone.
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
		count(s.is, 1)
		if s.was != nil {
			count(s.was, -1)
		}
	}
	for _, was := range c.left {
		count(was, -1)
	}
	maps.DeleteFunc(groups, func(_ string, g group) bool { return g.Members == 0 })
	p.Groups = groups
}

// Commit takes note that the change was made.
func (r *Register) Commit(c *Revision) {
	r.Places.pool = c.Numbers()
	c.Places.commit()
	r.Places.commitGroups(c)
	r.noteFlows(c)
	for _, was := range c.left {
		delete(r.ByKey, was.Key)
	}
	for _, s := range c.services {
		r.ByKey[s.is.Key] = s.is
	}
	r.State, r.Records = c.State, c.Records
}

// noteFlows updates the janitor's view of backends and services.
func (r *Register) noteFlows(c *Revision) {
	p := r.Places
	r.FlowBackends = append(r.FlowBackends, make([]flowtable.Backend, len(p.generations)-len(r.FlowBackends))...)
	r.FlowServices = append(r.FlowServices, make([]flowtable.Service, int(p.IDs)-len(r.FlowServices))...)
	for _, d := range c.Places.left {
		r.FlowBackends[d.Index].Generation = 0
	}
	for _, a := range c.Places.arrived {
		place := a.of.Places[a.at]
		r.FlowBackends[place.Index] = flowtable.Backend{Generation: place.Generation, Service: a.of.ID}
	}
	for _, was := range c.left {
		r.FlowServices[was.ID].Present = false
	}
	for _, s := range c.services {
		if s.was != nil && s.was.ID != s.is.ID {
			r.FlowServices[s.was.ID].Present = false
		}
		r.FlowServices[s.is.ID] = s.is.flows()
		for i, place := range s.is.Places {
			r.FlowBackends[place.Index].Service = s.is.ID
			r.FlowBackends[place.Index].Weight = s.is.weight(i)
		}
	}
}
