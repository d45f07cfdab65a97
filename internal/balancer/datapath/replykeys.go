// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// returnsOf returns what is known after the change.
func (c *revision) returnsOf(secret uint64) flowtable.ReplyKeys {
	return returnsOfRecords(c.records, c.numbers().pooled(c.pool()), secret)
}

// returnsOfRecords returns what is known of those services, with those addresses of the pool.
func returnsOfRecords(records []*record, numbers poolNumbers, secret uint64) flowtable.ReplyKeys {
	r := flowtable.ReplyKeys{Secret: secret, Protocols: map[uint32]uint8{}, Ends: map[uint32]flowtable.BackendEnd{}}
	for f := range r.Pool {
		r.Pool[f] = numbers.words(f)
	}
	for _, is := range records {
		if is.service.Mode != lb.FullNAT {
			continue
		}
		r.Protocols[is.id] = uint8(is.key.Protocol)
		for i, p := range is.places {
			b := &is.service.Backends[i]
			end := flowtable.BackendEnd{Generation: p.generation, Address: mapmem.OfAddress(b.Address),
				Port: mapmem.NetworkOrder(b.Port), Family: mapmem.Family(b.Address)}
			if local := localOf(&is.service, i); local.IsValid() {
				end.Local = mapmem.OfAddress(local)
			}
			r.Ends[p.index] = end
		}
	}
	return r
}
