// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestFragmentsFollowTheFirst sends a datagram in three parts to a service of
// each mode: in order, the later ones before the first, and once more.
func TestFragmentsFollowTheFirst(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		id := uint32(100)
		for i := range r.model.state.Services {
			s := &r.model.state.Services[i]
			if s.Port < portIPIP || s.Port > portFullNATAlike {
				continue
			}
			id++
			t.Run(s.Name+"-"+s.VIP.String(), func(t *testing.T) {
				enterTestNet(t)
				p := modePacket(s.VIP, s.Port, s.Protocol == lb.UDP)
				p.payload = 300
				parts := threeParts(p.build(t), id)
				expectOutcome(t, r, parts[1], "dropped_fragment")
				expectOutcome(t, r, parts[2], "dropped_fragment")
				first := expectOutcome(t, r, parts[0], "forwarded")
				for _, part := range [][]byte{parts[1], parts[2], tagged(parts[1], 0x8100), parts[0]} {
					if v := expectOutcome(t, r, part, "forwarded"); v.outcome == "forwarded" &&
						v.backend != first.backend {
						t.Errorf("a fragment went to %v, the first to %v", v.backend, first.backend)
					}
				}
				expectOutcome(t, r, parts[2][:len(parts[2])-1], malformed)
				other := threeParts(p.build(t), id+10000)
				expectOutcome(t, r, other[1], "dropped_fragment")
			})
		}
	})
}

func threeParts(frame []byte, id uint32) [][]byte {
	return [][]byte{fragment(frame, id, 0, 104), fragment(frame, id, 104, 208), fragment(frame, id, 208, 1<<16)}
}

// TestFragmentsOfReplies sends backends' datagrams in parts.
func TestFragmentsOfReplies(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		id := uint32(0)
		for _, vip := range vips {
			for subnet := range clientSubnets {
				for _, number := range []byte{3, 200} {
					client := clientOf(subnet, vip.Is6(), number)
					p := fullNATPacket(t, r, vip, true, client)
					reply := openFlow(t, r, p).reply("")
					for _, reply := range []packetSpec{reply, natReply(r.model, vip, true, client)} {
						id++
						reply.payload = 300
						parts := threeParts(reply.build(t), id)
						expectOutcome(t, r, parts[1], "dropped_fragment")
						first := r.check(t, parts[0])
						if first.outcome == "dropped_no_route" {
							expectOutcome(t, r, parts[1], "dropped_fragment")
							continue
						}
						follows := first.outcome
						if follows == notForwarded {
							// They have no port by which they could be recognised.
							follows = unserved
						}
						expectOutcome(t, r, parts[1], follows)
						expectOutcome(t, r, parts[2], follows)
					}
				}
			}
		}
	})
}

// TestFragmentsAreToldApart changes one part of the key of a datagram.
func TestFragmentsAreToldApart(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		for _, p := range []packetSpec{web4(), web6()} {
			p.payload = 300
			parts := threeParts(p.build(t), 7)
			expectOutcome(t, r, parts[0], "forwarded")
			otherID := threeParts(p.build(t), 8)
			expectOutcome(t, r, otherID[1], "dropped_fragment")
			highID := threeParts(p.build(t), 7+1<<24)
			want := "forwarded"
			if p.at.Is6() {
				want = "dropped_fragment"
			}
			expectOutcome(t, r, highID[1], want)
			other := p
			other.from = p.from.Next()
			expectOutcome(t, r, threeParts(other.build(t), 7)[1], "dropped_fragment")
			other.udp, other.from = true, p.from
			want = "dropped_fragment"
			if p.at.Is6() {
				want = "forwarded"
			}
			expectOutcome(t, r, threeParts(other.build(t), 7)[1], want)
			expectOutcome(t, r, parts[1], "forwarded")
		}
	})
}

