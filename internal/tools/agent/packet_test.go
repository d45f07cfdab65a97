// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// families calls a test with each pair of an outer and an inner address family.
func families(t *testing.T, test func(t *testing.T, outer6 bool, vip netip.Addr)) {
	for _, outer6 := range []bool{false, true} {
		for _, vip := range []netip.Addr{testVIP4, testVIP6} {
			outer := 4
			if outer6 {
				outer = 6
			}
			inner := 4
			if vip.Is6() {
				inner = 6
			}
			t.Run(fmt.Sprintf("%d in %d", inner, outer), func(t *testing.T) { test(t, outer6, vip) })
		}
	}
}

var wrappers = map[lb.Mode]func(tb testing.TB, outer6 bool, ds uint8, inner []byte) []byte{lb.IPIP: ipip, lb.GUE: gue}

func TestUnwrap(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE}, nil)
	for mode, wrap := range wrappers {
		families(t, func(t *testing.T, outer6 bool, vip netip.Addr) {
			// An empty datagram is shorter than an IPv6 header alone.
			for _, inner := range [][]byte{udp(t, vip, 0, 0), udp(t, vip, 0, 1), tcp(t, vip, 0, 0),
				tcp(t, vip, 0xb8, 1400),
				ip(t, clientOf(vip), vip, layers.IPProtocolICMPv4, 0, pattern(8))} {
				r.check(t, frame(wrap(t, outer6, 0, inner)), end{mode, "accepted", frame(inner)})
				// Ethernet's padding of a short packet is kept; the kernel removes it.
				padded := append(frame(wrap(t, outer6, 0, inner)), 0, 0, 0)
				r.check(t, padded, end{mode, "accepted", append(frame(inner), 0, 0, 0)})
			}
		})
	}
}

// TestNested: a tunnel within a tunnel is decapsulated once, and the inner tunnel is left to the kernel.
func TestNested(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE}, nil)
	families(t, func(t *testing.T, outer6 bool, vip netip.Addr) {
		inner := ip(t, clientOf(vip), vip, layers.IPProtocolIPv4, 0, tcp(t, testVIP4, 0, 10))
		for mode, wrap := range wrappers {
			r.check(t, frame(wrap(t, outer6, 0, inner)), end{mode, "accepted", frame(inner)})
		}
		// The inner tunnel ends here, but is not for a VIP.
		for mode, wrap := range wrappers {
			other := frame(wrap(t, outer6, 0, ipip(t, false, 0, tcp(t, testVIP4, 0, 10))))
			r.check(t, other, end{mode, "passed_not_vip", other})
		}
	})
}

// TestCongestion: the result of each combination in RFC 6040, figure 4.
func TestCongestion(t *testing.T) {
	const notECT, ect1, ect0, ce, lost = 0, 1, 2, 3, 255
	table := map[uint8][4]uint8{ // by the inner field, then the outer one
		notECT: {notECT, notECT, notECT, lost},
		ect0:   {ect0, ect1, ect0, ce},
		ect1:   {ect1, ect1, ect1, ce},
		ce:     {ce, ce, ce, ce},
	}
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE}, nil)
	families(t, func(t *testing.T, outer6 bool, vip netip.Addr) {
		for inner, row := range table {
			for outer, out := range row {
				for mode, wrap := range wrappers {
					packet := frame(wrap(t, outer6, 0x68|uint8(outer), tcp(t, vip, 0xb8|inner, 20)))
					want := end{mode, "dropped_congested", packet}
					if out != lost {
						want = end{mode, "accepted", frame(tcp(t, vip, 0xb8|out, 20))}
					}
					r.check(t, packet, want)
				}
			}
		}
	})
}

