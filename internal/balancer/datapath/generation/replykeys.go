// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// ReplyKeys returns the keys of replies after the change.
func (c *Revision) ReplyKeys(secret uint64) flowtable.ReplyKeys {
	return ReplyKeysOf(c.Records, c.Numbers().pooled(c.pool()), secret)
}

// ReplyKeysOf returns the keys of replies for these services and numbers of the pool's addresses.
func ReplyKeysOf(records []*Record, numbers PoolNumbers, secret uint64) flowtable.ReplyKeys {
	r := flowtable.ReplyKeys{Secret: secret, Protocols: map[uint32]uint8{}, Ends: map[uint32]flowtable.BackendEnd{}}
	for f := range r.Pool {
		r.Pool[f] = numbers.words(f)
	}
	for _, after := range records {
		if after.Service.Mode != lb.FullNAT {
			continue
		}
		r.Protocols[after.ID] = uint8(after.Key.Protocol)
		for i, p := range after.Places {
			b := &after.Service.Backends[i]
			end := flowtable.BackendEnd{Generation: p.Generation, Address: mapmem.OfAddress(b.Address),
				Port: mapmem.NetworkOrder(b.Port), Family: mapmem.Family(b.Address)}
			if local := LocalOf(&after.Service, i); local.IsValid() {
				end.Local = mapmem.OfAddress(local)
			}
			r.Ends[p.Index] = end
		}
	}
	return r
}
