// SPDX-License-Identifier: Apache-2.0

// Package mirror writes the routes that replies take into the memory that packets read (bpf/balancer/send/mirror.h).
//
// A byte for each 16 bits that an address can begin with names its next hop, or says that the kernel is to be asked: 64
// KiB for each family, however many routes there are. Where routes within those 16 bits lead elsewhere, IPv4 asks the
// kernel, and IPv6 looks the address's /64 up among a few that differ from their surroundings.
package mirror

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

const (
	groups     = 1 << 16
	maxHops    = int(objects.XDPMirrorTableMIRROR_HOPS) - 1
	exact      = byte(objects.XDPMirrorTableMIRROR_EXACT)
	netPlaces  = uint64(objects.XDPMirrorTableMIRROR_NETS)
	groupBits  = 16
	netBits    = 64 // of a struct mirror_net
	nothing    = 0  // the number of no next hop
	familyIPv4 = uint32(objects.XDPMirrorStateMIRROR_IPV4)
	familyIPv6 = uint32(objects.XDPMirrorStateMIRROR_IPV6)
)

// Blocks is how many struct mirror_block the map of both families has.
const Blocks = 2 * uint32(objects.XDPMirrorTableMIRROR_BLOCKS)

// Table is the memory of a mirror, which packets read. Its methods are for one goroutine at a time, but Retract.
type Table struct {
	// Head is that of a struct mirror, Groups that of all struct mirror_block.
	Head, Groups mapmem.Storage
}

// Invalidate has packets ask the kernel from now on, and invalidates the next hops that they have cached.
func (t Table) Invalidate() {
	word := t.control()
	for {
		old := atomic.LoadUint64(word)
		if atomic.CompareAndSwapUint64(word, old, old>>32<<32+1<<32) {
			return
		}
	}
}

// Enable has packets use the routes that were written, of these families.
func (t Table) Enable(ipv4, ipv6 bool) {
	state := uint32(0)
	if ipv4 {
		state |= familyIPv4
	}
	if ipv6 {
		state |= familyIPv6
	}
	word := t.control()
	atomic.StoreUint64(word, atomic.LoadUint64(word)>>32<<32|uint64(state))
}

// Enabled reports whether packets use the mirror.
func (t Table) Enabled() bool { return uint32(atomic.LoadUint64(t.control())) != 0 }

// control is the word of state, in its low half, and of epoch. The data plane is little endian, as its objects are.
func (t Table) control() *uint64 { return &t.Head[0] }

// Write replaces the routes of a mirror that was retracted. It returns when no packet is on its way that has read any
// of the previous ones.
func (t Table) Write(routes lb.ReplyRoutes) {
	rcu.Wait()
	made := encode(routes)
	head := (*objects.XDPMirror)(unsafe.Pointer(&t.Head[0]))
	head.Hops, head.Nets = made.hops, made.nets
	copy(t.Groups.Bytes(), made.groups[:])
	// On processors that reorder loads a packet may have read the table before the state, and must be gone, too.
	rcu.Wait()
}

// layout is a mirror as it lies in memory.
type layout struct {
	hops   [objects.XDPMirrorTableMIRROR_HOPS]objects.XDPMirrorHop
	nets   [objects.XDPMirrorTableMIRROR_NETS]objects.XDPMirrorNet
	groups [2 * groups]byte // IPv4, IPv6
	// apart are the next hops of IPv6 networks of 64 bits that differ from their group's.
	apart map[uint64]network
}

// network is an IPv6 network of 64 bits.
type network struct {
	group int // in layout.groups
	hop   byte
}

// encode lays routes out. For next hops beyond those that there are numbers for, the kernel is asked.
func encode(routes lb.ReplyRoutes) *layout {
	l := &layout{apart: map[uint64]network{}}
	for i, hop := range routes.Hops[:min(len(routes.Hops), maxHops)] {
		at := &l.hops[i+1]
		copy(at.Macs[:], hop.MAC[:])
		copy(at.Macs[lb.MACLength:], hop.Source[:])
		at.Interface, at.Mtu = uint32(hop.Interface), hop.MTU
	}
	ordered := slices.Clone(routes.Routes)
	slices.SortStableFunc(ordered, func(a, b lb.ReplyRoute) int { return a.Prefix.Bits() - b.Prefix.Bits() })
	for _, r := range ordered {
		number := byte(nothing)
		if r.Hop >= 0 && r.Hop < maxHops {
			number = byte(r.Hop + 1)
		}
		l.add(r.Prefix, number)
	}
	for _, p := range routes.Local {
		l.exclude(p)
	}
	l.place()
	return l
}

// span is the groups of a prefix that has at most 16 bits, or the one that a longer prefix is in: from, and to,
// exclusive.
func span(p netip.Prefix) (from, to int) {
	from = int(binary.BigEndian.Uint16(p.Masked().Addr().AsSlice()))
	if p.Addr().Is6() {
		from += groups
	}
	return from, from + 1<<max(groupBits-p.Bits(), 0)
}

// isNet reports whether a prefix is an IPv6 network of 64 bits, or a part of one.
func isNet(p netip.Prefix) bool { return p.Addr().Is6() && p.Bits() >= netBits }

// add lays a route out. Those of shorter prefixes are there.
func (l *layout) add(p netip.Prefix, number byte) {
	from, to := span(p)
	switch {
	case p.Bits() <= groupBits:
		for i := from; i < to; i++ {
			l.groups[i] = number
		}
	case isNet(p):
		l.addNet(p, number, from)
	case l.groups[from] != number:
		l.groups[from] = nothing
	}
}

func (l *layout) addNet(p netip.Prefix, number byte, group int) {
	key := keyOf(p)
	around, known := l.apart[key]
	if !known {
		around.hop = l.groups[group]
	}
	switch {
	case number == around.hop:
	case p.Bits() == netBits:
		l.apart[key] = network{group, number}
	default:
		l.apart[key] = network{group, nothing}
	}
}

// keyOf is the first half of an IPv6 address as packets have it.
func keyOf(p netip.Prefix) uint64 {
	a := p.Addr().As16()
	return binary.LittleEndian.Uint64(a[:netBits/8])
}

// exclude leaves a prefix, and all longer ones in it, to the kernel.
func (l *layout) exclude(p netip.Prefix) {
	from, to := span(p)
	if isNet(p) {
		l.apart[keyOf(p)] = network{from, nothing}
		return
	}
	for i := from; i < to; i++ {
		l.groups[i] = nothing
	}
	maps.DeleteFunc(l.apart, func(_ uint64, n network) bool { return n.group >= from && n.group < to })
}

// place gives networks their places by the hash of their keys. Where several have one place the kernel is asked, and so
// it is for the group of the key 0, which means that a place is free.
func (l *layout) place() {
	for key, n := range l.apart {
		if key == 0 {
			l.groups[n.group] = nothing
			continue
		}
		at := &l.nets[mapmem.HashMix(key*mapmem.HashMultiplier)>>32&(netPlaces-1)]
		if at.Key != 0 {
			at.Crowded = 1
		}
		at.Key, at.Hop = key, uint32(n.hop)
		l.groups[n.group] |= exact
	}
	if _, zero := l.apart[0]; zero {
		l.groups[groups] = nothing
	}
}
