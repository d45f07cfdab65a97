// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"cmp"
	"net/netip"
)

// MembersConfig is how balancers that share VIPs know of each other.
type MembersConfig struct {
	// Listen is the address on which this balancer listens to the others, by UDP and TCP; invalid: it has no members.
	Listen netip.AddrPort
	// Peers are the addresses of the others, which listen on the same port. This one's may be among them.
	Peers []netip.Addr
	// KeyFile has the key that all of them know each other by.
	KeyFile string
	// Name is this balancer's among them; empty: its host's.
	Name string
	// HandOver: flows that others would lose are handed over between members, at the port FlowsPort of all of them; 0:
	// the one after that of Listen.
	HandOver  bool
	FlowsPort uint16
}

// FlowsAt is the port of members at which they take flows; only for those that have an address to listen on.
func (m MembersConfig) FlowsAt() uint16 { return cmp.Or(m.FlowsPort, m.Listen.Port()+1) }

// ServiceTable is the table by which a service's new flows get their backends, in the form in which balancers compare
// it.
type ServiceTable struct {
	Key  ServiceKey
	Name string
	// Digest is ServiceCount.TableDigest.
	Digest uint64
	// Takers are the backends that take new flows; nil where there are more than MaxTakers.
	Takers []Taker
}

// Taker is a backend that takes new flows.
type Taker struct {
	Endpoint netip.AddrPort
	Weight   uint32
}

// MaxTakers is the number of backends of a service up to which they are compared one by one.
const MaxTakers = 64

// Peer is another member that is reached now.
type Peer struct {
	// Name is unique among members.
	Name string
	// Address is its own on the members' network: where its gossip is heard, or where it takes flows.
	Address netip.AddrPort
}