func TestRestore(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.DSCP}, testMarks)
	for _, f := range []struct {
		vip, own netip.Addr
		point    uint8
	}{{testVIP4, testOwn4, 10}, {testVIP6, testOwn6, 11}, {testVIP4, testOwn4, 63}, {testVIP6, testOwn6, 63}} {
		for ecn := range uint8(4) {
			ds := f.point<<2 | ecn
			r.check(t, frame(tcp(t, f.own, ds, 33)), end{lb.DSCP, "accepted", frame(tcp(t, f.vip, ecn, 33))})
			r.check(t, frame(udp(t, f.own, ds, 33)), end{lb.DSCP, "accepted", frame(udp(t, f.vip, ecn, 33))})
		}
		ds := f.point << 2
		bare := func(to netip.Addr, ds uint8) []byte {
			return frame(ip(t, clientOf(to), to, layers.IPProtocolUDP, ds, append(udpHeader(53, 9), pattern(9)...)))
		}
		r.check(t, bare(f.own, ds), end{lb.DSCP, "accepted", bare(f.vip, 0)})
		// A packet that is not for an address of this host, that is for the VIP itself, or of a protocol that no
		// service balances, is passed unchanged.
		for _, other := range [][]byte{
			frame(tcp(t, f.vip, ds, 1)), frame(tcp(t, clientOf(f.vip), ds, 1)), frame(tcp(t, f.own, 12<<2, 1)),
			frame(tcp(t, f.own, 0, 1)),
			frame(ip(t, clientOf(f.own), f.own, layers.IPProtocolIPv4, ds, tcp(t, testVIP4, 0, 1))),
			frame(ip(t, clientOf(f.own), f.own, layers.IPProtocolSCTP, ds, pattern(40))),
		} {
			r.check(t, other, end{"", "passed_plain", other})
		}
		short := frame(ip(t, clientOf(f.own), f.own, layers.IPProtocolTCP, ds, pattern(19)))
		r.check(t, short, end{lb.DSCP, "dropped_malformed", nil})
	}
	// A code point of one family has no meaning in the other.
	for _, other := range [][]byte{frame(tcp(t, testOwn4, 11<<2, 1)), frame(tcp(t, testOwn6, 10<<2, 1))} {
		r.check(t, other, end{"", "passed_plain", other})
	}
}

// TestRestoreICMP: ICMP errors have the mark. Other ICMP messages have their own code points: a router's neighbour
// solicitation has 48.
func TestRestoreICMP(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.DSCP}, testMarks)
	icmp4 := func(to netip.Addr, ds uint8, kind uint8) []byte {
		header, _ := network(testClient4, to, layers.IPProtocolICMPv4, ds)
		return frame(testpacket.Serialize(t, header, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 4)},
			gopacket.Payload(tcp(t, testClient4, 0, 8))))
	}
	icmp6 := func(to netip.Addr, ds uint8, kind uint8) []byte {
		header, forSum := network(testClient6, to, layers.IPProtocolICMPv6, ds)
		message := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
		if err := message.SetNetworkLayerForChecksum(forSum); err != nil {
			t.Fatal(err)
		}
		return frame(testpacket.Serialize(t, header, message,
			gopacket.Payload(append(make([]byte, 4), tcp(t, testClient6, 0, 8)...))))
	}
	for kind := range 256 {
		k := uint8(kind)
		want4, want6 := end{"", "passed_plain", icmp4(testOwn4, 63<<2, k)},
			end{"", "passed_plain", icmp6(testOwn6, 63<<2, k)}
		if k == 3 || k == 11 || k == 12 {
			want4 = end{lb.DSCP, "accepted", icmp4(testVIP4, 0, k)}
		}
		if k >= 1 && k <= 4 {
			want6 = end{lb.DSCP, "accepted", icmp6(testVIP6, 0, k)}
		}
		r.check(t, icmp4(testOwn4, 63<<2, k), want4)
		r.check(t, icmp6(testOwn6, 63<<2, k), want6)
	}
}

// ipv6Fragment converts the packet to a fragment.
func ipv6Fragment(packet []byte, field uint16) []byte {
	next := packet[6]
	out := append([]byte(nil), packet[:40]...)
	out[6] = 44
	extension := []byte{next, 0, 0, 0, 1, 2, 3, 4}
	binary.BigEndian.PutUint16(extension[2:], field)
	out = append(append(out, extension...), packet[40:]...)
	binary.BigEndian.PutUint16(out[4:], uint16(len(out)-40))
	return out
}

// ipv4Fragment converts the packet to a fragment, with its header checksum.
func ipv4Fragment(packet []byte, field uint16) []byte {
	out := append([]byte(nil), packet...)
	binary.BigEndian.PutUint16(out[6:], field)
	sum4(out)
	return out
}

