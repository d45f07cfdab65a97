// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Services of a group share their clients' affinities (bpf/balancer/select/group.h). A group has an id, as a
// service has, which is never another group's; and an affinity names a host by a number that
// follows from its address, so that no service needs to know of the others.

// group is a group of services that share their persistence.
type group struct {
	ID uint32
	// Members is how many services are in it.
	Members int
	// timeout is how long a client is remembered, in milliseconds.
	timeout uint32
}

// groupOf returns the id of a service's group, which it makes if there is none.
func (r *PlaceChange) groupOf(name string) uint32 {
	if name == "" {
		return 0
	}
	if g, known := r.Places.Groups[name]; known {
		return g.ID
	}
	id, known := r.newGroups[name]
	if !known {
		id = r.Places.groupIDs + uint32(len(r.newGroups))
		r.newGroups[name] = id
	}
	return id
}

// GroupTimeouts are how long clients of the groups are remembered, by id, in milliseconds.
func (p *Places) GroupTimeouts() map[uint32]uint32 {
	timeouts := make(map[uint32]uint32, len(p.Groups))
	for _, g := range p.Groups {
		timeouts[g.ID] = g.timeout
	}
	return timeouts
}

// hostNumber is the number by which an affinity knows a host: host_number() of bpf/balancer/select/group.h.
func hostNumber(a netip.Addr) uint64 {
	w := mapmem.OfAddress(a)
	if a.Is4() {
		return uint64(w[0])
	}
	first, last := uint64(w[1])<<32|uint64(w[0]), uint64(w[3])<<32|uint64(w[2])
	return mapmem.HashMix(first*mapmem.HashMultiplier+last*mapmem.HashMultiplier2)>>17 | 1<<47
}

// Hosts are those of a service that shares its persistence, as the data plane reads them;
// nil of others.
func (r *Record) Hosts() []objects.XDPHost {
	s := &r.Service
	if s.Persistence.Group == "" || !s.Persistence.On() {
		return nil
	}
	places := hostPlaces(len(s.Backends))
	for {
		table := make([]objects.XDPHost, 1+places)
		table[0] = objects.XDPHost{Number: uint64(places), Index: r.Group}
		if r.putHosts(table[1:]) {
			return table
		}
		places *= 2
	}
}

// hostPlaces is the first number of places to try for so many hosts.
func hostPlaces(hosts int) uint32 { return mapmem.PowerOfTwo(2 * hosts) }

// putHosts fills the places; false where one has no room within the probes. Of two backends
// with one address the first is the host.
func (r *Record) putHosts(places []objects.XDPHost) bool {
	for i, b := range r.Service.Backends {
		host := objects.XDPHost{Number: hostNumber(b.Address), Index: r.Places[i].Index,
			Generation: r.Places[i].Generation}
		home, put := uint32(host.Number*mapmem.HashMultiplier>>32), false
		for probe := uint32(0); probe < uint32(objects.XDPHostTableHOST_PROBES) && !put; probe++ {
			at := &places[(home+probe)&uint32(len(places)-1)]
			if put = at.Number == 0 || at.Number == host.Number; at.Number == 0 {
				*at = host
			}
		}
		if !put {
			return false
		}
	}
	return true
}

// hostBytes returns the memory of hosts.
func hostBytes(hosts []objects.XDPHost) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(hosts))),
		len(hosts)*int(unsafe.Sizeof(objects.XDPHost{})))
}

// unitsNeeded returns how many units a service takes in the arena. Hosts seldom need more places
// than at first; there is room to spare for that.
func (r *Record) unitsNeeded() uint32 {
	n := r.View.Need()
	if r.Service.Persistence.Group != "" {
		n += mapmem.Units((1 + int(hostPlaces(len(r.Service.Backends)))) * int(unsafe.Sizeof(objects.XDPHost{})))
	}
	return n
}
