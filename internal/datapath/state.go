// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"net/netip"

	"github.com/jeoul/jeoul/internal/lb"
)

// State is everything that the data plane must know. Its slices must not be changed
// after Apply has had it: services that share them with the state before are taken for
// unchanged there, without another look.
type State struct {
	Services []Service
	// Pool is where full NAT takes source addresses and ports from.
	Pool Pool
	// Hook is where packets are to be taken; "" means where they are, and at first
	// Options.Hook. A detached datapath stays at its own.
	Hook lb.Hook
}

// Pool is a set of source addresses and ports. The addresses belong to the
// balancer, and so do TCP and UDP ports FirstPort..LastPort of each: packets to
// them that belong to no flow are dropped.
type Pool struct {
	Addresses           []netip.Addr
	FirstPort, LastPort uint16
}

// Service is a service, and how its backends are reached.
type Service struct {
	lb.Service
	// Paths[i] leads to Backends[i]. A backend without a usable path gets no
	// traffic.
	Paths []Path
}

// Path is how packets reach an address.
type Path struct {
	// Interface is the index of the interface that they leave by; 0 means the one
	// that they came in on.
	Interface int
	// MAC is the next hop's, 6 bytes; nil while it is unknown: nothing is sent.
	MAC net.HardwareAddr
	// Source is the MAC address of that interface, 6 bytes.
	Source net.HardwareAddr
	// MTU is the size of the largest IP packet, in bytes; 0 means 1500.
	MTU uint16
	// Local is the address that the host itself would send from: the source of
	// tunnel packets, of the backend's family.
	Local netip.Addr
}

// defaultMTU is that of Ethernet.
const defaultMTU = 1500

func (p Path) mtu() uint16 {
	if p.MTU == 0 {
		return defaultMTU
	}
	return p.MTU
}

// up says whether packets may be sent to backend i.
func (s Service) up(i int) bool { return i < len(s.Paths) && len(s.Paths[i].MAC) == macLength }

// member says whether backend i takes new flows.
func (s Service) member(i int) bool { return s.up(i) && s.Backends[i].TakesFlows() }

// macLength is the length of an Ethernet address in bytes.
const macLength = 6