// sum4 computes the header checksum of an IPv4 packet from scratch.
func sum4(packet []byte) {
	length := int(packet[0]&15) * 4
	binary.BigEndian.PutUint16(packet[10:], 0)
	var sum uint32
	for i := 0; i < length; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum))
}

// TestRestoreFragments: all fragments of a datagram are restored. Only the first one has the transport checksum.
func TestRestoreFragments(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.DSCP}, testMarks)
	r.check(t, frame(ipv4Fragment(udp(t, testOwn4, 10<<2, 80), 0x2000)),
		end{lb.DSCP, "accepted", frame(ipv4Fragment(udp(t, testVIP4, 0, 80), 0x2000))})
	r.check(t, frame(ipv6Fragment(udp(t, testOwn6, 11<<2, 80), 1)),
		end{lb.DSCP, "accepted", frame(ipv6Fragment(udp(t, testVIP6, 0, 80), 1))})
	for _, protocol := range []layers.IPProtocol{layers.IPProtocolUDP, layers.IPProtocolTCP} {
		r.check(t, frame(ipv4Fragment(ip(t, testClient4, testOwn4, protocol, 10<<2, pattern(3)), 0x2005)),
			end{lb.DSCP, "accepted",
				frame(ipv4Fragment(ip(t, testClient4, testVIP4, protocol, 0, pattern(3)), 0x2005))})
		r.check(t, frame(ipv6Fragment(ip(t, testClient6, testOwn6, protocol, 11<<2, pattern(3)), 0x0028)),
			end{lb.DSCP, "accepted",
				frame(ipv6Fragment(ip(t, testClient6, testVIP6, protocol, 0, pattern(3)), 0x0028))})
	}
}

func TestTunnelFragmentsAreLeft(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE}, nil)
	for mode, wrap := range wrappers {
		first4 := frame(ipv4Fragment(wrap(t, false, 0, tcp(t, testVIP4, 0, 80)), 0x2000))
		first6 := frame(ipv6Fragment(wrap(t, true, 0, tcp(t, testVIP4, 0, 80)), 1))
		r.check(t, first4, end{mode, "passed_fragment", first4})
		r.check(t, first6, end{mode, "passed_fragment", first6})
	}
	later4 := frame(ipv4Fragment(ipip(t, false, 0, tcp(t, testVIP4, 0, 80)), 0x2005))
	r.check(t, later4, end{lb.IPIP, "passed_fragment", later4})
	laterGUE := frame(ipv4Fragment(gue(t, false, 0, tcp(t, testVIP4, 0, 80)), 0x2005))
	r.check(t, laterGUE, end{"", "passed_plain", laterGUE})
	// An atomic fragment is a complete packet.
	atomic := frame(ipv6Fragment(ipip(t, true, 0, tcp(t, testVIP6, 0, 80)), 0))
	r.check(t, atomic, end{lb.IPIP, "accepted", frame(tcp(t, testVIP6, 0, 80))})
}

// TestFragmentsInTunnel: fragments inside a tunnel are left to the inner packet's receiver.
func TestFragmentsInTunnel(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE}, nil)
	for mode, wrap := range wrappers {
		for _, inner := range [][]byte{ipv4Fragment(udp(t, testVIP4, 0, 64), 0x2000),
			ipv4Fragment(udp(t, testVIP4, 0, 64), 0x0008), ipv6Fragment(udp(t, testVIP6, 0, 64), 0x0100)} {
			r.check(t, frame(wrap(t, false, 0, inner)), end{mode, "accepted", frame(inner)})
			r.check(t, frame(wrap(t, true, 0, inner)), end{mode, "accepted", frame(inner)})
		}
	}
}

// extended inserts extension headers of a kind after an IPv6 header.
func extended(packet []byte, kinds ...byte) []byte {
	for i := len(kinds) - 1; i >= 0; i-- {
		out := append([]byte(nil), packet[:40]...)
		out[6] = kinds[i]
		out = append(append(out, packet[6], 0, 4, 0, 1, 4, 0, 0), packet[40:]...)
		if kinds[i] == 43 {
			out[40+2], out[40+3] = 0, 0 // no segment left
		}
		if kinds[i] == 44 {
			out[40+2], out[40+3] = 0, 0
		}
		binary.BigEndian.PutUint16(out[4:], uint16(len(out)-40))
		packet = out
	}
	return packet
}

