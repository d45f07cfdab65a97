// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Services of a group share their clients' affinities (bpf/balancer/select/group.h). A group has an id, which no other
// group ever gets; and an affinity identifies a host by a number that is computed from its address, so that services
// need not know each other.

// group is a group of services that share their persistence.
type group struct {
	ID uint32
	// Members is the number of services in it.
	Members int
	// timeout is for how long a client is remembered, in milliseconds.
	timeout uint32
}

// groupOf returns the id of a service's group, and allocates one for a new group.
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

// GroupTimeouts returns for how long each group's clients are remembered, by id, in milliseconds.
func (p *Places) GroupTimeouts() map[uint32]uint32 {
	timeouts := make(map[uint32]uint32, len(p.Groups))
	for _, g := range p.Groups {
		timeouts[g.ID] = g.timeout
	}
	return timeouts
}

// hostNumber returns the number by which an affinity identifies a host: host_number() of bpf/balancer/select/group.h.
func hostNumber(a netip.Addr) uint64 {
	w := mapmem.OfAddress(a)
	if a.Is4() {
		return uint64(w[0])
	}
	first, last := uint64(w[1])<<32|uint64(w[0]), uint64(w[3])<<32|uint64(w[2])
	return mapmem.HashMix(first*mapmem.HashMultiplier+last*mapmem.HashMultiplier2)>>17 | 1<<47
}

// Hosts returns the table of hosts of a service that shares its persistence, in the layout of the data plane; nil for
// other services.
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

// hostPlaces returns the first number of places to try for that many hosts.
func hostPlaces(hosts int) uint32 { return mapmem.PowerOfTwo(2 * hosts) }

// putHosts fills the places; false where a host has no room within the probes. Of two backends with the same address
// the first is the host.
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

// unitsNeeded returns how many units a service takes in the arena. Hosts seldom need more places than the first number
// to try; the headroom suffices for that.
func (r *Record) unitsNeeded() uint32 {
	n := r.View.Need()
	if r.Service.Persistence.Group != "" {
		n += mapmem.Units((1 + int(hostPlaces(len(r.Service.Backends)))) * int(unsafe.Sizeof(objects.XDPHost{})))
	}
	return n
}
