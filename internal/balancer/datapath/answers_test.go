// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestWhatBackendsAnswer: in the modes that see a backend's packets, its answers to SYNs are counted, and the ICMP
// errors of its own; its other packets are not.
func TestWhatBackendsAnswer(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		for _, vip := range vips {
			for _, port := range []uint16{portNAT, portFullNAT} {
				p := modePacket(vip, port, false)
				p.sport = 41000
				v := r.check(t, p.build(t))
				sent, outcome := readFrame(slices.Clone(v.frame), v.frame[:6], false, false)
				if v.outcome != "forwarded" || outcome != "" {
					t.Fatalf("%s, %s", v.outcome, outcome)
				}
				reply := packetSpec{from: sent.destination, at: sent.source, sport: sent.dport, dport: sent.sport}
				// IPv4 has the same type for packets that are too big, IPv6 one of its own.
				unreachable, other, sameType := byte(3), byte(11), uint64(0)
				if vip.Is6() {
					unreachable, other, sameType = 1, 3, 1
				}
				errorOf := func(from netip.Addr, kind, code byte) []byte {
					return packetSpec{from: from, at: sent.source}.icmp(t, kind, code, sent.frame[14:]...)
				}
				for _, c := range []struct {
					name   string
					packet []byte
					want   [3]uint64 // answered, refused, unreachable
				}{
					{"SYN and ACK", with(reply, func(p *packetSpec) { p.flags, p.seq = "SA", 7 }).build(t),
						[3]uint64{1, 0, 0}},
					{"the same again, by a way that is known", with(reply, func(p *packetSpec) {
						p.flags, p.seq = "SA", 7
					}).build(t), [3]uint64{1, 0, 0}},
					{"data", with(reply, func(p *packetSpec) { p.flags, p.seq, p.payload = "PA", 8, 100 }).build(t),
						[3]uint64{}},
					{"the error of the backend", errorOf(sent.destination, unreachable, 3), [3]uint64{0, 0, 1}},
					{"another error of the backend", errorOf(sent.destination, unreachable, 4),
						[3]uint64{0, 0, sameType}},
					{"an error on the way", errorOf(transitRouter(vip.Is6()), unreachable, 1), [3]uint64{}},
					{"an error of another kind", errorOf(sent.destination, other, 0), [3]uint64{}},
					{"a RST of a connection", with(reply, func(p *packetSpec) { p.flags, p.seq = "RA", 8 }).build(t),
						[3]uint64{}},
					{"a RST to a SYN", with(reply, func(p *packetSpec) { p.flags = "RA" }).build(t),
						[3]uint64{0, 1, 0}},
					{"a RST to another segment", with(reply, func(p *packetSpec) { p.flags = "R" }).build(t),
						[3]uint64{}},
				} {
					before := r.counters(t).Backends[v.backend]
					r.check(t, c.packet)
					after := r.counters(t).Backends[v.backend].Minus(before)
					if got := [3]uint64{after.Answered, after.Refused, after.Unreachable}; got != c.want {
						t.Errorf("%s, port %d: %s counts %v as answered, refused and unreachable, want %v", vip, port,
							c.name, got, c.want)
					}
				}
			}
		}
	})
}
