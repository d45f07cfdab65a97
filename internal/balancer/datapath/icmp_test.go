// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// transitRouter sends ICMP errors from between the balancer and a client.
func transitRouter(six bool) netip.Addr {
	if six {
		return netip.MustParseAddr("2001:2:0:dead::1")
	}
	return netip.MustParseAddr("192.0.2.33")
}

// quoteSizes are how much an error quotes: all, and the least of IPv4, in which
// there is no TCP checksum.
func quoteSizes(six bool) []int {
	if six {
		return []int{1500, 40 + 8, 40 + 17, 40 + 18, 40 + 19}
	}
	return []int{1500, 20 + 8, 20 + 17, 20 + 18, 20 + 19}
}

// TestErrorsReachBackends sends errors about backends' packets to clients, for every mode.
func TestErrorsReachBackends(t *testing.T) {
	eachMode(t, func(t *testing.T, r *rig, s *lb.RoutedService) {
		six := s.VIP.Is6()
		p := modePacket(s.VIP, s.Port, s.Protocol == lb.UDP)
		r.check(t, p.build(t))
		reply := p.answer()
		reply.flags = "A"
		about := [][]byte{reply.build(t)}
		if p.udp {
			about = append(about, patched(reply.build(t), len(about[0])-p.payload-2, 0, 0))
		}
		if six {
			about = append(about, ipv6WithExtensions(about[0], [2]byte{60, 1}))
		}
		for _, about := range about {
			for _, size := range quoteSizes(six) {
				frame := icmpError(t, transitRouter(six), about, size)
				for _, frame := range [][]byte{frame, tagged(frame, 0x8100), append(slices.Clone(frame), 9, 9, 9)} {
					if size > 100 || about[20] == protoDestination {
						// Too big for some of the tunnels, or nothing of UDP in the quote.
						r.check(t, frame)
						continue
					}
					expectOutcome(t, r, frame, "forwarded")
				}
			}
		}
	})
}

// TestErrorsAboutForwarded sends errors of the backends' side back to clients: about packets that NAT and full NAT sent
// on.
func TestErrorsAboutForwarded(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		for _, vip := range vips {
			for _, port := range []uint16{portNAT, portFullNAT} {
				for _, udp := range []bool{false, true} {
					p := modePacket(vip, port, udp)
					v := r.check(t, p.build(t))
					if v.outcome != "forwarded" {
						t.Fatalf("the model says %s of %s", v.outcome, testpacket.Dump(p.build(t)))
					}
					sent := slices.Clone(v.frame)
					for _, from := range []netip.Addr{v.backend.Address, transitRouter(vip.Is6())} {
						for _, size := range quoteSizes(vip.Is6()) {
							if v := r.check(t, icmpError(t, from, sent, size)); v.outcome != "returned" {
								t.Errorf("the model says %s", v.outcome)
							}
						}
					}
				}
			}
		}
	})
}

// TestErrorsToClientsOfEachKind routes errors like returns.
func TestErrorsToClientsOfEachKind(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		for _, vip := range vips {
			for subnet := range clientSubnets {
				for _, port := range []uint16{portNAT, portFullNAT} {
					for i, number := range []byte{3, 200, 200} {
						p := modePacket(vip, port, true)
						p.from, p.sport = clientOf(subnet, vip.Is6(), number), uint16(subnet)+1
						if i == 2 {
							p.sport = 0 // a client of UDP may have it
						}
						if v := r.check(t, p.build(t)); v.outcome == "forwarded" {
							r.check(t, icmpError(t, v.backend.Address, slices.Clone(v.frame), 100))
						}
					}
				}
			}
		}
	})
}

