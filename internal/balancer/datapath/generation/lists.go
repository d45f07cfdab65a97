// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// lastList is the greatest number of a list of prefixes; 0 means no list. See route_kind in the program.
const lastList = 1<<24 - 1

// numberLists assigns a service's lists their numbers: unchanged lists keep those that they had in before. A number
// that was assigned for a change that fails is not reused soon.
func (p *Places) numberLists(after, before *Record) {
	if after.Service.Mode == lb.NAT && len(after.Service.Untranslated) > 0 {
		if before != nil && before.Exceptions != 0 && slices.Equal(before.Service.Untranslated,
			after.Service.Untranslated) {
			after.Exceptions = before.Exceptions
		} else {
			after.Exceptions = p.nextList()
		}
	}
	if after.Service.RestrictsClients() {
		if before != nil && before.clients != 0 && before.Service.SameClients(&after.Service.Service) {
			after.clients = before.clients
		} else {
			after.clients = p.nextList()
		}
	}
}

// nextList returns the next number for a list.
func (p *Places) nextList() uint32 {
	p.lastList = p.lastList%lastList + 1
	return p.lastList
}
