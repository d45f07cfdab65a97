// SPDX-License-Identifier: Apache-2.0

// Package members has balancers that share VIPs know of each other: who is there, and whether they send a flow to
// the same backend. It decides nothing; membership is hashicorp/memberlist's (SWIM).
package members

import "net/netip"

// Peer is another member that is reached now.
type Peer struct {
	// Name is unique among members.
	Name string
	// Address is its own on the members' network, where its gossip is heard.
	Address netip.AddrPort
}

// Group is what others of this process may know of the members.
type Group interface {
	// Peers are the other members that are reached now, by name. Safe for concurrent use.
	Peers() []Peer
	// Changed returns a channel that is closed when Peers may return others than before the call.
	Changed() <-chan struct{}
}
