// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/drops"
)

// own reports whether an address is this host's.
func (r *Reading) own(a netip.Addr) bool {
	for _, l := range r.Links {
		for _, p := range l.Addresses {
			if p.Addr() == a {
				return true
			}
		}
	}
	return false
}

// HasIPv6 reports whether this host has an IPv6 address, a VIP included, with which it reaches others than neighbours.
func (r *Reading) HasIPv6() bool {
	for _, l := range r.Links {
		for _, p := range l.Addresses {
			if p.Addr().Is6() && p.Addr().IsGlobalUnicast() {
				return true
			}
		}
	}
	return false
}

// ExpectedHolders returns the number of other hosts that may claim a VIP: none if this host has it on an interface
// other than the loopback, otherwise one, the balancer.
func (e *Evidence) ExpectedHolders(vip netip.Addr) int {
	if e.After.own(vip) && !e.OnLoopback(vip) {
		return 0
	}
	return 1
}

// OnLoopback reports whether this host has an address on its loopback only, as a backend has a VIP.
func (e *Evidence) OnLoopback(a netip.Addr) bool {
	found := false
	for _, l := range e.After.Links {
		for _, p := range l.Addresses {
			if p.Addr() != a {
				continue
			}
			if l.Name != "lo" {
				return false
			}
			found = true
		}
	}
	return found
}

// HostOf returns ", " and the name of the host with a MAC address, if the neighbour table has it, or "".
func (e *Evidence) HostOf(mac string) string {
	for _, n := range e.After.Neighbours {
		if n.MAC == mac && !n.Address.IsLinkLocalUnicast() {
			return ", " + e.After.NameOf(n.Address)
		}
	}
	return ""
}

// IsNode reports whether one of the hosts that claim a VIP is a cluster node that the VIP's services send to.
func (e *Evidence) IsNode(c Claim) bool {
	status := e.After.Balancer
	if status == nil {
		return false
	}
	for i := range status.Services {
		s := &status.Services[i]
		if s.VIP == c.Address && status.IsOfCluster(s) && slices.ContainsFunc(s.Backends, func(b ops.Backend) bool {
			return slices.Contains(c.MACs, b.MAC)
		}) {
			return true
		}
	}
	return false
}

// Serves reports whether a packet is a client's packet for a service of the balancer. On a host without a balancer, it
// reports whether the packet is for a VIP, because only a balancer sends such packets.
func (r *Reading) Serves(f drops.Flow) bool {
	if r.Balancer == nil {
		return slices.Contains(r.LoopbackVIPs(), f.Destination)
	}
	return slices.ContainsFunc(r.Balancer.Services, func(s ops.Service) bool {
		return s.VIP == f.Destination && s.Port == f.DestinationPort && uint8(s.Protocol) == f.Protocol
	})
}

// LoopbackVIPs returns the addresses that look like VIPs on a backend: those on the loopback with a host prefix.
func (r *Reading) LoopbackVIPs() (vips []netip.Addr) {
	for _, l := range r.Links {
		for _, p := range l.Addresses {
			if l.Name == "lo" && !p.Addr().IsLoopback() && p.IsSingleIP() {
				vips = append(vips, p.Addr())
			}
		}
	}
	return vips
}

// Sender returns an address of the interface for probes. It skips addresses with a host prefix, because VIPs have one.
func (l *Link) Sender(six bool) netip.Addr {
	for _, p := range l.Addresses {
		if p.Addr().Is6() == six && !p.Addr().IsLinkLocalUnicast() && p.Bits() < p.Addr().BitLen() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}
