// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tables"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// weight returns backend i's present share of new flows.
func (r *Record) weight(i int) uint16 {
	if !r.Service.TakesFlows(i) {
		return 0
	}
	return tables.Weight(&r.Service, i)
}

// flows returns the service's properties for the janitor.
func (r *Record) flows() flowtable.Service {
	s := &r.Service
	f := flowtable.Service{Present: true, Tracked: r.Remembers, NAT: s.Mode == lb.NAT,
		Family: uint8(mapmem.Family(s.VIP)), Window: flowtable.Milliseconds(tables.Window(s))}
	if s.Persistence.On() {
		f.Affinity = flowtable.Milliseconds(s.Persistence.Timeout)
	}
	return f
}
