// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"net/netip"
)

// resolving is the time in seconds for which the kernel tries to resolve a neighbour. A sender still waits for an entry
// that failed within this time plus the time of the examination.
const resolving = 4

// Wanted reports whether a sender needs a neighbour. An entry that failed long ago is no fault.
func (e *Evidence) Wanted(n Neighbour, dropped uint64) bool {
	if e.After.isHop(n.Address) {
		return true
	}
	recent := n.State == "INCOMPLETE" || n.Since <= e.Seconds+resolving
	return recent && (dropped > 0 || n.Gateway || !e.Traced)
}

// isHop reports whether an address is a next hop of the balancer's packets to a backend.
func (r *Reading) isHop(a netip.Addr) bool {
	_, found := r.hops()[a]
	return found
}

// hops returns the names of the next hops of the balancer's packets to its backends. They are collected once: the
// questions are asked for each of thousands of neighbours.
func (r *Reading) hops() map[netip.Addr]string {
	if r.hopNames != nil || r.Balancer == nil {
		return r.hopNames
	}
	r.hopNames = map[netip.Addr]string{}
	for i := range r.Balancer.Services {
		s := &r.Balancer.Services[i]
		for j := range s.Backends {
			b := &s.Backends[j]
			a, kind := b.Address, "backend"
			if b.NextHop.IsValid() && b.NextHop != b.Address {
				a, kind = b.NextHop, "router to"
			}
			if _, found := r.hopNames[a]; !found {
				r.hopNames[a] = fmt.Sprintf("%s %s/%s", kind, s.Name, b.Name)
			}
		}
	}
	return r.hopNames
}

// NameOf returns an address, with the name of the balancer's backend or router that has it.
func (r *Reading) NameOf(a netip.Addr) string {
	if name, found := r.hops()[a]; found {
		return fmt.Sprintf("%s (%s)", a, name)
	}
	return a.String()
}

// Known returns the MAC address of an address on an interface in the neighbour table; empty if there is none in use.
func (r *Reading) Known(a netip.Addr, index int) string {
	for _, n := range r.Neighbours {
		if n.Address == a && n.Interface == index && n.State != "FAILED" && n.State != "INCOMPLETE" {
			return n.MAC
		}
	}
	return ""
}

// ShouldProbe reports whether to probe a neighbour, because its MAC address matters and may be stale: permanent
// entries, backends, and routers.
func (r *Reading) ShouldProbe(n Neighbour) bool {
	if n.MAC == "" || n.Address.IsLinkLocalUnicast() || n.State == "FAILED" || n.State == "INCOMPLETE" {
		return false
	}
	return n.State == "PERMANENT" || n.Gateway || r.isHop(n.Address)
}
