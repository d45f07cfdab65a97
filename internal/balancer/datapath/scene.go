// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// scene is what the janitor is to know after a change.
func (d *Datapath) scene() flowScene {
	r := d.register
	return flowScene{
		head:      d.current.memory.head(),
		flows:     d.shared.proven,
		newcomers: d.shared.unproven,
		returns:   d.shared.fullNAT,
		// It reads them while we go on.
		backends: slices.Clone(r.flowBackends),
		services: slices.Clone(r.flowServices),
		groups:   r.places.groupTimeouts(),
		loads:    mapmem.ElementsOf[objects.XDPBackendLoad](d.shared.loads.memory),
		turns:    mapmem.ElementsOf[objects.XDPTurn](d.shared.turns.memory),
		sockets:  d.sockets.maps()[objects.LocalMapLocalSockets],
		own:      d.current.memory.ownNumbers(),
	}
}

// noteFlows keeps what the janitor must know of backends and services.
func (r *register) noteFlows(c *revision) {
	p := r.places
	r.flowBackends = append(r.flowBackends, make([]flowBackend, len(p.generations)-len(r.flowBackends))...)
	r.flowServices = append(r.flowServices, make([]flowService, int(p.ids)-len(r.flowServices))...)
	for _, d := range c.places.left {
		r.flowBackends[d.index].generation = 0
	}
	for _, a := range c.places.arrived {
		place := a.of.places[a.at]
		r.flowBackends[place.index] = flowBackend{generation: place.generation, service: a.of.id}
	}
	for _, was := range c.left {
		r.flowServices[was.id].present = false
	}
	for _, s := range c.services {
		if s.was != nil && s.was.id != s.is.id {
			r.flowServices[s.was.id].present = false
		}
		r.flowServices[s.is.id] = s.is.flows()
		for i, place := range s.is.places {
			r.flowBackends[place.index].service = s.is.id
			r.flowBackends[place.index].weight = s.is.weight(i)
		}
	}
}

// weight is the share of new flows that backend i takes as it is now.
func (r *record) weight(i int) uint16 {
	if !r.service.TakesFlows(i) {
		return 0
	}
	return weightOf(&r.service, i)
}

// flows is the service as the janitor sees it.
func (r *record) flows() flowService {
	s := &r.service
	f := flowService{present: true, tracked: r.remembers, nat: s.Mode == lb.NAT, family: uint8(mapmem.Family(s.VIP)), window: milliseconds(windowOf(s))}
	if s.Persistence.On() {
		f.affinity = milliseconds(s.Persistence.Timeout)
	}
	return f
}
