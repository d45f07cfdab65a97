// SPDX-License-Identifier: Apache-2.0

package readview

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Counters reads all counters. It blocks neither packets, so that the counters of different backends may be from
// slightly different times, nor a change under way, nor does it wait for that.
func (r *Reader) Counters() (counters lb.Counters, err error) {
	err = r.published.Read(func(p *View) error {
		if p.Shared == nil {
			return nil
		}
		counters, err = p.counters()
		if err == nil {
			p.countFlows(&counters, p.Records, r.janitor.Presence())
			counters.Local, err = p.Sockets.Counts()
		}
		return err
	})
	return counters, err
}

// CountersOf returns the counters of some services and of their backends only, as Counters does. Its cost is
// proportional to their number.
func (r *Reader) CountersOf(services map[lb.ServiceKey]bool) (counters lb.Counters, err error) {
	err = r.published.Read(func(p *View) error {
		if p.Shared == nil {
			return nil
		}
		var records []*generation.Record
		for _, record := range p.Records {
			if services[generation.VisibleService(record.Key)] {
				records = append(records, record)
			}
		}
		if counters.Backends, err = p.countedOf(records); err == nil {
			p.countFlows(&counters, records, r.janitor.Presence())
		}
		return err
	})
	return counters, err
}

// countedOf reads the packets' counters of the backends of services one by one.
func (p *View) countedOf(records []*generation.Record) (map[lb.BackendKey]lb.BackendCount, error) {
	backends := map[lb.BackendKey]lb.BackendCount{}
	var failed error
	eachBackend(records, func(key lb.BackendKey, index uint32) {
		if failed != nil {
			return
		}
		var count lb.BackendCount
		count, failed = sharedmaps.ReadBackend(p.Shared.Counts, index)
		key = generation.Visible(key)
		backends[key] = backends[key].Plus(count.Plus(p.Ledger.OtherCount(index)).Minus(p.Ledger.Baselines[index]))
	})
	return backends, failed
}

// counters reads the packets' counters.
func (p *View) counters() (lb.Counters, error) {
	outcomes, err := sharedmaps.ReadOutcomes(p.Shared.Outcomes)
	if err == nil {
		err = p.Ledger.AddOutcomes(outcomes)
	}
	if err != nil {
		return lb.Counters{}, err
	}
	counts, err := p.counted()
	if err != nil {
		return lb.Counters{}, err
	}
	for index := range counts {
		// The data plane counts a forwarded packet once, for its backend; the sum includes previous owners of an index.
		outcomes[objects.XDPOutcomeOUTCOME_FORWARDED].Packets += counts[index].Packets
		outcomes[objects.XDPOutcomeOUTCOME_RETURNED].Packets += counts[index].ReturnedPackets
	}
	backends := make(map[lb.BackendKey]lb.BackendCount, p.Indices)
	eachBackend(p.Records, func(key lb.BackendKey, index uint32) {
		key = generation.Visible(key)
		backends[key] = backends[key].Plus(counts[index].Minus(p.Ledger.Baselines[index]))
	})
	return lb.Counters{Outcomes: outcomes, Backends: backends}, nil
}

// counted reads the counters of each index, which include those of its previous owners.
func (p *View) counted() ([]lb.BackendCount, error) {
	counts, err := sharedmaps.ReadBackends(p.Shared.Counts, p.Indices)
	for index := range counts {
		counts[index] = counts[index].Plus(p.Ledger.OtherCount(uint32(index)))
	}
	return counts, err
}

// BackendCounts returns the counters of the backends of some services, as Counters does, but without their present
// flows and ports. It costs much less.
func (r *Reader) BackendCounts(services map[lb.ServiceKey]bool) (counts map[lb.BackendKey]lb.BackendCount,
	err error) {
	counts = map[lb.BackendKey]lb.BackendCount{}
	err = r.published.Read(func(p *View) error {
		if p.Shared == nil {
			return nil
		}
		counted, err := p.counted()
		if err != nil {
			return err
		}
		for _, record := range p.Records {
			if !services[generation.VisibleService(record.Key)] {
				continue
			}
			for i, b := range record.Service.Backends {
				index := record.Places[i].Index
				key := generation.Visible(record.Service.BackendKey(b))
				counts[key] = counts[key].Plus(counted[index].Minus(p.Ledger.Baselines[index]))
			}
		}
		return nil
	})
	return counts, err
}
