// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// noteFlows keeps what the janitor must know of backends and services.
func (r *register) noteFlows(c *revision) {
	p := r.places
	r.flowBackends = append(r.flowBackends, make([]flowtable.Backend, len(p.generations)-len(r.flowBackends))...)
	r.flowServices = append(r.flowServices, make([]flowtable.Service, int(p.ids)-len(r.flowServices))...)
	for _, d := range c.places.left {
		r.flowBackends[d.index].Generation = 0
	}
	for _, a := range c.places.arrived {
		place := a.of.places[a.at]
		r.flowBackends[place.index] = flowtable.Backend{Generation: place.generation, Service: a.of.id}
	}
	for _, was := range c.left {
		r.flowServices[was.id].Present = false
	}
	for _, s := range c.services {
		if s.was != nil && s.was.id != s.is.id {
			r.flowServices[s.was.id].Present = false
		}
		r.flowServices[s.is.id] = s.is.flows()
		for i, place := range s.is.places {
			r.flowBackends[place.index].Service = s.is.id
			r.flowBackends[place.index].Weight = s.is.weight(i)
		}
	}
}

// weight is the share of new flows that backend i takes as it is now.
func (r *record) weight(i int) uint16 {
	if !r.service.TakesFlows(i) {
		return 0
	}
	return tables.Weight(&r.service, i)
}

// flows is the service as the janitor sees it.
func (r *record) flows() flowtable.Service {
	s := &r.service
	f := flowtable.Service{Present: true, Tracked: r.remembers, NAT: s.Mode == lb.NAT,
		Family: uint8(mapmem.Family(s.VIP)), Window: flowtable.Milliseconds(tables.Window(s))}
	if s.Persistence.On() {
		f.Affinity = flowtable.Milliseconds(s.Persistence.Timeout)
	}
	return f
}
