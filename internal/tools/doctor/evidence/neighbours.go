// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"net/netip"
	"slices"
)

// resolving is the time in seconds for which the kernel tries to resolve a neighbour. A sender still waits for an entry
// that failed within this time plus the time of the examination.
const resolving = 4

// Wanted reports whether a sender needs a neighbour. An entry that failed long ago is no fault.
func (e *Evidence) Wanted(n Neighbour, dropped uint64) bool {
	if slices.ContainsFunc(e.After.hops(), func(h hop) bool { return h.address == n.Address }) {
		return true
	}
	recent := n.State == "INCOMPLETE" || n.Since <= e.Seconds+resolving
	return recent && (dropped > 0 || n.Gateway || !e.Traced)
}

// hop is a next hop of the balancer's packets to a backend.
type hop struct {
	address netip.Addr
	name    string
}

// hops returns the next hops of the balancer's backends without duplicates.
func (r *Reading) hops() (hops []hop) {
	if r.Balancer == nil {
		return nil
	}
	for _, s := range r.Balancer.Services {
		for _, b := range s.Backends {
			h := hop{b.Address, fmt.Sprintf("backend %s/%s", s.Name, b.Name)}
			if b.NextHop.IsValid() && b.NextHop != b.Address {
				h = hop{b.NextHop, fmt.Sprintf("router to %s/%s", s.Name, b.Name)}
			}
			if !slices.ContainsFunc(hops, func(x hop) bool { return x.address == h.address }) {
				hops = append(hops, h)
			}
		}
	}
	return hops
}

// NameOf returns an address, with the name of the balancer's backend or router that has it.
func (r *Reading) NameOf(a netip.Addr) string {
	for _, h := range r.hops() {
		if h.address == a {
			return fmt.Sprintf("%s (%s)", a, h.name)
		}
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

// WorthAsking reports whether to probe a neighbour, because its MAC address matters and may be stale: permanent
// entries, backends, and routers.
func (r *Reading) WorthAsking(n Neighbour) bool {
	if n.MAC == "" || n.Address.IsLinkLocalUnicast() || n.State == "FAILED" || n.State == "INCOMPLETE" {
		return false
	}
	return n.State == "PERMANENT" || n.Gateway || slices.ContainsFunc(r.hops(), func(h hop) bool {
		return h.address == n.Address
	})
}
