// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// hopsOf is where a frame without a tag has its TTL or hop limit.
func hopsOf(six bool) int {
	if six {
		return 14 + 7
	}
	return 14 + 8
}

// withHops returns the frame with so many hops left; its IPv4 checksum stays right.
func withHops(frame []byte, hops byte) []byte {
	frame = slices.Clone(frame)
	six := frame[12] == 0x86
	frame[hopsOf(six)] = hops
	if !six {
		header := frame[14 : 14+int(frame[14]&15)*4]
		header[10], header[11] = 0, 0
		binary.BigEndian.PutUint16(header[10:], ^sum(header))
	}
	return frame
}

// TestHopsOfRequests: every mode but l2dsr counts a hop, and answers a client whose packet
// has none left, from the VIP.
func TestHopsOfRequests(t *testing.T) {
	eachMode(t, func(t *testing.T, r *rig, s *lb.RoutedService) {
		base := modePacket(s.VIP, s.Port, s.Protocol == lb.UDP)
		for backend := range s.Backends {
			base.sport = sportOf(t, r.model, s, base.from, backend)
			for _, plain := range shapes(t, base)[:1] {
				for hops, want := range map[byte]string{0: "answered_time_exceeded", 1: "answered_time_exceeded",
					2: "forwarded", 64: "forwarded", 255: "forwarded"} {
					if s.Mode == lb.L2DSR {
						want = "forwarded"
					}
					frame := withHops(plain, hops)
					v := expectOutcome(t, r, frame, want)
					expectOutcome(t, r, tagged(frame, 0x8100), want)
					if want == "forwarded" {
						left := v.frame[len(v.frame)-len(frame)+hopsOf(s.VIP.Is6())]
						if s.Mode != lb.L2DSR {
							hops--
						}
						if left != hops {
							t.Errorf("%s: %d hops are left, want %d", s.Mode, left, hops)
						}
					} else if from := sourceOf(v.frame); from != s.VIP {
						t.Errorf("the answer is from %s, not from the VIP", from)
					}
				}
			}
		}
	})
}

// sourceOf is where a frame's IP packet is from.
func sourceOf(frame []byte) netip.Addr {
	if frame[12] == 0x86 {
		return netip.AddrFrom16([16]byte(frame[22:38]))
	}
	return netip.AddrFrom4([4]byte(frame[26:30]))
}

// TestHopsOfReplies does it for replies: the backend gets the error from an address of ours that it knows. Where the
// kernel routes the packet, it decrements the hops.
func TestHopsOfReplies(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		for _, vip := range vips {
			for _, port := range []uint16{portNAT, portFullNAT} {
				for _, udp := range []bool{false, true} {
					for number, kernels := range map[byte]bool{7: false, 200: true} {
						p := modePacket(vip, port, udp)
						p.from = clientOf(0, vip.Is6(), number)
						out := slices.Clone(expectOutcome(t, r, p.build(t), "forwarded").frame)
						reply := backOf(out)
						for hops, want := range map[byte]string{0: "answered_time_exceeded",
							1: "answered_time_exceeded", 2: "returned", 64: "returned"} {
							if kernels {
								want = "passed_to_route"
							}
							v := expectOutcome(t, r, withHops(reply, hops), want)
							if want != "answered_time_exceeded" {
								continue
							}
							wanted := vip
							if port == portFullNAT {
								wanted = sourceOf(out)
							}
							if from := sourceOf(v.frame); from != wanted {
								t.Errorf("the answer is from %s, want %s", from, wanted)
							}
						}
					}
				}
			}
		}
	})
}

// backOf is the reply of the receiver of a frame without IP options.
func backOf(frame []byte) []byte {
	back := slices.Clone(frame)
	copy(back, balancerMAC)
	at, size, transport, protocol := 26, 4, 34, frame[23]
	if frame[12] == 0x86 {
		at, size, transport, protocol = 22, 16, 54, frame[20]
	}
	copy(back[at:], frame[at+size:at+2*size])
	copy(back[at+size:], frame[at:at+size])
	copy(back[transport:], frame[transport+2:transport+4])
	copy(back[transport+2:], frame[transport:transport+2])
	if protocol == protoTCP {
		back[transport+13] = flagACK
	}
	return back
}

