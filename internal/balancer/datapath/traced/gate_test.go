// SPDX-License-Identifier: Apache-2.0

package traced

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// plainPacket has the fields of a plain packet that filters test: words and ports are in network byte order.
type plainPacket struct {
	source, destination         [4]uint32
	sourcePort, destinationPort uint16
	family, protocol            uint8
}

// matchesToVIP says whether a filter matches the packet on its way to a VIP, as capture_may_match and
// capture_may_be_service of bpf/balancer/capture/filter.h have it, but for the interface.
func matchesToVIP(f *XdpCaptureFilter, p plainPacket) bool {
	for i := range p.source {
		if p.source[i]&f.ClientMask[i] != f.Client[i] || p.destination[i]&f.VipMask[i] != f.Vip[i] ||
			f.ServicePort != 0 && p.destination[i] != f.ServiceVip[i] {
			return false
		}
	}
	return f.Id != 0 && (f.Family == 0 || f.Family == p.family) && (f.Protocol == 0 || f.Protocol == p.protocol) &&
		(f.ClientPort == 0 || f.ClientPort == p.sourcePort) && (f.VipPort == 0 || f.VipPort == p.destinationPort) &&
		(f.ServicePort == 0 || f.ServicePort == p.destinationPort)
}

// passes says whether the packet passes the gate, as capture_pass has it for a packet to a VIP.
func passes(g XdpCaptureGate, p plainPacket) bool {
	words := 1
	if p.family == 6 {
		words = 4
	}
	for i := range words {
		if p.source[i]&g.ClientMask[i] != g.Client[i] || p.destination[i]&g.VipMask[i] != g.Vip[i] {
			return false
		}
	}
	var ports [4]byte
	binary.NativeEndian.PutUint16(ports[:], p.sourcePort)
	binary.NativeEndian.PutUint16(ports[2:], p.destinationPort)
	return g.Open != 0 && binary.NativeEndian.Uint32(ports[:])&g.PortsMask == g.Ports &&
		uint32(p.protocol)&g.ProtocolMask == g.Protocol
}

// words returns random words of an address, of few values, so that those of filters and packets are often the same.
func words(r *rand.Rand, family uint8) (address [4]uint32) {
	address[0] = r.Uint32N(3) * 0x01010101
	if family == 6 {
		for i := range address[1:] {
			address[1+i] = r.Uint32N(2) * 0x80000001
		}
	}
	return address
}

// randomFilter returns a filter in which each condition is there or not.
func randomFilter(r *rand.Rand) (f XdpCaptureFilter) {
	family := []uint8{4, 6}[r.IntN(2)]
	some := func() bool { return r.IntN(2) == 0 }
	masked := func(address, mask *[4]uint32) {
		if some() {
			return
		}
		f.Family = family
		*address = words(r, family)
		for i := range mask {
			mask[i] = []uint32{0xffffffff, 0x0000ffff, 0}[r.IntN(3)]
			address[i] &= mask[i]
		}
	}
	masked(&f.Client, &f.ClientMask)
	masked(&f.Vip, &f.VipMask)
	if some() {
		f.ClientPort = uint16(1 + r.IntN(2))
	}
	if some() {
		f.VipPort = uint16(1 + r.IntN(2))
	}
	if some() {
		f.Protocol = []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP}[r.IntN(2)]
	}
	if some() {
		f.ServicePort, f.ServiceVip = uint16(1+r.IntN(2)), words(r, family)
	}
	if r.IntN(4) == 0 {
		f.Interface = 1
	}
	f.Id = uint32(r.IntN(4)) // of a slot that is free in a quarter of the cases
	return f
}

// TestGateOpensForEachMatch: a packet that a filter matches passes the gate of its family, and one that passes where
// the gate names an only filter is matched by that.
func TestGateOpensForEachMatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	matched, held, only := 0, 0, 0
	for range 200_000 {
		var slots [4]XdpCaptureFilter
		for i := range 1 + r.IntN(3) {
			slots[i] = randomFilter(r)
		}
		gates := gatesOf(slots[:])
		p := plainPacket{family: []uint8{4, 6}[r.IntN(2)],
			protocol:   []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP}[r.IntN(2)],
			sourcePort: uint16(1 + r.IntN(2)), destinationPort: uint16(1 + r.IntN(2))}
		p.source, p.destination = words(r, p.family), words(r, p.family)
		gate := gates[p.family/2-2]
		passed := passes(gate, p)
		for i := range slots {
			match := matchesToVIP(&slots[i], p)
			if match {
				matched++
			}
			if match && !passed {
				t.Fatalf("filter %+v matches %+v, which does not pass %+v", slots[i], p, gate)
			}
			if passed && int(gate.Only) == i+1 && !match {
				t.Fatalf("filter %+v does not match %+v, which passes %+v", slots[i], p, gate)
			}
		}
		if !passed {
			held++
		} else if gate.Only != 0 {
			only++
		}
	}
	if matched < 1000 || held < 1000 || only < 1000 {
		t.Errorf("%d matches, %d packets held back, %d sampled at the gate: too few to mean something", matched, held, only)
	}
}
