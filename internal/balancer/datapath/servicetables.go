// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// serviceTables are what ServiceTables has returned for a picture.
type serviceTables struct {
	of   *picture
	list []lb.ServiceTable
}

// ServiceTables returns what decides on the new flows of each service, in the order of the state; the caller must
// not change it. It is cheap where nothing has changed since the last call, and does not wait for a change under way.
func (d *Datapath) ServiceTables() []lb.ServiceTable {
	p := d.picture.Load()
	if last := d.tables.Load(); last != nil && last.of == p {
		return last.list
	}
	list := make([]lb.ServiceTable, 0, len(p.records))
	for _, r := range p.records {
		if !r.Key.Hairpin {
			list = append(list, lb.ServiceTable{Key: r.Key, Name: r.Service.Name, Digest: r.Digest(),
				Takers: r.Takers()})
		}
	}
	d.tables.Store(&serviceTables{p, list})
	return list
}
