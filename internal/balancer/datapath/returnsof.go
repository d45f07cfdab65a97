// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// returnsOf returns what is known after the change.
func (c *revision) returnsOf(secret uint64) returnsOf {
	return returnsOfRecords(c.records, c.numbers().pooled(c.pool()), secret)
}

// returnsOfRecords returns what is known of those services, with those addresses of the pool.
func returnsOfRecords(records []*record, numbers poolNumbers, secret uint64) returnsOf {
	r := returnsOf{secret: secret, protocols: map[uint32]uint8{}, ends: map[uint32]backendEnd{}}
	for f := range r.pool {
		r.pool[f] = numbers.words(f)
	}
	for _, is := range records {
		if is.service.Mode != lb.FullNAT {
			continue
		}
		r.protocols[is.id] = uint8(is.key.Protocol)
		for i, p := range is.places {
			b := &is.service.Backends[i]
			end := backendEnd{generation: p.generation, address: mapmem.OfAddress(b.Address), port: mapmem.NetworkOrder(b.Port), family: mapmem.Family(b.Address)}
			if local := localOf(&is.service, i); local.IsValid() {
				end.local = mapmem.OfAddress(local)
			}
			r.ends[p.index] = end
		}
	}
	return r
}
