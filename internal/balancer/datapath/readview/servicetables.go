// SPDX-License-Identifier: Apache-2.0

package readview

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// serviceTables is the result of ServiceTables for a view.
type serviceTables struct {
	view *View
	list []lb.ServiceTable
}

// ServiceTables returns the tables for new flows of each service, in the order of the state; the caller must not change
// them. The result is cached until the next change, and the call does not wait for a change under way.
func (r *Reader) ServiceTables() []lb.ServiceTable {
	p := r.published.Load()
	if last := r.tables.Load(); last != nil && last.view == p {
		return last.list
	}
	list := make([]lb.ServiceTable, 0, len(p.Records))
	for _, record := range p.Records {
		if !record.Key.Hairpin {
			list = append(list, lb.ServiceTable{Key: record.Key, Name: record.Service.Name, Digest: record.Digest(),
				Takers: record.Takers()})
		}
	}
	r.tables.Store(&serviceTables{p, list})
	return list
}
