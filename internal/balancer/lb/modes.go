// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"net/netip"
	"slices"
)

// ErrUnknownMode is the error for a name that is no mode's.
var ErrUnknownMode = errors.New("unknown mode")

// Mode is the way in which packets reach a backend.
type Mode string

// The modes. In all but NAT, FullNAT and ModeProxy the backend holds the VIP and answers the
// client directly.
const (
	// L2DSR rewrites the MAC addresses only. The backend is a neighbour.
	L2DSR Mode = "l2dsr"
	// IPIP puts the packet into another IP packet (RFC 2003, RFC 2473, RFC 4213),
	// whose family is that of the backend's address.
	IPIP Mode = "ipip"
	// GUE puts the packet into a UDP datagram to port 6080, by variant 1 of
	// draft-ietf-intarea-gue: no header stands between.
	GUE Mode = "gue"
	// DSCP rewrites the destination to the backend's address, and says by the
	// DSCP field which VIP it was (Yahoo's L3DSR).
	DSCP Mode = "dscp"
	// NAT rewrites the destination; replies come back through the balancer.
	NAT Mode = "nat"
	// FullNAT rewrites the source too, to an address and port of a pool, so that
	// replies come back without a route.
	FullNAT Mode = "fullnat"
	// ModeProxy hands connections to the proxy engine, which ends them and opens its own to backends; see Proxy.
	ModeProxy Mode = "proxy"
)

// Modes lists the modes in the order in which they are explained.
var Modes = append(slices.Clone(PacketModes), ModeProxy)

// PacketModes are the modes by which a data plane sends clients' packets on to backends: all but ModeProxy.
var PacketModes = []Mode{L2DSR, IPIP, GUE, DSCP, NAT, FullNAT}

// UnmarshalText accepts the modes' names; anything else is ErrUnknownMode.
func (m *Mode) UnmarshalText(text []byte) error { return oneOf(m, text, Modes, ErrUnknownMode) }

// Overhead returns by how many bytes a packet to a backend grows: an IP header
// of the backend's family and, with GUE, a UDP header.
func (m Mode) Overhead(backend netip.Addr) int {
	header := 40
	if backend.Unmap().Is4() {
		header = 20
	}
	switch m {
	case IPIP:
		return header
	case GUE:
		return header + 8
	}
	return 0
}

// modeProperties are the facts about a mode that code elsewhere asks for. Each fact has its one home here; code that
// builds the packets of one mode still names that mode.
type modeProperties struct {
	proxied, tunnels, marks, neighbours   bool
	translates, repliesByEndpoint, pooled bool
}

// properties is the table of the modes. A mode that does not exist has no property. It is a switch and not a map,
// because it is asked for each backend of each state.
func (m Mode) properties() modeProperties {
	switch m {
	case L2DSR:
		return modeProperties{neighbours: true}
	case IPIP:
		return modeProperties{tunnels: true}
	case GUE:
		return modeProperties{tunnels: true}
	case DSCP:
		return modeProperties{marks: true}
	case NAT:
		return modeProperties{translates: true, repliesByEndpoint: true}
	case FullNAT:
		return modeProperties{translates: true, pooled: true}
	case ModeProxy:
		return modeProperties{proxied: true}
	}
	return modeProperties{}
}

// Proxied reports whether the proxy engine ends the clients' connections and opens its own to backends, so that the
// data plane has nothing to do with the service, and the kernel's own routing leads to backends.
func (m Mode) Proxied() bool { return m.properties().proxied }

// Tunnels reports whether packets travel inside others, whatever the families.
func (m Mode) Tunnels() bool { return m.properties().tunnels }

// Marks reports whether packets show the backend by a mark, the DSCP field, which VIP they were sent to.
func (m Mode) Marks() bool { return m.properties().marks }

// NeedsNeighbours reports whether backends must be neighbours: no router may stand between.
func (m Mode) NeedsNeighbours() bool { return m.properties().neighbours }

// Translates reports whether addresses and ports of packets are rewritten in both directions.
func (m Mode) Translates() bool { return m.properties().translates }

// RepliesByEndpoint reports whether a reply is recognised by the address and port of the backend that sent it, so that
// no other service may translate to the same endpoint, and backends must route their replies through the balancer.
func (m Mode) RepliesByEndpoint() bool { return m.properties().repliesByEndpoint }

// UsesPool reports whether flows get source addresses and ports of the balancer's pool.
func (m Mode) UsesPool() bool { return m.properties().pooled }

// SeesReplies reports whether backends' replies come back through the balancer. In the other modes they go straight to
// the client.
func (m Mode) SeesReplies() bool { return m.Translates() || m.Proxied() }

// Remembers reports whether every flow is remembered whatever the scheduler: for the way back to the client, or because
// the proxy engine has a connection of its own for each.
func (m Mode) Remembers() bool { return m.UsesPool() || m.Proxied() }

// KeepsPort reports whether packets reach a backend with the address and port that the client wrote: the backend has
// the VIP, and its port is the service's.
func (m Mode) KeepsPort() bool { return !m.SeesReplies() }

// CrossesFamilies reports whether a backend may be of another family than the VIP.
func (m Mode) CrossesFamilies() bool { return m.Tunnels() || m.Proxied() }