func TestFragmentCases(t *testing.T) {
	udp := packetSpec{from: client4, at: vip4, sport: 9, dport: 53, udp: true, payload: 64}
	overlap := fragment(udp.build(t), 20, 8, 32)
	elsewhere := with(web4(), func(p *packetSpec) { p.at = client4 })
	ping := fragment(packetSpec{from: client4, at: vip4}.icmp(t, 8, 0, make([]byte, 64)...), 21, 0, 32)
	rest := fragment(packetSpec{from: client4, at: vip4}.icmp(t, 8, 0, make([]byte, 64)...), 21, 32, 99)
	noSuch := with(udp, func(p *packetSpec) { p.dport = 9999 }).build(t)
	poolPart := packetSpec{from: client4, at: pool4, sport: 1, dport: 9, udp: true, payload: 64}.build(t)
	backend := packetSpec{from: netip.MustParseAddr("198.18.2.1"), at: client4, sport: 9, dport: 9, udp: true,
		payload: 64}.build(t)
	twice := ipv6WithExtensions(web6().build(t), [2]byte{44, 1}, [2]byte{44, 1})
	runCases(t, freshRig, []packetCase{
		{"first fragment, too short for TCP", fragment(web4().build(t), 1, 0, 16), malformed},
		{"tiny first fragment of UDP", fragment(udp.build(t), 2, 0, 8), "forwarded"},
		{"later fragment of an unknown datagram", fragment(udp.build(t), 3, 8, 16), "dropped_fragment"},
		{"for another address", fragment(elsewhere.build(t), 4, 8, 16), unserved},
		{"first, for another address", fragment(elsewhere.build(t), 4, 0, 20), unserved},
		{"and what follows", fragment(elsewhere.build(t), 4, 16, 20), unserved},
		{"for 0.0.0.0", patched(with(web4(), func(p *packetSpec) { p.at = netip.IPv4Unspecified() }).build(t), 20, 0x20,
			0), unserved},
		{"for ::", patched(ipv6WithExtensions(with(web6(), func(p *packetSpec) {
			p.at = netip.IPv6Unspecified()
		}).build(t), [2]byte{44, 1}), 56, 0, 1), unserved},
		{"first of an echo to a VIP", ping, unserved},
		{"and what follows", rest, unserved},
		{"and what follows, cut short", rest[:len(rest)-1], malformed},
		{"first to a port without a service", fragment(noSuch, 22, 0, 32), unserved},
		{"and what follows", fragment(noSuch, 22, 32, 99), unserved},
		{"later to the pool's address", fragment(poolPart, 23, 32, 99), "dropped_fragment"},
		{"first to the pool's address, below its ports", fragment(poolPart, 23, 0, 32), unserved},
		{"and what follows", fragment(poolPart, 23, 32, 99), unserved},
		{"later of a backend", fragment(backend, 24, 32, 99), "dropped_fragment"},
		{"first of a backend, not of its endpoint", fragment(backend, 24, 0, 32), unserved},
		{"and what follows", fragment(backend, 24, 32, 99), unserved},
		{"overlapping what comes first", overlap, "dropped_fragment"},
		{"first", fragment(udp.build(t), 20, 0, 24), "forwarded"},
		{"overlapping the first", overlap, "forwarded"},
		{"first once more", fragment(udp.build(t), 20, 0, 32), "forwarded"},
		{"beyond 64 KiB", patched(slices.Clone(overlap), 20, 0x1f, 0xff), "forwarded"},
		{"IPv6 first, extension headers behind",
			patched(ipv6WithExtensions(web6().build(t), [2]byte{0, 1}, [2]byte{44, 1}, [2]byte{60, 1}), 64, 0, 1, 0, 0,
				0, 9), "forwarded"},
		{"IPv6 first, more extension headers than are walked",
			patched(ipv6WithExtensions(web6().build(t), [2]byte{44, 1}, [2]byte{60, 1}, [2]byte{60, 1}, [2]byte{60, 1},
				[2]byte{60, 1}), 56, 0, 1), "dropped_extension_headers"},
		{"IPv6 two fragment headers, the second later", patched(slices.Clone(twice), 64, 0, 8), "dropped_fragment"},
		{"IPv6 first, an atomic fragment header behind",
			patched(ipv6WithExtensions(web6().build(t), [2]byte{44, 1}, [2]byte{44, 1}), 56, 0, 1, 0, 0, 0, 10),
			"forwarded"},
		{"and what follows", patched(ipv6WithExtensions(web6().build(t), [2]byte{44, 1}), 56, 0, 8, 0, 0, 0, 10),
			"forwarded"},
		{"IPv6 reserved bits are no offset", patched(ipv6WithExtensions(web6().build(t), [2]byte{44, 1}), 56, 0, 6),
			"forwarded"},
	})
}

// TestFragmentsForgetBackends takes a datagram's backend away between its
// parts.
func TestFragmentsForgetBackends(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		service := modeService(vip4, portNAT, lb.UDP, lb.Maglev)
		r := newRig(t, hook, lb.State{Services: []lb.RoutedService{service}})
		p := modePacket(vip4, portNAT, true)
		p.payload = 300
		parts := threeParts(p.build(t), 5)
		v := expectOutcome(t, r, parts[0], "forwarded")
		i := slices.IndexFunc(service.Backends, func(b lb.Backend) bool { return service.BackendKey(b) == v.backend })

		down := service
		down.Paths = slices.Clone(service.Paths)
		down.Paths[i].MAC = nil
		r.apply(t, lb.State{Services: []lb.RoutedService{down}})
		expectOutcome(t, r, parts[1], "dropped_backend_down")
		r.apply(t, lb.State{Services: []lb.RoutedService{service}})
		expectOutcome(t, r, parts[1], "forwarded")

		fewer := service
		fewer.Backends, fewer.Paths = slices.Clone(service.Backends), slices.Clone(service.Paths)
		fewer.Backends, fewer.Paths = slices.Delete(fewer.Backends, i, i+1), slices.Delete(fewer.Paths, i, i+1)
		r.apply(t, lb.State{Services: []lb.RoutedService{fewer}})
		expectOutcome(t, r, parts[1], "dropped_fragment")
		r.apply(t, lb.State{Services: []lb.RoutedService{service}})
		expectOutcome(t, r, parts[2], "dropped_fragment")
		expectOutcome(t, r, parts[0], "forwarded")
		expectOutcome(t, r, parts[2], "forwarded")
	})
}
