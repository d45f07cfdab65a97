// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"maps"
	"net/netip"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// Services of a group share their clients' affinities (bpf/balancer/choose/group.h). A group has an id, as a
// service has, which is never another group's; and an affinity names a host by a number that
// follows from its address, so that no service needs to know of the others.

// group is one that services are in.
type group struct {
	id uint32
	// members is how many services are in it.
	members int
	// timeout is how long a client is remembered, in milliseconds.
	timeout uint32
}

// groupOf returns the id of a service's group, which it makes if there is none.
func (r *placeChange) groupOf(name string) uint32 {
	if name == "" {
		return 0
	}
	if g, known := r.places.groups[name]; known {
		return g.id
	}
	id, known := r.newGroups[name]
	if !known {
		id = r.places.groupIDs + uint32(len(r.newGroups))
		r.newGroups[name] = id
	}
	return id
}

// commitGroups takes note of the services that have come and gone.
func (p *places) commitGroups(c *revision) {
	groups := maps.Clone(p.groups)
	for name, id := range c.places.newGroups {
		groups[name] = group{id: id}
	}
	p.groupIDs += uint32(len(c.places.newGroups))
	count := func(r *record, n int) {
		if name := r.service.Persistence.Group; name != "" {
			g := groups[name]
			g.members += n
			if n > 0 {
				g.timeout = flowtable.Milliseconds(r.service.Persistence.Timeout)
			}
			groups[name] = g
		}
	}
	for _, s := range c.services {
		count(s.is, 1)
		if s.was != nil {
			count(s.was, -1)
		}
	}
	for _, was := range c.left {
		count(was, -1)
	}
	maps.DeleteFunc(groups, func(_ string, g group) bool { return g.members == 0 })
	p.groups = groups
}

// groupTimeouts are how long clients of the groups are remembered, by id, in milliseconds.
func (p *places) groupTimeouts() map[uint32]uint32 {
	timeouts := make(map[uint32]uint32, len(p.groups))
	for _, g := range p.groups {
		timeouts[g.id] = g.timeout
	}
	return timeouts
}

// hostNumber is what an affinity knows a host by: host_number() of bpf/balancer/choose/group.h.
func hostNumber(a netip.Addr) uint64 {
	w := mapmem.OfAddress(a)
	if a.Is4() {
		return uint64(w[0])
	}
	first, last := uint64(w[1])<<32|uint64(w[0]), uint64(w[3])<<32|uint64(w[2])
	return mapmem.HashMix(first*mapmem.HashMultiplier+last*mapmem.HashMultiplier2)>>17 | 1<<47
}

// hosts are those of a service that shares its persistence, as the data plane reads them;
// nil of others.
func (r *record) hosts() []objects.XDPHost {
	s := &r.service
	if s.Persistence.Group == "" || !s.Persistence.On() {
		return nil
	}
	places := hostPlaces(len(s.Backends))
	for {
		table := make([]objects.XDPHost, 1+places)
		table[0] = objects.XDPHost{Number: uint64(places), Index: r.group}
		if r.putHosts(table[1:]) {
			return table
		}
		places *= 2
	}
}

// hostPlaces is how many places there are at first for so many hosts.
func hostPlaces(hosts int) uint32 { return mapmem.PowerOfTwo(2 * hosts) }

// putHosts fills the places; false where one has no room within the probes. Of two backends
// with one address the first is the host.
func (r *record) putHosts(places []objects.XDPHost) bool {
	for i, b := range r.service.Backends {
		host := objects.XDPHost{Number: hostNumber(b.Address), Index: r.places[i].index,
			Generation: r.places[i].generation}
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

// hostBytes are hosts as they lie in memory.
func hostBytes(hosts []objects.XDPHost) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(hosts))),
		len(hosts)*int(unsafe.Sizeof(objects.XDPHost{})))
}

// need returns how many units a service takes in the arena. Hosts seldom need more places
// than at first; there is room to spare for that.
func (r *record) need() uint32 {
	n := r.view.Need()
	if r.service.Persistence.Group != "" {
		n += mapmem.Units((1 + int(hostPlaces(len(r.service.Backends)))) * int(unsafe.Sizeof(objects.XDPHost{})))
	}
	return n
}