func TestICMP(t *testing.T) {
	reply4, reply6 := web4().answer().build(t), web6().answer().build(t)
	ping := packetSpec{from: client4, at: vip4}
	ping6 := packetSpec{from: client6, at: vip6}
	error4 := icmpError(t, transitRouter(false), reply4, 1500)
	error6 := icmpError(t, transitRouter(true), reply6, 1500)
	kind := func(frame []byte, kind byte) []byte { return patched(slices.Clone(frame), 34, kind) }
	kind6 := func(frame []byte, kind byte) []byte { return patched(slices.Clone(frame), 54, kind) }
	quoted := func(at int, bytes ...byte) []byte { return patched(slices.Clone(error4), 42+at, bytes...) }
	toEndpoint := with(modePacket(vip6, portNAT, false), func(p *packetSpec) {
		p.at, p.dport = netip.MustParseAddr("2001:2::2:1"), portNAT+natPortOffset
	}).build(t)
	var byKind []packetCase
	for k, want := range map[byte]string{3: "forwarded", 11: "forwarded", 12: "forwarded", 4: unserved, 5: unserved,
		0: unserved, 8: unserved, 13: unserved} {
		byKind = append(byKind, packetCase{"IPv4 type " + string('0'+rune(k)), kind(error4, k), want})
	}
	for k, want := range map[byte]string{1: "forwarded", 2: "forwarded", 3: "forwarded", 4: "forwarded", 0: unserved,
		5: unserved, 100: unserved, 128: unserved, 135: unserved} {
		byKind = append(byKind, packetCase{"IPv6 type " + string('0'+rune(k)), kind6(error6, k), want})
	}
	runCases(t, sharedRig, append(byKind, []packetCase{
		{"echo to a VIP", ping.icmp(t, 8, 0, 1, 2, 3, 4), unserved},
		{"echo to a VIP, IPv6", ping6.icmp(t, 128, 0, 1, 2, 3, 4), unserved},
		{"echo to the pool", packetSpec{from: client4, at: pool4}.icmp(t, 8, 0, 1, 2, 3, 4), unserved},
		{"error to a VIP", error4, "forwarded"},
		{"error to a VIP, IPv6", error6, "forwarded"},
		{"error to a VIP, extension headers", ipv6WithExtensions(error6, [2]byte{0, 1}, [2]byte{60, 1}), "forwarded"},
		{"error to a VIP, wrong checksum", patched(slices.Clone(error4), 36, 1, 2), "forwarded"},
		{"error about no service", icmpError(t, transitRouter(false), with(web4(), func(p *packetSpec) {
			p.dport = 9999
		}).answer().build(t), 100), unserved},
		{"error about a service without a usable backend",
			icmpError(t, transitRouter(false), with(web4(), func(p *packetSpec) { p.dport = 81 }).answer().build(t),
				100), "dropped_no_backend"},
		{"error about another VIP's packet", patched(slices.Clone(error4), 33, 99), unserved},
		{"error about an error",
			icmpError(t, transitRouter(false), packetSpec{from: vip4, at: client4}.icmp(t, 3, 1, reply4[14:]...), 1500),
			unserved},
		{"error about an error, IPv6",
			icmpError(t, transitRouter(true), packetSpec{from: vip6, at: client6}.icmp(t, 1, 1, reply6[14:]...), 1500),
			unserved},
		{"error about an unknown flow of full NAT",
			icmpError(t, transitRouter(false), with(modePacket(vip4, portFullNAT, false), func(p *packetSpec) {
				p.sport = 39999
			}).answer().build(t), 100), "dropped_no_flow"},
		{"error to the pool about an unknown flow",
			icmpError(t, transitRouter(false), packetSpec{from: pool4, at: client4, sport: 20000, dport: 80}.build(t),
				100), unserved},
		{"error from a group, about NAT", icmpError(t, netip.MustParseAddr("ff01::9"), toEndpoint, 100), notForwarded},
		{"error from a link's address, about NAT", icmpError(t, netip.MustParseAddr("fe80::9"), toEndpoint, 100),
			notForwarded},
		{"error from a link beyond, about NAT", icmpError(t, transitRouter(true), toEndpoint, 100), "returned"},
		{"error that is a first fragment", fragment(error4, 7, 0, 32), unserved},
		{"error without a quote", packetSpec{from: client4, at: vip4}.icmp(t, 3, 1), unserved},
		{"error cut in the quoted header", error4[:50], unserved},
		{"error longer than the frame", error4[:len(error4)-1], malformed},
		{"7 bytes of the quoted transport header", icmpError(t, transitRouter(false), reply4, 27), unserved},
		{"quoted version 6", quoted(0, 0x65), unserved},
		{"quoted header length 16", quoted(0, 0x44), unserved},
		{"quoted header longer than the quote", quoted(0, 0x4f), unserved},
		{"quoted length below its header", quoted(2, 0, 19), unserved},
		{"quoted length beyond the quote", quoted(2, 0xff, 0xff), "forwarded"},
		{"quoted first fragment", quoted(6, 0x20, 0), "forwarded"},
		{"quoted later fragment", quoted(6, 0, 1), unserved},
		{"quoted protocol without ports", quoted(9, 47), unserved},
		{"quoted IPv6 packet in ICMP of IPv4", packetSpec{from: client4, at: vip4}.icmp(t, 3, 1, reply6[14:]...),
			unserved},
		{"quoted packet with more extension headers than are walked", icmpError(t, transitRouter(true),
			ipv6WithExtensions(reply6, [2]byte{0, 1}, [2]byte{60, 1}, [2]byte{60, 1}, [2]byte{60, 1}, [2]byte{60, 1}),
			1500), unserved},
	}...))
}

// TestErrorTooBigForTheTunnel quotes so much that the tunnel has no room: an
// error is not answered with an error.
func TestErrorTooBigForTheTunnel(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		for _, vip := range vips {
			reply := modePacket(vip, portIPIP, false).answer()
			reply.payload = 1440
			if v := r.check(t, icmpError(t, transitRouter(vip.Is6()), reply.build(t),
				1500)); v.outcome != "dropped_too_big" {
				t.Errorf("the model says %s", v.outcome)
			}
		}
	})
}

// TestErrorChecksumsAreRight recomputes all checksums of an error that came with right ones.
func TestErrorChecksumsAreRight(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		p := modePacket(vip4, portFullNAT, false)
		r.check(t, p.build(t))
		about := icmpError(t, transitRouter(false), p.answer().build(t), 1500)
		expectOutcome(t, r, about, "forwarded")
		_, out := r.run(t, about)
		r.want = r.counters(t)
		ip := out[14:]
		for name, got := range map[string]uint16{
			"outer header":  sum(ip[:20]),
			"ICMP":          sum(ip[20:]),
			"quoted header": sum(ip[28:48]),
			"quoted TCP": sum(ip[48:], ip[40:48], []byte{0, protoTCP},
				binary.BigEndian.AppendUint16(nil, uint16(len(ip)-48))),
		} {
			if got != 0 {
				t.Errorf("the sum of the %s is off by %#04x: %x", name, got, out)
			}
		}
	})
}
