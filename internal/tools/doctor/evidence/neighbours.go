// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"net/netip"
	"slices"
)

// resolving is how long the kernel asks for a neighbour until it gives up, in
// seconds: an entry that failed no longer ago than that, and the time of the look,
// is one that a sender waits for.
const resolving = 4

// Wanted reports whether a sender misses a neighbour: something that was tried long ago is no fault.
func (e *Evidence) Wanted(n Neighbour, dropped uint64) bool {
	if slices.ContainsFunc(e.After.hops(), func(h hop) bool { return h.address == n.Address }) {
		return true
	}
	recent := n.State == "INCOMPLETE" || n.Since <= e.Seconds+resolving
	return recent && (dropped > 0 || n.Gateway || !e.Traced)
}

// hop is a next hop of a balancer's packets for a backend.
type hop struct {
	address netip.Addr
	name    string
}

// hops are the next hops of the balancer's backends, each once.
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

// NameOf returns an address, with the backend or the router that it is to the balancer.
func (r *Reading) NameOf(a netip.Addr) string {
	for _, h := range r.hops() {
		if h.address == a {
			return fmt.Sprintf("%s (%s)", a, h.name)
		}
	}
	return a.String()
}

// Known is the MAC address that the neighbour table has for an address on an interface; empty where none is used.
func (r *Reading) Known(a netip.Addr, index int) string {
	for _, n := range r.Neighbours {
		if n.Address == a && n.Interface == index && n.State != "FAILED" && n.State != "INCOMPLETE" {
			return n.MAC
		}
	}
	return ""
}

// WorthAsking reports whether a neighbour is to be probed, because its MAC address matters and may be stale: permanent
// entries, backends, and routers.
func (r *Reading) WorthAsking(n Neighbour) bool {
	if n.MAC == "" || n.Address.IsLinkLocalUnicast() || n.State == "FAILED" || n.State == "INCOMPLETE" {
		return false
	}
	return n.State == "PERMANENT" || n.Gateway || slices.ContainsFunc(r.hops(), func(h hop) bool {
		return h.address == n.Address
	})
}