// TestHopsAreNotAnswered sends packets that have no hops left and no sender to be told: errors, later fragments, and
// packets that no host can have sent.
func TestHopsAreNotAnswered(t *testing.T) {
	nat, nat6 := modePacket(vip4, portNAT, false), modePacket(vip6, portNAT, false)
	big := nat
	big.payload = 1000
	reply, reply6 := nat.answer(), nat6.answer()
	reply.flags, reply6.flags = "A", "A"
	about := with(nat, func(p *packetSpec) { p.at, p.dport = netip.MustParseAddr("198.18.2.1"), portNAT+natPortOffset })
	fromGroup := with(nat, func(p *packetSpec) { p.from = netip.MustParseAddr("224.0.0.1") })
	runCases(t, freshRig, []packetCase{
		{"flow", nat.build(t), "forwarded"},
		{"flow, IPv6", nat6.build(t), "forwarded"},
		{"error to a backend", withHops(icmpError(t, transitRouter(false), reply.build(t), 1500), 1),
			"dropped_time_exceeded"},
		{"error to a backend, IPv6", withHops(icmpError(t, transitRouter(true), reply6.build(t), 1500), 1),
			"dropped_time_exceeded"},
		{"error to a backend, by two hops", withHops(icmpError(t, transitRouter(false), reply.build(t), 1500), 2),
			"forwarded"},
		{"error to a client", withHops(icmpError(t, transitRouter(false), about.build(t), 100), 1),
			"dropped_time_exceeded"},
		{"error to a client, by two hops", withHops(icmpError(t, transitRouter(false), about.build(t), 100), 2),
			"returned"},
		{"first fragment", fragment(big.build(t), 51, 0, 504), "forwarded"},
		{"later fragment", withHops(fragment(big.build(t), 51, 504, 1020), 1), "dropped_time_exceeded"},
		{"later fragment by two hops", withHops(fragment(big.build(t), 51, 504, 1020), 2), "forwarded"},
		{"first fragment without hops", withHops(fragment(big.build(t), 52, 0, 504), 1), "answered_time_exceeded"},
		{"from a group", withHops(fromGroup.build(t), 1), "dropped_time_exceeded"},
		{"too big as well", withHops(with(nat, func(p *packetSpec) { p.payload = 1500 }).build(t), 1),
			"answered_time_exceeded"},
	})
}

// TestHopsOfLoop gives a program its own frames back, as two balancers do that are each other's backends: each mode
// that rewrites ends it. (A tunnel's frames are of another kind when they come back; TestHopsOfRequests covers the
// packets inside.)
func TestHopsOfLoop(t *testing.T) {
	modes := []lb.Mode{lb.NAT, lb.FullNAT, lb.DSCP}
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, mirrored(modes))
		for i, mode := range modes {
			for _, vip := range vips {
				frame := withHops(modePacket(vip, uint16(80+i), true).build(t), 255)
				v, rounds := r.check(t, frame), 0
				for ; v.outcome == "forwarded" && rounds <= 255; rounds++ {
					frame = slices.Clone(v.frame)
					copy(frame, balancerMAC)
					v = r.check(t, frame)
				}
				if rounds != 254 || v.outcome != "answered_time_exceeded" {
					t.Errorf("%s, %s: the packet went round %d times and ended as %s, want 254 times, and an answer",
						mode, vip, rounds, v.outcome)
				}
			}
		}
	})
}

// mirrored has for each mode and family two services that are each other's backends.
func mirrored(modes []lb.Mode) lb.State {
	state := lb.State{Pool: allModes().Pool}
	for i, mode := range modes {
		for _, vip := range vips {
			for _, ends := range [][2]netip.Addr{{vip, vip.Next()}, {vip.Next(), vip}} {
				s := modeService(ends[0], uint16(80+i), lb.UDP, lb.Maglev)
				s.Mode, s.MSS, s.DSCP = mode, 0, 10
				s.Backends, s.Paths = s.Backends[:1], s.Paths[:1]
				s.Backends[0].Address, s.Backends[0].Port = ends[1], s.Port
				s.Paths[0].MTU = 1500
				state.Services = append(state.Services, s)
			}
		}
	}
	return state
}
