// SPDX-License-Identifier: Apache-2.0

package lb

import "net/netip"

// ReplyRoutes are the kernel's routes that replies (modes nat and fullnat) take, as far as the data plane can answer
// exactly as the kernel would. For other destinations the kernel is asked.
type ReplyRoutes struct {
	// IPv4 and IPv6 say of which families they hold.
	IPv4, IPv6 bool
	Hops       []NextHop
	Routes     []ReplyRoute
	// Local are the prefixes of the table local, which the kernel asks first, whatever longer prefixes the other
	// tables have.
	Local []netip.Prefix
}

// ReplyRoute leads to one of the next hops.
type ReplyRoute struct {
	Prefix netip.Prefix
	// Hop is an index of ReplyRoutes.Hops, or AskKernel.
	Hop int
}

// AskKernel is the next hop of routes of which the kernel is asked.
const AskKernel = -1

// NextHop is a router whose MAC address is known, and the interface that leads there.
type NextHop struct {
	Interface   int // its index
	MAC, Source [MACLength]byte
	// MTU is the largest IP packet that the way takes, in bytes.
	MTU uint32
}

// ReplyHop is a neighbour that the data plane sends replies to by the kernel's routes (modes nat and fullnat): the
// client itself, or the router before it.
type ReplyHop struct {
	Interface int // its index
	Address   netip.Addr
	Router    bool
}
