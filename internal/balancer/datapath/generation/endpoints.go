// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// previousTime is for how long the replies of a backend that has left (mode NAT) are still given the address of its
// VIP: as long as Linux retransmits unacknowledged data (net.ipv4.tcp_retries2, about 15 minutes). Before that they
// would reach clients from an address that these have never sent to.
const previousTime = 15 * time.Minute

// endpointKey is the source of a backend's replies: address, port and protocol.
type endpointKey struct {
	address  netip.AddrPort
	protocol lb.Protocol
}

// slot returns the key in the tables of endpoints.
func (k endpointKey) slot() mapmem.Key {
	return mapmem.KeyOf(k.address.Addr(), k.address.Port(), uint8(k.protocol))
}

// natEndpoint has the source that such replies are translated to.
type natEndpoint struct {
	VIP netip.AddrPort
	mss uint16
	// Index counts them. It is not given to another backend meanwhile.
	Index uint32
	// service is the id of the service, where its flows are remembered.
	service uint32
	// exceptions is the number of the service's list of them.
	exceptions uint32
	// Until is when it is forgotten; of a present backend's, nothing.
	Until time.Time
}

// value is the endpoint as the data plane reads it.
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

// removeEndpoints notes that the endpoints of a service are no more, unless others have
// taken them since. Those that stay are set again by addEndpoints.
func (r *PlaceChange) removeEndpoints(before *Record) {
	before.endpointsOf(func(key endpointKey, e natEndpoint) {
		if existing := r.Places.Endpoints[key]; existing.VIP == e.VIP {
			r.removedEndpoints[key] = existing
		}
	})
}

// claimEndpoints notes the endpoints that a service's backends have. All that are gone are
// known; the places of those that come need not be.
func (r *PlaceChange) claimEndpoints(after *Record) {
	after.endpointsOf(func(key endpointKey, _ natEndpoint) {
		delete(r.removedEndpoints, key)
		if _, previous := r.Places.Previous[key]; previous {
			r.claimed[key] = true
		}
	})
}

// addEndpoints notes the endpoints of a service that are new or have changed.
func (r *PlaceChange) addEndpoints(after *Record) {
	after.endpointsOf(func(key endpointKey, e natEndpoint) {
		if existing, there := r.Places.Endpoints[key]; !there || existing != e {
			r.endpoints[key] = e
		}
	})
}

// expirePrevious drops previous endpoints that a backend has now, and those that left too long ago.
func (r *PlaceChange) expirePrevious() {
	for key, e := range r.Places.Previous {
		if r.claimed[key] || r.now.After(e.Until) {
			r.expired = append(r.expired, key)
			// Fragments whose first one was a previous backend's reply go by the
			// generation, and must not follow it any more.
			if r.releaseIndex(e.Index) {
				r.generations[e.Index] = nextGeneration(r.generation(e.Index))
				r.vacated = append(r.vacated, e.Index)
			}
		}
	}
}

// holdPrevious holds the indices of the endpoints that are gone. It comes before the
// backends of the indices are released.
func (r *PlaceChange) holdPrevious() {
	for _, e := range r.removedEndpoints {
		r.retainIndex(e.Index)
	}
}

// previousOf returns a gone endpoint as it is kept for its last replies.
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
