// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// ipvsBalancer is one of several IPVS balancers.
type ipvsBalancer struct {
	at    *lab.Host
	table *ipvsTable
	bird  *subject.Program
	// syncID is the balancer's ID in the messages of its sync daemon; 0 means that it runs none.
	syncID int
	// serves means that the balancer's kernel has the table.
	serves bool
	// removedBefore are the servers that have been away. A connection that was synchronised while its server was away
	// is bound to no server, and the kernel does not delete it with the server.
	removedBefore map[netip.AddrPort]bool
}

// noteRemoved records the servers that are not in the wanted services.
func (b *ipvsBalancer) noteRemoved(wanted []ipvsService) {
	next := ipvsTable{Services: wanted}
	for _, s := range b.table.Services {
		for _, server := range s.Servers {
			if !next.has(server.At) {
				b.removedBefore[server.At] = true
			}
		}
	}
}
