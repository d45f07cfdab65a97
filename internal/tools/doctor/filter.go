// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/drops"
)

// judgeFilter looks for packets of services that this host's packet filter drops, by whichever rule, chain or policy:
// the kernel says what comes of all of them.
func judgeFilter(e *Evidence) (findings []Finding) {
	seen := map[netip.AddrPort][]Figure{}
	for _, d := range e.Drops {
		if d.Source != drops.Stack || d.Reason != "NETFILTER_DROP" || d.Packets < fewPackets ||
			d.Example == nil || !e.Before.serves(*d.Example) {
			continue
		}
		to := netip.AddrPortFrom(d.Example.Destination, d.Example.DestinationPort)
		seen[to] = append(seen[to], Figure{Name: d.Reason, Value: float64(d.Packets), Unit: "packets dropped by the kernel",
			Note: "in " + d.Function + ", such as " + d.Example.String()})
	}
	for _, to := range slices.SortedFunc(maps.Keys(seen), netip.AddrPort.Compare) {
		findings = append(findings,
			finding(filterDrops, fmt.Sprintf("A filter of this host drops packets for %s", to), seen[to]...))
	}
	return findings
}

// serves says whether a packet is a client's for a service of the balancer, or for the VIP of a host without one: there
// only a balancer sends such packets.
func (r *Reading) serves(f drops.Flow) bool {
	if r.Balancer == nil {
		return slices.Contains(r.loopbackVIPs(), f.Destination)
	}
	return slices.ContainsFunc(r.Balancer.Services, func(s ops.Service) bool {
		return s.VIP == f.Destination && s.Port == f.DestinationPort && uint8(s.Protocol) == f.Protocol
	})
}

// loopbackVIPs are addresses as backends have those of a balancer.
func (r *Reading) loopbackVIPs() (vips []netip.Addr) {
	for _, l := range r.Links {
		for _, p := range l.Addresses {
			if l.Name == "lo" && !p.Addr().IsLoopback() && p.IsSingleIP() {
				vips = append(vips, p.Addr())
			}
		}
	}
	return vips
}
