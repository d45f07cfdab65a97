// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
)

// endpoint is a pod, or another server, behind one port of a Service.
type endpoint struct {
	address netip.AddrPort
	// name is the pod's; the address where it is none.
	name string
	// node is empty where it is not known.
	node string
	// ready takes new flows. terminating has been told to end, and serves as long as it is serving.
	ready, serving, terminating bool
	// zones are the zones that it is meant for; empty: it has no hint.
	zones []string
	// eligible: it is one of those that take new flows. The others that are there keep theirs.
	eligible bool
}

// endpointsOf returns the endpoints of one family of a port, by address. Which of them take new flows is as KEP-1669
// has it: those that are ready; where none is, those that serve although they terminate.
func endpointsOf(list []*discoveryv1.EndpointSlice, port *corev1.ServicePort, family pools.Family,
	zone string) []endpoint {
	found := map[netip.AddrPort]endpoint{}
	for _, slice := range list {
		if slice.AddressType != addressType(family) {
			continue
		}
		number, there := portOf(slice, port)
		if !there {
			continue
		}
		for i := range slice.Endpoints {
			e, ok := endpointOf(&slice.Endpoints[i], number)
			// A slice that is being replaced may still have an older state of it.
			if before, duplicate := found[e.address]; ok && (!duplicate || !before.ready && e.ready) {
				found[e.address] = e
			}
		}
	}
	all := make([]endpoint, 0, len(found))
	for _, e := range found {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b endpoint) int { return a.address.Compare(b.address) })
	markEligible(all, zone)
	return all
}

func addressType(family pools.Family) discoveryv1.AddressType {
	if family == pools.IPv6 {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

// portOf returns the number that a port of a Service has at the endpoints of a slice.
func portOf(slice *discoveryv1.EndpointSlice, port *corev1.ServicePort) (uint16, bool) {
	for _, p := range slice.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if p.Port != nil && *p.Port > 0 && *p.Port < 1<<16 && name == port.Name &&
			protocol == cmp.Or(port.Protocol, corev1.ProtocolTCP) {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

// endpointOf reads an endpoint. Conditions that it leaves out have the API's defaults: ready, serving as ready, not
// terminating. Of several addresses the first counts, as it does for kube-proxy.
func endpointOf(from *discoveryv1.Endpoint, port uint16) (endpoint, bool) {
	if len(from.Addresses) == 0 {
		return endpoint{}, false
	}
	addr, err := netip.ParseAddr(from.Addresses[0])
	if err != nil || addr.Zone() != "" || !addr.Unmap().IsGlobalUnicast() {
		return endpoint{}, false
	}
	c := from.Conditions
	e := endpoint{address: netip.AddrPortFrom(addr.Unmap(), port), name: from.Addresses[0],
		ready:       c.Ready == nil || *c.Ready,
		terminating: c.Terminating != nil && *c.Terminating}
	e.serving = e.ready
	if c.Serving != nil {
		e.serving = *c.Serving
	}
	if from.NodeName != nil {
		e.node = *from.NodeName
	}
	if from.TargetRef != nil && from.TargetRef.Kind == "Pod" && from.TargetRef.Name != "" {
		e.name = from.TargetRef.Name
	}
	if from.Hints != nil {
		for _, zone := range from.Hints.ForZones {
			e.zones = append(e.zones, zone.Name)
		}
	}
	return e, true
}

// markEligible marks those that take new flows. Hints are heeded where all that could take them have one, and one
// is for the zone, as kube-proxy does.
func markEligible(all []endpoint, zone string) {
	usable := func(e endpoint) bool { return e.ready }
	if !slices.ContainsFunc(all, usable) {
		usable = func(e endpoint) bool { return e.serving && e.terminating }
	}
	hinted, inZone := zone != "", false
	for _, e := range all {
		if usable(e) {
			hinted = hinted && len(e.zones) > 0
			inZone = inZone || slices.Contains(e.zones, zone)
		}
	}
	for i := range all {
		all[i].eligible = usable(all[i]) && (!hinted || !inZone || slices.Contains(all[i].zones, zone))
	}
}
