// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// lastList is the greatest number of a list of prefixes; 0 is that of none. See route_kind in the program.
const lastList = 1<<24 - 1

// numberLists gives a service's lists their numbers: those that they had in was, or others. A
// number that is taken for a change that is then not made is not given again soon.
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

// nextList returns a number that no list has.
func (p *Places) nextList() uint32 {
	p.lastList = p.lastList%lastList + 1
	return p.lastList
}
