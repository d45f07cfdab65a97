// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Counters reads everything. It stops neither the packets, so that figures of
// different backends may be a few packets apart in time, nor a change under way, nor
// does it wait for that.
func (d *Datapath) Counters() (counters lb.Counters, err error) {
	err = d.read(func(p *picture) error {
		if p.shared == nil {
			return nil
		}
		counters, err = p.counters()
		if err == nil {
			p.countFlows(&counters, d.janitor.Met())
			counters.Local, err = p.sockets.Counts()
		}
		return err
	})
	return counters, err
}

// counters reads what was counted of packets.
func (p *picture) counters() (lb.Counters, error) {
	outcomes, err := sharedmaps.ReadOutcomes(p.shared.Outcomes)
	if err == nil {
		err = p.ledger.AddOutcomes(outcomes)
	}
	if err != nil {
		return lb.Counters{}, err
	}
	counts, err := p.counted()
	if err != nil {
		return lb.Counters{}, err
	}
	for index := range counts {
		// The data plane counts a packet that was sent on once, for its backend;
		// previous owners of an index are in the sum.
		outcomes[objects.XDPOutcomeOUTCOME_FORWARDED].Packets += counts[index].Packets
		outcomes[objects.XDPOutcomeOUTCOME_RETURNED].Packets += counts[index].ReturnedPackets
	}
	backends := make(map[lb.BackendKey]lb.BackendCount, p.indices)
	p.eachBackend(func(key lb.BackendKey, index uint32) {
		key = generation.Visible(key)
		backends[key] = backends[key].Plus(counts[index].Minus(p.ledger.Before[index]))
	})
	return lb.Counters{Outcomes: outcomes, Backends: backends}, nil
}

// counted reads what each index has counted, those of its previous owners included.
func (p *picture) counted() ([]lb.BackendCount, error) {
	counts, err := sharedmaps.ReadBackends(p.shared.Counts, p.indices)
	for index := range counts {
		counts[index] = counts[index].Plus(p.ledger.Elsewhere(uint32(index)))
	}
	return counts, err
}

// BackendCounts returns what was counted of the backends of some services' packets, as Counters has
// it, but for what they have now: their flows and ports. It costs much less.
func (d *Datapath) BackendCounts(services map[lb.ServiceKey]bool) (counts map[lb.BackendKey]lb.BackendCount,
	err error) {
	counts = map[lb.BackendKey]lb.BackendCount{}
	err = d.read(func(p *picture) error {
		if p.shared == nil {
			return nil
		}
		counted, err := p.counted()
		if err != nil {
			return err
		}
		for _, r := range p.records {
			if !services[generation.VisibleService(r.Key)] {
				continue
			}
			for i, b := range r.Service.Backends {
				index := r.Places[i].Index
				key := generation.Visible(r.Service.BackendKey(b))
				counts[key] = counts[key].Plus(counted[index].Minus(p.ledger.Before[index]))
			}
		}
		return nil
	})
	return counts, err
}

// unused says whether no packet of a service was sent to a backend yet. The caller holds the lock.
func (d *Datapath) unused(r *generation.Record) bool {
	if d.shared == nil {
		return false
	}
	for _, p := range r.Places {
		count, err := sharedmaps.ReadBackend(d.shared.Counts, p.Index)
		if err != nil || count.Plus(d.ledger.Elsewhere(p.Index)).Minus(d.ledger.Before[p.Index]).Packets != 0 {
			return false
		}
	}
	return true
}