func TestExtensionHeaders(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE, lb.DSCP}, testMarks)
	inner := tcp(t, testVIP6, 0, 10)
	for _, kinds := range [][]byte{{60}, {0}, {43}, {44}, {0, 60, 43, 44}} {
		for mode, wrap := range wrappers {
			r.check(t, frame(extended(wrap(t, true, 0, inner), kinds...)), end{mode, "accepted", frame(inner)})
		}
		r.check(t, frame(extended(tcp(t, testOwn6, 11<<2, 10), kinds...)),
			end{lb.DSCP, "accepted", frame(extended(tcp(t, testVIP6, 0, 10), kinds...))})
	}
	many := frame(extended(ipip(t, true, 0, inner), 0, 60, 60, 60, 60))
	r.check(t, many, end{"", "passed_extension_headers", many})
	onward := frame(extended(ipip(t, true, 0, inner), 43))
	onward[14+40+3] = 1
	r.check(t, onward, end{"", "passed_extension_headers", onward})
}

func TestLeftAlone(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE, lb.DSCP}, testMarks)
	for _, outer6 := range []bool{false, true} {
		from, to := own(outer6)
		for _, c := range []struct {
			mode    lb.Mode
			outcome string
			packet  []byte
		}{
			{"", "passed_plain", tcp(t, to, 0, 5)},
			{"", "passed_plain", udp(t, to, 0, 5)},
			{lb.IPIP, "passed_not_local", ip(t, from, clientOf(to), layers.IPProtocolIPv4, 0, tcp(t, testVIP4, 0, 1))},
			{lb.IPIP, "passed_not_vip", ipip(t, outer6, 0, tcp(t, testOwn4, 0, 1))},
			{lb.GUE, "passed_not_vip", gue(t, outer6, 0, tcp(t, testOwn6, 0, 1))},
			// Variant 0 of GUE, and others.
			{lb.GUE, "passed_other_gue", gue(t, outer6, 0, append([]byte{0, 4, 0, 0}, tcp(t, testVIP4, 0, 1)...))},
			{lb.GUE, "passed_other_gue", gue(t, outer6, 0, append([]byte{0x80, 4, 0, 0}, tcp(t, testVIP4, 0, 1)...))},
			// The version is neither 4 nor 6.
			{lb.GUE, "passed_malformed", gue(t, outer6, 0, append([]byte{0x50}, tcp(t, testVIP4, 0, 1)[1:]...))},
			{lb.IPIP, "passed_malformed", ip(t, from, to, layers.IPProtocolIPv4, 0, tcp(t, testVIP6, 0, 1))},
			{lb.IPIP, "passed_malformed", ip(t, from, to, layers.IPProtocolIPv6, 0, tcp(t, testVIP4, 0, 40))},
			{lb.IPIP, "passed_malformed", ip(t, from, to, layers.IPProtocolIPv4, 0, tcp(t, testVIP4, 0, 0)[:19])},
			{lb.IPIP, "passed_malformed", ip(t, from, to, layers.IPProtocolIPv6, 0, nil)},
			{lb.GUE, "passed_malformed", gue(t, outer6, 0, nil)},
			{lb.GUE, "passed_malformed",
				ip(t, from, to, layers.IPProtocolUDP, 0, append(udpHeader(6080, 200), tcp(t, testVIP4, 0, 1)...))},
		} {
			r.check(t, frame(c.packet), end{c.mode, c.outcome, frame(c.packet)})
		}
	}
	other := frame(ipip(t, false, 0, tcp(t, testVIP4, 0, 1)))
	copy(other, otherMAC)
	r.check(t, other, end{"", "passed_other_host", other})
	arp := frame(pattern(28))
	copy(arp[12:], []byte{0x08, 0x06})
	r.check(t, arp, end{"", "passed_not_ip", arp})
}

