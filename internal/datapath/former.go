// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"maps"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/lb"
)

// formerTime is for how long the replies of a backend that has left (mode NAT) are
// still given the address of its VIP: as long as Linux goes on sending again what
// nobody acknowledges (net.ipv4.tcp_retries2, about 15 minutes). Before that they
// would reach clients from an address that these have never sent to.
const formerTime = 15 * time.Minute

// endpointKey is what a backend's replies bear.
type endpointKey struct {
	address  netip.AddrPort
	protocol lb.Protocol
}

// natEndpoint is what the source of such replies becomes.
type natEndpoint struct {
	vip netip.AddrPort
	mss uint16
	// index counts them. It is not given to another backend meanwhile.
	index uint32
	// until is when it is forgotten; of a present backend's, nothing.
	until time.Time
}

// endpointsOf lists the endpoints of a state, with their places.
func endpointsOf(state State, backends map[lb.BackendKey]place) map[endpointKey]natEndpoint {
	all := map[endpointKey]natEndpoint{}
	for _, s := range state.Services {
		if s.Mode != lb.NAT {
			continue
		}
		for _, b := range s.Backends {
			all[endpointKey{netip.AddrPortFrom(b.Address, b.Port), s.Protocol}] = natEndpoint{
				vip: netip.AddrPortFrom(s.VIP, s.Port), mss: s.MSS, index: backends[s.BackendKey(b)].index}
		}
	}
	return all
}

// formerAfter returns the endpoints of backends that have left when state comes:
// those that left before, but for what is too long ago, and those that leave now.
// What a backend of state has is its own.
func (p places) formerAfter(state State, now time.Time) map[endpointKey]natEndpoint {
	former := maps.Clone(p.former)
	if former == nil {
		former = map[endpointKey]natEndpoint{}
	}
	for key, e := range p.endpoints {
		e.until = now.Add(formerTime)
		former[key] = e
	}
	present := endpointsOf(state, nil)
	maps.DeleteFunc(former, func(key endpointKey, e natEndpoint) bool {
		_, claimed := present[key]
		return claimed || now.After(e.until)
	})
	return former
}

// addFormer lets the data plane know them.
func (c *contents) addFormer(at places) {
	for key, e := range at.former {
		c.modes |= 1 << xdpModeMODE_NAT
		if c.backends[e.index].Generation == 0 { // no owner
			c.backends[e.index] = xdpBackend{Index: e.index, Generation: at.generations[e.index]}
		}
		value := xdpEndpoint{
			Vip:     addressWords(e.vip.Addr()),
			Port:    networkOrder(e.vip.Port()),
			Mss:     e.mss,
			Backend: e.index,
		}
		addAddressed(c.endpoints4, c.endpoints6, key.address.Addr(), key.address.Port(), uint8(key.protocol), value)
		addAddressed(c.endpoints4, c.endpoints6, key.address.Addr(), 0, uint8(xdpAgreementPROTOCOL_ANY), xdpEndpoint{})
	}
}
