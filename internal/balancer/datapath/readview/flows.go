// SPDX-License-Identifier: Apache-2.0

package readview

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// FlowStates are the names of the states of flows; entries of affinity have none.
var FlowStates = map[objects.XDPFlowState]lb.FlowState{
	objects.XDPFlowStateFLOW_OPENING:     lb.FlowOpening,
	objects.XDPFlowStateFLOW_SEEN:        lb.FlowSeen,
	objects.XDPFlowStateFLOW_FIRST:       lb.FlowFirst,
	objects.XDPFlowStateFLOW_ESTABLISHED: lb.FlowEstablished,
	objects.XDPFlowStateFLOW_CONTESTED:   lb.FlowContested,
	objects.XDPFlowStateFLOW_UDP:         lb.FlowUDP,
	objects.XDPFlowStateFLOW_CLIENT_FIN:  lb.FlowClientFIN,
	objects.XDPFlowStateFLOW_BACKEND_FIN: lb.FlowBackendFIN,
	objects.XDPFlowStateFLOW_CLOSED:      lb.FlowClosed,
	objects.XDPFlowStateFLOW_REFUSED:     lb.FlowRefused,
	objects.XDPFlowStateFLOW_TIME_WAIT:   lb.FlowTimeWait,
}

// Flows returns at most limit of the flows that `wanted` accepts, the first ones in the tables, and the number of all
// of them. A flow that moves between the tables meanwhile may be missing, or be returned twice. It does not wait for a
// change under way, and packets do not wait for it. Errors: ErrClosed.
func (r *Reader) Flows(wanted func(*lb.Flow) bool, limit int) (flows []lb.Flow, matching uint64, err error) {
	clock := r.janitor.Now()
	err = r.published.Read(func(p *View) error {
		if p.Shared == nil {
			return nil
		}
		reader := p.FlowReader(clock)
		for _, table := range []*flowtable.Table{p.Shared.Proven, p.Shared.Unproven} {
			reader.Proven = table == p.Shared.Proven
			table.Each(func(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) {
				one, found := reader.Read(flow, state, seen)
				if !found || !wanted(&one) {
					return
				}
				if matching++; len(flows) < limit {
					flows = append(flows, one)
				}
			})
		}
		return nil
	})
	return flows, matching, err
}

// FlowReader finds the service and backend of entries in the tables of flows.
type FlowReader struct {
	backends []flowOwner
	// numbers are the numbers of full NAT's addresses.
	numbers generation.PoolNumbers
	clock   uint32
	// Proven says that the entries are from the table of proven flows.
	Proven bool
}

// flowOwner is the backend of an index: number at of the service of a record.
type flowOwner struct {
	record *generation.Record
	at     int
}

// FlowReader returns a reader of entries at a time of the data plane's clock.
func (p *View) FlowReader(clock uint32) *FlowReader {
	r := &FlowReader{backends: make([]flowOwner, p.Indices), numbers: p.Numbers, clock: clock}
	for _, record := range p.Records {
		for i, place := range record.Places {
			if int(place.Index) < len(r.backends) {
				r.backends[place.Index] = flowOwner{record, i}
			}
		}
	}
	return r
}

// RecordOf returns the service of an entry for which Read returned true.
func (r *FlowReader) RecordOf(flow *objects.XDPFlow) *generation.Record {
	return r.backends[flow.Backend].record
}

// Read returns the flow of an entry; false where the entry is no flow, or its service or backend was removed.
func (r *FlowReader) Read(flow *objects.XDPFlow, state objects.XDPFlowState, seen uint32) (one lb.Flow, found bool) {
	word, known := FlowStates[state]
	if !known || int(flow.Backend) >= len(r.backends) {
		return one, false
	}
	owner := r.backends[flow.Backend]
	if owner.record == nil || owner.record.ID != flow.Service ||
		owner.record.Places[owner.at].Generation != flow.Generation {
		return one, false
	}
	s := &owner.record.Service
	one = lb.Flow{Backend: generation.Visible(s.BackendKey(s.Backends[owner.at])),
		Client: netip.AddrPortFrom(mapmem.ToAddress(flow.Address, [...]uint8{4, 6}[mapmem.Family(s.VIP)]),
			mapmem.NetworkOrder(flow.Port)),
		State: word, Proven: r.Proven, Silent: time.Duration(flowtable.IdleTime(r.clock, seen)) * time.Millisecond}
	if local := generation.LocalOf(s, owner.at); s.IsHairpin && local.IsValid() {
		one.Source = netip.AddrPortFrom(local, mapmem.NetworkOrder(flow.Source.Port))
	} else if pool := r.numbers[mapmem.Family(s.VIP)]; s.Mode == lb.FullNAT && int(flow.Source.Address) < len(pool) &&
		pool[flow.Source.Address].IsValid() {
		one.Source = netip.AddrPortFrom(pool[flow.Source.Address], mapmem.NetworkOrder(flow.Source.Port))
	}
	if s.Mode != lb.FullNAT {
		one.SYN = flowtable.SynOf(flow)
	}
	return one, true
}
