// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// previousTime is for how long replies of a removed backend (mode NAT) are still translated to its VIP: as long as
// Linux retransmits unacknowledged data (net.ipv4.tcp_retries2, about 15 minutes). Untranslated, they would reach
// clients from an address to which those have never sent.
const previousTime = 15 * time.Minute

// endpointKey is the source of a backend's replies: address, port and protocol.
type endpointKey struct {
	address  netip.AddrPort
	protocol lb.Protocol
}

// slot returns the endpoint's key in the directories of endpoints.
func (k endpointKey) slot() mapmem.Key {
	return mapmem.KeyOf(k.address.Addr(), k.address.Port(), uint8(k.protocol))
}

// natEndpoint has the source to which replies from an endpoint are translated.
type natEndpoint struct {
	VIP netip.AddrPort
	mss uint16
	// Index is the backend index under which replies are counted. No other backend gets it meanwhile.
	Index uint32
	// service is the id of the service, where its flows are remembered.
	service uint32
	// exceptions is the number of the service's list of exceptions.
	exceptions uint32
	// Until is when the endpoint of a removed backend is removed; zero for a present backend.
	Until time.Time
}

// value returns the endpoint in the layout of the data plane.
func (e natEndpoint) value() objects.XDPEndpoint {
	return objects.XDPEndpoint{Vip: mapmem.OfAddress(e.VIP.Addr()), Port: mapmem.NetworkOrder(e.VIP.Port()),
		Mss: e.mss, Backend: e.Index, Service: e.service, Exceptions: e.exceptions}
}

// endpointsOf calls do for the endpoints of a service, if it has any.
func (r *Record) endpointsOf(do func(endpointKey, natEndpoint)) {
	s := &r.Service
	if s.Mode != lb.NAT {
		return
	}
	e := natEndpoint{VIP: netip.AddrPortFrom(s.VIP, s.Port), mss: s.MSS,
		service: uint32(objects.XDPNoServiceNO_SERVICE), exceptions: r.Exceptions}
	if r.Remembers {
		e.service = r.ID
	}
	for i, b := range s.Backends {
		e.Index = r.Places[i].Index
		do(endpointKey{netip.AddrPortFrom(b.Address, b.Port), s.Protocol}, e)
	}
}

// removeEndpoints marks the endpoints of a service as removed, unless another service has them by now. addEndpoints
// sets those that stay again.
func (r *PlaceChange) removeEndpoints(before *Record) {
	before.endpointsOf(func(key endpointKey, e natEndpoint) {
		if existing := r.Places.Endpoints[key]; existing.VIP == e.VIP {
			r.removedEndpoints[key] = existing
		}
	})
}

// claimEndpoints marks the endpoints of a service's backends as in use. All removed endpoints must be marked before;
// the places of added backends need not be known.
func (r *PlaceChange) claimEndpoints(after *Record) {
	after.endpointsOf(func(key endpointKey, _ natEndpoint) {
		delete(r.removedEndpoints, key)
		if _, previous := r.Places.Previous[key]; previous {
			r.claimed[key] = true
		}
	})
}

// addEndpoints adds the endpoints of a service that are new or have changed to the change.
func (r *PlaceChange) addEndpoints(after *Record) {
	after.endpointsOf(func(key endpointKey, e natEndpoint) {
		if existing, found := r.Places.Endpoints[key]; !found || existing != e {
			r.endpoints[key] = e
		}
	})
}

// expirePrevious removes previous endpoints that a present backend has, and those that were removed too long ago.
func (r *PlaceChange) expirePrevious() {
	for key, e := range r.Places.Previous {
		if r.claimed[key] || r.now.After(e.Until) {
			r.expired = append(r.expired, key)
			// Later fragments of a previous backend's reply are recognised by the generation, and must not be any more.
			if r.releaseIndex(e.Index) {
				r.generations[e.Index] = nextGeneration(r.generation(e.Index))
				r.vacated = append(r.vacated, e.Index)
			}
		}
	}
}

// holdPrevious retains the indices of removed endpoints, before the backends release them.
func (r *PlaceChange) holdPrevious() {
	for _, e := range r.removedEndpoints {
		r.retainIndex(e.Index)
	}
}

// previousOf returns a removed endpoint as it is kept for its last replies.
func (r *PlaceChange) previousOf(e natEndpoint) natEndpoint {
	e.Until, e.service = r.now.Add(previousTime), uint32(objects.XDPNoServiceNO_SERVICE)
	return e
}

// commitEndpoints is the part of commit that is about endpoints.
func (r *PlaceChange) commitEndpoints() {
	p := r.Places
	for _, key := range r.expired {
		delete(p.Previous, key)
	}
	for key, e := range r.removedEndpoints {
		delete(p.Endpoints, key)
		p.Previous[key] = r.previousOf(e)
	}
	for key, e := range r.endpoints {
		p.Endpoints[key] = e
	}
}