// TestLyingLengths: a packet for a VIP with wrong lengths does not reach the stack.
func TestLyingLengths(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE}, nil)
	for mode, wrap := range wrappers {
		for _, outer6 := range []bool{false, true} {
			for _, field := range []struct {
				vip   netip.Addr
				at    int
				value byte
			}{{testVIP4, 0, 0x44}, {testVIP4, 3, 19}, {testVIP4, 3, 200}, {testVIP6, 5, 200}} {
				inner := tcp(t, field.vip, 0, 20)
				inner[field.at] = field.value
				// The frame has enough bytes, but the outer packet has not.
				packet := append(frame(wrap(t, outer6, 0, inner)), make([]byte, 400)...)
				r.check(t, packet, end{mode, "dropped_malformed", nil})
			}
		}
	}
	// The outer header is longer than the packet.
	packet := ipip(t, false, 0, tcp(t, testVIP4, 0, 20))
	packet[3] = 19
	sum4(packet)
	r.check(t, frame(packet), end{"", "passed_malformed", frame(packet)})
	packet[3] = 255
	sum4(packet)
	r.check(t, frame(packet), end{"", "passed_malformed", frame(packet)})
}

// TestOuterOptions: IPv4 options are removed with the header.
func TestOuterOptions(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE}, nil)
	inner := tcp(t, testVIP6, 0, 20)
	for mode, wrap := range wrappers {
		plain := wrap(t, false, 0, inner)
		packet := append(append(append([]byte(nil), plain[:20]...), 1, 1, 1, 0), plain[20:]...)
		packet[0] = 0x46
		binary.BigEndian.PutUint16(packet[2:], uint16(len(packet)))
		sum4(packet)
		r.check(t, frame(packet), end{mode, "accepted", frame(inner)})
	}
}

// TestModesAreSeparate: packets of a mode that was not requested are left to the kernel.
func TestModesAreSeparate(t *testing.T) {
	ipipOnly, gueOnly := newRig(t, []lb.Mode{lb.IPIP}, nil), newRig(t, []lb.Mode{lb.GUE}, nil)
	packet := frame(gue(t, false, 0, tcp(t, testVIP4, 0, 1)))
	ipipOnly.check(t, packet, end{"", "passed_plain", packet})
	packet = frame(ipip(t, false, 0, tcp(t, testVIP4, 0, 1)))
	gueOnly.check(t, packet, end{"", "passed_plain", packet})
	packet = frame(tcp(t, testOwn4, 10<<2, 1))
	gueOnly.check(t, packet, end{"", "passed_plain", packet})
}

// TestMarkedGUEPort: a marked datagram to port 6080 that is not GUE belongs to a service on that port.
func TestMarkedGUEPort(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.GUE, lb.DSCP}, testMarks)
	build := func(to netip.Addr, ds uint8) []byte {
		return frame(ip(t, clientOf(to), to, layers.IPProtocolUDP, ds, append(udpHeader(6080, 9), pattern(9)...)))
	}
	r.check(t, build(testOwn4, 10<<2), end{lb.DSCP, "accepted", build(testVIP4, 0)})
	// A GUE packet may have the mark of its inner packet.
	inner := tcp(t, testVIP4, 10<<2, 1)
	r.check(t, frame(gue(t, false, 10<<2, inner)), end{lb.GUE, "accepted", frame(inner)})
}

// TestSegments: a GSO packet counts as its segments. In a test, the kernel makes no GSO packets that are marked as TCP,
// and refuses to change the others.
func TestSegments(t *testing.T) {
	r := newRig(t, []lb.Mode{lb.IPIP, lb.GUE}, nil)
	plain := frame(tcp(t, testOwn4, 0, 1000))
	r.checkWith(t, plain, end{"", "passed_plain", plain}, &skbuff{GSOSegs: 10, GSOSize: 100})
	for mode, wrap := range wrappers {
		packet := frame(wrap(t, false, 0, tcp(t, testVIP4, 0, 1000)))
		r.checkWith(t, packet, end{mode, "dropped_no_room", nil}, &skbuff{GSOSegs: 10, GSOSize: 100})
		merged := frame(wrap(t, false, 0, append(tcp(t, testVIP4, 0, 100), tcp(t, testVIP4, 0, 100)...)))
		r.checkWith(t, merged, end{mode, "dropped_aggregate", nil}, &skbuff{GSOSegs: 2, GSOSize: 148})
	}
}
