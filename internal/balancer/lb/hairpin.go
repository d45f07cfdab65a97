// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"net/netip"
	"slices"
)

// Hairpin says which clients the backends of mode NAT would answer directly, since they are on one
// link, or one and the same host. Such a client waits for an answer from the VIP, and one from the
// backend's own address is none; so it is served through full NAT, from the address that the balancer
// itself would use towards the backend (Path.Local).
type Hairpin struct {
	// Near are the clients on a backend's link or host.
	Near []Near
	// FirstPort..LastPort are ports of this host's addresses from which its own connections are not
	// made; 0 where there are none: then near clients are refused. Packets to them that belong to no flow
	// stay the host's.
	FirstPort, LastPort uint16
}

// Near are the clients of which packets come in on an interface, and whose backends would answer them
// directly.
type Near struct {
	// Interface is its index.
	Interface int
	// Prefixes are masked, sorted, and each address is in one of them at most. There are at most
	// MaxNear of a family.
	Prefixes []netip.Prefix
}

// MaxNear is how many networks of near clients an interface can have, in each family: as many as the data plane has
// room for (MAX_NEAR in bpf/balancer/types/limits.h: internal/balancer/datapath does not compile where the two differ).
const MaxNear = 16

// On reports whether there are such clients.
func (h Hairpin) On() bool { return len(h.Near) > 0 }

// Equal reports whether two are the same.
func (h Hairpin) Equal(o Hairpin) bool {
	return h.FirstPort == o.FirstPort && h.LastPort == o.LastPort &&
		slices.EqualFunc(h.Near, o.Near, func(a, b Near) bool {
			return a.Interface == b.Interface && slices.Equal(a.Prefixes, b.Prefixes)
		})
}

// At are the near clients of the interface with an index; of all interfaces for 0.
func (h Hairpin) At(index int) (prefixes []netip.Prefix) {
	for _, near := range h.Near {
		if index == 0 || near.Interface == index {
			prefixes = append(prefixes, near.Prefixes...)
		}
	}
	return prefixes
}

// hairpin is the service that serves the near clients of s: the same backends, by full NAT.
func (s RoutedService) hairpin() RoutedService {
	s.Mode, s.Untranslated = FullNAT, nil
	s.IsHairpin, s.HasHairpin = true, false
	return s
}

// WithHairpins returns the state with a hairpin behind the services for each of mode NAT that wants one.
func (s State) WithHairpins() State {
	if !s.Hairpin.On() {
		return s
	}
	all := make([]RoutedService, len(s.Services), 2*len(s.Services))
	copy(all, s.Services)
	for i := range s.Services {
		if one := &s.Services[i]; one.Mode.RepliesByEndpoint() && !one.NoHairpin {
			all[i].HasHairpin = true
			all = append(all, one.hairpin())
		}
	}
	s.Services = all
	return s
}
