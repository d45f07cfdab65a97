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
func (p *Places) numberLists(is, was *Record) {
	if is.Service.Mode == lb.NAT && len(is.Service.Untranslated) > 0 {
		if was != nil && was.Exceptions != 0 && slices.Equal(was.Service.Untranslated, is.Service.Untranslated) {
			is.Exceptions = was.Exceptions
		} else {
			is.Exceptions = p.nextList()
		}
	}
	if is.Service.Listed() {
		if was != nil && was.clients != 0 && was.Service.SameClients(&is.Service.Service) {
			is.clients = was.clients
		} else {
			is.clients = p.nextList()
		}
	}
}

// nextList returns a number that no list has.
func (p *Places) nextList() uint32 {
	p.lastList = p.lastList%lastList + 1
	return p.lastList
}
