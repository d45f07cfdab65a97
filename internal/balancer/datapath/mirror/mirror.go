// SPDX-License-Identifier: Apache-2.0

// Package mirror writes the routes that replies take into the memory that packets read (bpf/balancer/send/mirror.h).
//
// The mirror has a byte for each value of the first 16 bits of an address: the number of the next hop, or a number that
// leaves the lookup to the kernel. That is 64 KiB for each family, however many routes there are. Where longer prefixes
// within those 16 bits have another next hop, IPv4 leaves the lookup to the kernel, and IPv6 looks up the address's /64
// among the few that differ from their group.
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

// Blocks is the number of struct mirror_block in the map of both families.
const Blocks = 2 * uint32(objects.XDPMirrorTableMIRROR_BLOCKS)

// Table is the memory of a mirror, which packets read. Its methods except Invalidate are for one goroutine at a time.
type Table struct {
	// Head is the memory of a struct mirror, Groups that of all struct mirror_block.
	Head, Groups mapmem.Storage
}

// Invalidate makes packets use the kernel's lookup from now on, and invalidates cached next hops.
func (t Table) Invalidate() {
	word := t.control()
	for {
		old := atomic.LoadUint64(word)
		if atomic.CompareAndSwapUint64(word, old, old>>32<<32+1<<32) {
			return
		}
	}
}

// Enable makes packets use the written routes of these families.
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

// control returns the word with the state, in its low half, and the epoch. The data plane is little endian.
func (t Table) control() *uint64 { return &t.Head[0] }

// Write replaces the routes of an invalidated mirror. It returns when no packet is in processing that may have read the
// previous ones.
func (t Table) Write(routes lb.ReplyRoutes) {
	rcu.Wait()
	encoded := encode(routes)
	head := (*objects.XDPMirror)(unsafe.Pointer(&t.Head[0]))
	head.Hops, head.Nets = encoded.hops, encoded.nets
	copy(t.Groups.Bytes(), encoded.groups[:])
	// On processors that reorder loads a packet may have read the table before the state: wait for such packets, too.
	rcu.Wait()
}

// layout is a mirror in its layout in memory.
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

// encode returns the layout of routes. Next hops beyond maxHops are left to the kernel.
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

// span returns the groups of a prefix of at most 16 bits, or the group of a longer prefix, from (inclusive) to
// (exclusive).
func span(p netip.Prefix) (from, to int) {
	from = int(binary.BigEndian.Uint16(p.Masked().Addr().AsSlice()))
	if p.Addr().Is6() {
		from += groups
	}
	return from, from + 1<<max(groupBits-p.Bits(), 0)
}

// isNet reports whether a prefix is an IPv6 network of 64 bits, or a part of one.
func isNet(p netip.Prefix) bool { return p.Addr().Is6() && p.Bits() >= netBits }

// add adds a route, after those of shorter prefixes.
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

// keyOf returns the first half of an IPv6 address, in the byte order of packets.
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

// place writes networks into their places, by the hash of their keys. Networks that collide are left to the kernel, and
// so is the group of the key 0, which marks a free place.
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
