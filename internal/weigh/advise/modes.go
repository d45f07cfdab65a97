// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// demand holds the requirements of a mode on the network and on clients.
type demand struct {
	mode lb.Mode
	// segment: the balancer sends frames to backends directly.
	segment bool
	permits []Permission
	// shows is where backends find the client's address, at best.
	shows ClientAddress
}

// demands are in the order of preference: by the cost of a packet, and by the bytes that it grows by
// (docs/guides/modes.md).
var demands = []demand{
	{mode: lb.L2DSR, segment: true, permits: []Permission{Backends, Bypass}, shows: InPacket},
	{mode: lb.IPIP, permits: []Permission{Tunnels, Backends, Bypass}, shows: InPacket},
	{mode: lb.DSCP, permits: []Permission{Backends, Bypass}, shows: InPacket},
	{mode: lb.NAT, permits: []Permission{Backends}, shows: InPacket},
	{mode: lb.FullNAT, shows: Nowhere},
	{mode: lb.ModeProxy, shows: InHeader},
}

// whyPermit holds the reasons why a mode needs a permission.
var whyPermit = map[lb.Mode]map[Permission]string{
	lb.L2DSR: {Backends: "each backend holds the VIP", Bypass: "replies go to clients straight"},
	lb.IPIP: {Tunnels: "packets go to backends in IP in IP",
		Backends: "each backend holds the VIP and decapsulates", Bypass: "replies go to clients straight"},
	lb.DSCP: {Backends: "each backend holds the VIP and restores addresses", Bypass: "replies go to clients straight"},
	lb.NAT:  {Backends: "backends route clients back through the balancer"},
}

// Excluded is a mode that the answers exclude, and the reason.
type Excluded struct {
	Mode lb.Mode `json:"mode"`
	Why  string  `json:"why"`
}

// excludes returns the reason why the answers exclude a mode; empty if they do not.
func (d demand) excludes(a Answers) string {
	if a.Layer7 && d.mode != lb.ModeProxy {
		return "layer7: packets are forwarded, and connections are not ended"
	}
	if d.mode == lb.ModeProxy && a.Speaks.datagrams() {
		return "speaks " + string(a.Speaks) + ": a proxy takes TCP"
	}
	if d.segment && a.Network != Segment {
		return "network " + string(a.Network) + ": backends must be on the balancer's segment"
	}
	for _, p := range d.permits {
		if !a.permits(p) {
			return "permits lacks " + string(p) + ": " + whyPermit[d.mode][p]
		}
	}
	if a.ClientAddress == InPacket && d.shows != InPacket {
		return "client-address packet: backends see the balancer's address"
	}
	if a.ClientAddress == InHeader && d.shows == Nowhere {
		return "client-address header: packets are translated, and nothing is written into them"
	}
	return ""
}

// chosen returns the first mode that the answers permit, nil if there is none, and the modes that they exclude.
func chosen(a Answers) (*demand, []Excluded) {
	var excluded []Excluded
	var found *demand
	for i := range demands {
		if why := demands[i].excludes(a); why != "" {
			excluded = append(excluded, Excluded{demands[i].mode, why})
		} else if found == nil {
			found = &demands[i]
		}
	}
	return found, excluded
}
