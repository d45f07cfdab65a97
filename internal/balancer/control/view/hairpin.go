// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// Ports of hairpins are outside the range of the host's own connections: above it if there are enough ports, because
// servers use those below it, or else below it.
const (
	enoughAbove = 2048
	lowestPort  = 1024
	fewestPorts = 64
)

// HairpinsOf returns the hairpins of a view, with the present states of its links; localPorts is the value of
// PortRange.
func HairpinsOf(v *View, links []iface.State, localPorts string) Hairpins {
	if len(v.Hairpinned) == 0 {
		return Hairpins{}
	}
	h := Hairpins{links: links, ports: localPorts}
	for _, link := range links {
		// Most backends are in the same few subnets: sorting one entry per backend would dominate the cost.
		all := map[netip.Prefix]bool{}
		for _, n := range v.Hairpinned {
			for _, p := range nearClients(link, v.Backends[n], v.Known[n]) {
				all[p] = true
			}
		}
		near, dropped := mergePrefixes(slices.Collect(maps.Keys(all)))
		h.Left += dropped
		if len(near) > 0 {
			h.Near = append(h.Near, lb.Near{Interface: link.Index, Prefixes: near})
		}
	}
	var first, last uint16
	if _, err := fmt.Sscan(localPorts, &first, &last); err != nil {
		h.Trouble = fmt.Sprintf("%s is %q", PortRange, localPorts)
		return h
	}
	h.FirstPort, h.LastPort = portsBeside(first, last)
	if h.LastPort == 0 {
		h.Trouble = fmt.Sprintf(
			"the host's own connections take the ports %d-%d (%s), which leaves none: make that range smaller", first,
			last, PortRange)
	}
	return h
}

// nearClients returns the clients that a backend would answer directly over a link, if it is reached over that link:
// those in the link's subnets that contain it, or, if it is behind a router, the backend itself.
func nearClients(link iface.State, backend netip.Addr, e *paths.Entry) (near []netip.Prefix) {
	for _, subnet := range link.Subnets {
		if subnet.Contains(backend) {
			near = append(near, subnet)
		}
	}
	if e.Interface == "" {
		return near
	}
	if e.Index != link.Index {
		return nil
	}
	if near == nil {
		near = append(near, netip.PrefixFrom(backend, backend.BitLen()))
	}
	return near
}

// mergePrefixes removes prefixes that are contained in others, and those beyond lb.MaxNear of a family; dropped is the
// number of the latter.
func mergePrefixes(prefixes []netip.Prefix) (kept []netip.Prefix, dropped int) {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	counts := map[bool]int{}
	var last netip.Prefix
	for _, p := range slices.Compact(prefixes) {
		// A prefix sorts before those that it contains.
		if last.IsValid() && last.Overlaps(p) {
			continue
		}
		last = p
		if counts[p.Addr().Is4()] == lb.MaxNear {
			dropped++
			continue
		}
		counts[p.Addr().Is4()]++
		kept = append(kept, p)
	}
	return kept, dropped
}

// portsBeside returns a range of ports outside first..last; 0 if there is none.
func portsBeside(first, last uint16) (from, to uint16) {
	const most = 1<<16 - 1
	switch {
	case most-int(last) >= enoughAbove, most-int(last) >= fewestPorts && int(first) < lowestPort+fewestPorts:
		return last + 1, most
	case int(first) >= lowestPort+fewestPorts:
		return lowestPort, first - 1
	}
	return 0, 0
}

// IsOf reports whether the hairpins of the previous view are also those of the next one. It compares only their inputs,
// so that a verdict does not cost a walk over all backends.
func (h *Hairpins) IsOf(before, next *View, links []iface.State, ports string) bool {
	return before.Layout == next.Layout && h.ports == ports && slices.Equal(before.Known, next.Known) &&
		slices.EqualFunc(h.links, links, func(a, b iface.State) bool {
			return SameLink(a, b) && slices.Equal(a.Subnets, b.Subnets)
		})
}

// hairpinStatus returns the status of service i's near clients; nil if it has none.
func (v *View) hairpinStatus(i int, active uint32) *ops.Hairpin {
	s := &v.Config.Services[i]
	if !usesHairpins(s) || !v.State.Hairpin.On() {
		return nil
	}
	status := &ops.Hairpin{FirstPort: v.State.Hairpin.FirstPort, LastPort: v.State.Hairpin.LastPort, Active: active}
	for _, p := range v.State.Hairpin.At(0) {
		if slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return p.Contains(b.Address) }) &&
			!slices.Contains(status.Clients, p) {
			status.Clients = append(status.Clients, p)
		}
	}
	if len(status.Clients) == 0 {
		return nil
	}
	for _, p := range v.State.Services[i].Paths {
		if p.Local.IsValid() && !slices.Contains(status.From, p.Local) {
			status.From = append(status.From, p.Local)
		}
	}
	return status
}

// HairpinProblems lists the near clients that get no answer.
func (v *View) HairpinProblems() (list []string) {
	if v.Hairpin.Trouble != "" && v.Hairpin.On() {
		list = append(list, fmt.Sprintf("clients on the links of backends of mode %s are refused (hairpin): %s", lb.NAT,
			v.Hairpin.Trouble))
	}
	if v.Hairpin.Left > 0 {
		list = append(list,
			fmt.Sprintf("clients in %d networks of backends of mode %s get no answer from the VIPs (hairpin): an interface can have %d such networks of a family, and a backend behind a router is one by itself", v.Hairpin.Left, lb.NAT, lb.MaxNear))
	}
	return list
}

// PortRange is the sysctl of the range of local ports, for IPv6 too.
const PortRange = "net.ipv4.ip_local_port_range"
