// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// ipvsBalancer is one of several balancers.
type ipvsBalancer struct {
	at    *lab.Host
	table *ipvsTable
	bird  *subject.Program
	// syncID is its own in the messages of all; 0: it tells no other.
	syncID int
	// serves: its kernel has the table.
	serves bool
	// left are servers that have been away. A connection that was synchronised meanwhile is bound to none, and the
	// kernel does not forget it with one.
	left map[netip.AddrPort]bool
}

// noteLeft notes which servers go when the table has others.
func (b *ipvsBalancer) noteLeft(wanted []ipvsService) {
	next := ipvsTable{Services: wanted}
	for _, s := range b.table.Services {
		for _, server := range s.Servers {
			if !next.has(server.At) {
				b.left[server.At] = true
			}
		}
	}
}
