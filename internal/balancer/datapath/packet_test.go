// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// packetCase is a packet, and its expected outcome.
type packetCase struct {
	name  string
	frame []byte
	want  string
}

// runCases feeds packets to both hooks, one after the other.
func runCases(t *testing.T, rigOf func(*testing.T, lb.Hook) *rig, cases []packetCase) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		r := rigOf(t, hook)
		for _, test := range cases {
			t.Run(test.name, func(t *testing.T) {
				enterTestNet(t)
				if !testable(hook, test.frame) {
					t.Skip("the kernel does not test such a packet in this hook")
				}
				expectOutcome(t, r, test.frame, test.want)
			})
		}
	})
}

func TestFrames(t *testing.T) {
	runCases(t, sharedRig, []packetCase{
		{"frame for another host", with(web4(), func(p *packetSpec) {
			p.to = net.HardwareAddr{2, 0, 0, 0, 0, 2}
		}).build(t), "passed_other_host"},
		{"broadcast", with(web4(), func(p *packetSpec) {
			p.to = net.HardwareAddr{255, 255, 255, 255, 255, 255}
		}).build(t), "passed_other_host"},
		{"MAC differs in its first byte", with(web4(), func(p *packetSpec) {
			p.to = net.HardwareAddr{6, 0, 0, 0, 0, 1}
		}).build(t), "passed_other_host"},
		{"ARP", patched(web4().build(t), 12, 0x08, 0x06), "passed_not_ip"},
		{"VLAN tag", tagged(web4().build(t), 0x8100), "forwarded"},
		{"VLAN tag, IPv6", tagged(web6().build(t), 0x8100), "forwarded"},
		{"service tag", tagged(web4().build(t), 0x88a8), "forwarded"},
		{"two tags", tagged(tagged(web4().build(t), 0x8100), 0x88a8), "passed_not_ip"},
		{"tag before ARP", patched(tagged(web4().build(t), 0x8100), 16, 0x08, 0x06), "passed_not_ip"},
		{"half a tag", tagged(web4().build(t), 0x8100)[:17], malformed},
		{"tag and no packet", tagged(web4().build(t), 0x8100)[:18], malformed},
		{"Ethernet padding", append(web4().build(t), make([]byte, 30)...), "forwarded"},
		{"jumbo frame", with(web4(), func(p *packetSpec) { p.flags, p.payload = "A", 8900 }).build(t), "forwarded"},
	})
}

func TestHeaders(t *testing.T) {
	option := []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
	extended := func(types ...byte) []byte {
		var extensions [][2]byte
		for _, kind := range types {
			extensions = append(extensions, [2]byte{kind, 1})
		}
		return ipv6WithExtensions(web6().build(t), extensions...)
	}
	runCases(t, sharedRig, []packetCase{
		{"IPv4 TCP SYN", web4().build(t), "forwarded"},
		{"IPv4 TCP data", with(web4(), func(p *packetSpec) { p.flags, p.payload = "PA", 1000 }).build(t), "forwarded"},
		{"IPv4 TCP RST", with(web4(), func(p *packetSpec) { p.flags = "R" }).build(t), "forwarded"},
		{"IPv4 UDP", packetSpec{from: client4, at: vip4, sport: 9, dport: 53, udp: true, payload: 30}.build(t),
			"forwarded"},
		{"IPv6 TCP SYN", web6().build(t), "forwarded"},
		{"IPv6 UDP", packetSpec{from: client6, at: vip6, sport: 9, dport: 53, udp: true}.build(t), "forwarded"},
		{"IPv4 options", with(web4(), func(p *packetSpec) { p.options = option }).build(t), "forwarded"},
		{"IPv4 longest header", patched(append(web4().build(t), make([]byte, 40)...), 14, 0x4f, 0, 0, 80), malformed},
		{"IPv4 options beyond the frame, protocol without ports",
			patched(patched(web4().build(t)[:50], 14, 0x4f, 0, 0, 80), 23, 47), malformed},
		{"don't fragment is no fragment", patched(web4().build(t), 20, 0x40, 0x00), "forwarded"},
		{"TTL 1", patched(web4().build(t), 22, 1), "forwarded"},

		{"IPv6 atomic fragment", ipv6WithExtensions(web6().build(t), [2]byte{44, 1}), "forwarded"},
		{"IPv6 hop-by-hop", ipv6WithExtensions(web6().build(t), [2]byte{0, 1}), "forwarded"},
		{"IPv6 three long extension headers", ipv6WithExtensions(web6().build(t), [2]byte{0, 1}, [2]byte{43, 3},
			[2]byte{60, 2}), "forwarded"},
		{"IPv6 four extension headers", extended(0, 60, 43, 60), "forwarded"},
		{"IPv6 five extension headers", extended(0, 60, 43, 44, 60), "dropped_extension_headers"},
		{"IPv6 five extension headers, for another address", patched(extended(0, 60, 43, 44, 60), 53, 1), unserved},
		{"IPv6 extension header that names another where none is", patched(extended(60, 60), 62, 60), unserved},
		{"IPv6 extension header that goes beyond the packet",
			patched(ipv6WithExtensions(web6().build(t), [2]byte{0, 1}), 55, 200), malformed},
		{"IPv6 extension header cut short", extended(0)[:58], malformed},

		{"other address", with(web4(), func(p *packetSpec) { p.at = netip.MustParseAddr("198.18.0.101") }).build(t),
			unserved},
		{"other port", with(web4(), func(p *packetSpec) { p.dport = 443 }).build(t), unserved},
		{"port 0", with(web4(), func(p *packetSpec) { p.dport = 0 }).build(t), unserved},
		{"other protocol, same port", packetSpec{from: client4, at: vip4, sport: 9, dport: 80, udp: true}.build(t),
			unserved},
		{"protocol without ports", patched(web4().build(t), 23, 47), unserved},
		{"protocol 255 to the VIP", patched(web4().build(t), 23, 255), unserved},
		{"IPv4 in IPv4 to the VIP", patched(web4().build(t), 23, 4), unserved},
		{"IPv6 other address", with(web6(), func(p *packetSpec) { p.at = netip.MustParseAddr("2001:2::101") }).build(t),
			unserved},
		{"IPv6 no next header", patched(web6().build(t), 20, 59), unserved},
		{"ICMP that is no message", patched(web4().build(t), 23, 1), unserved},
		{"ICMPv6 in IPv4", patched(web4().build(t), 23, 58), unserved},
		{"ICMPv6 to the VIP that is no message", patched(web6().build(t), 20, 58), unserved},

		{"empty IPv4", web4().build(t)[:14], malformed},
		{"half an IPv4 header", web4().build(t)[:24], malformed},
		{"half a TCP header", web4().build(t)[:44], malformed},
		{"half an IPv6 header", web6().build(t)[:40], malformed},
		{"half a UDP header", packetSpec{from: client4, at: vip4, sport: 9, dport: 53, udp: true}.build(t)[:40],
			malformed},
		{"IPv4 version 6", patched(web4().build(t), 14, 0x65), malformed},
		{"IPv6 version 4", patched(web6().build(t), 14, 0x40), malformed},
		{"IPv4 header length 16", patched(web4().build(t), 14, 0x44), malformed},
		{"IPv4 length below its header", patched(web4().build(t), 16, 0, 19), malformed},
		{"IPv4 length without the TCP header", patched(web4().build(t), 16, 0, 30), malformed},
		{"IPv4 length beyond the frame", patched(web4().build(t), 16, 0xff, 0xff), malformed},
		{"IPv6 length beyond the frame", patched(web6().build(t), 18, 0xff, 0xff), malformed},
		{"IPv6 length 0", patched(web6().build(t), 18, 0, 0), malformed},
		{"TCP header length 16", patched(web4().build(t), 46, 0x40), malformed},
		{"TCP header longer than the packet", patched(web4().build(t), 46, 0xf0), "forwarded"},
		{"length beyond the frame, for another address",
			patched(with(web4(), func(p *packetSpec) { p.at = client4 }).build(t), 16, 0xff, 0xff), unserved},

		{"service without a usable backend", with(web4(), func(p *packetSpec) { p.dport = 81 }).build(t),
			"dropped_no_backend"},
		{"service with one usable backend", with(web4(), func(p *packetSpec) { p.dport = 82 }).build(t), "forwarded"},
	})
}

// modePacket is a packet from a client to a service of allModes.
func modePacket(vip netip.Addr, port uint16, udp bool) packetSpec {
	p := packetSpec{from: client4, at: vip, sport: 40000, dport: port, udp: udp, flags: "S", tos: 0xb9, payload: 100}
	if vip.Is6() {
		p.from = client6
	}
	return p
}

// sportOf finds a client's port from which packets to a service go to the
// backend with that number.
func sportOf(tb testing.TB, m *model, s *lb.RoutedService, client netip.Addr, backend int) uint16 {
	tb.Helper()
	for sport := uint16(1); sport != 0; sport++ {
		a := clientPacket{client: netip.AddrPortFrom(client, sport)}
		if now, _, _ := m.candidates(s, selectionHash(s, a)); now == backend {
			return sport
		}
	}
	tb.Fatalf("no port leads to backend %d of %s", backend, s.Name)
	return 0
}

// eachMode runs a test in both hooks for each service of each mode.
func eachMode(t *testing.T, test func(t *testing.T, r *rig, s *lb.RoutedService)) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		for i := range r.model.state.Services {
			s := &r.model.state.Services[i]
			if s.Port < portIPIP || s.Port > portFullNATAlike {
				continue
			}
			t.Run(s.Name+"-"+s.VIP.String(), func(t *testing.T) {
				enterTestNet(t)
				test(t, r, s)
			})
		}
	})
}

// TestModes sends packets of each shape to each service of each mode, to all
// of its backends: their paths differ in interface and MTU.
func TestModes(t *testing.T) {
	eachMode(t, func(t *testing.T, r *rig, s *lb.RoutedService) {
		base := modePacket(s.VIP, s.Port, s.Protocol == lb.UDP)
		for backend := range s.Backends {
			base.sport = sportOf(t, r.model, s, base.from, backend)
			for _, frame := range shapes(t, base) {
				expectOutcome(t, r, frame, "forwarded")
			}
		}
	})
}

// shapes lists packets of a flow that are all to be forwarded: tags, options,
// wrong and absent checksums, padding.
func shapes(tb testing.TB, p packetSpec) [][]byte {
	plain := p.build(tb)
	transport := 34
	if p.at.Is6() {
		transport = 54
	}
	checksum := transport + 16
	if p.udp {
		checksum = transport + 6
	}
	inverted := []byte{^plain[checksum], ^plain[checksum+1]}
	frames := [][]byte{plain, tagged(plain, 0x8100), append(slices.Clone(plain), 1, 2, 3),
		with(p, func(p *packetSpec) { p.payload = 101 }).build(tb),
		patched(slices.Clone(plain), checksum, inverted...),
		patched(slices.Clone(plain), checksum, 0, 0),
		patched(slices.Clone(plain), checksum, 0xff, 0xff)}
	if p.at.Is4() {
		frames = append(frames, with(p, func(p *packetSpec) {
			p.options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}).build(tb), patched(slices.Clone(plain), 24, 0, 0), patched(slices.Clone(plain), 24, 0xff, 0xff))
	} else {
		frames = append(frames, ipv6WithExtensions(plain, [2]byte{0, 1}, [2]byte{44, 1}, [2]byte{60, 2}))
	}
	if !p.udp {
		frames = append(frames, with(p, func(p *packetSpec) { p.flags = "PA" }).build(tb),
			with(p, func(p *packetSpec) { p.tcpOptions = []byte{2, 4, 0x23, 0x00, 1, 3, 3, 7} }).build(tb))
	}
	return frames
}

// TestUDPChecksumNeverBecomesNone looks for the packet whose checksum is 0 after the rewrite: it must be written as
// 0xffff.
func TestUDPChecksumNeverBecomesNone(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		for _, vip := range []netip.Addr{vip4, vip6} {
			p := modePacket(vip, portNAT, true)
			p.payload = 2
			frame := p.build(t)
			v := r.check(t, frame)
			at := 40
			if p.at.Is6() {
				at = 60
			}
			// The payload compensates for the checksum.
			carry := uint32(binary.BigEndian.Uint16(frame[at+2:])) + uint32(binary.BigEndian.Uint16(v.frame[at:]))
			binary.BigEndian.PutUint16(frame[at+2:], uint16(carry%0xffff))
			sumNow := uint32(binary.BigEndian.Uint16(frame[at:])) +
				0xffff - uint32(binary.BigEndian.Uint16(v.frame[at:]))
			binary.BigEndian.PutUint16(frame[at:], uint16(sumNow%0xffff))
			v = r.check(t, frame)
			if got := binary.BigEndian.Uint16(v.frame[at:]); v.outcome != "forwarded" || got != 0xffff {
				t.Errorf("%s: the checksum became %#04x (%s)", vip, got, v.outcome)
			}
		}
	})
}

// TestMSS clamps the MSS of SYNs, wherever in the options it stands.
func TestMSS(t *testing.T) {
	big, small := []byte{2, 4, 0x23, 0x00}, []byte{2, 4, 0x01, 0x00}
	nops := func(n int) []byte { return slices.Repeat([]byte{1}, n) }
	for _, test := range []struct {
		name    string
		options []byte
		flags   string
		clamped bool
	}{
		{"alone", big, "S", true},
		{"below the limit", small, "S", false},
		{"at an odd place", slices.Concat(nops(1), big), "S", true},
		{"after others", slices.Concat([]byte{4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0}, big), "S", true},
		{"the eighth option", slices.Concat(nops(7), big), "S", true},
		{"the ninth option", slices.Concat(nops(8), big), "S", false},
		{"after the end of options", slices.Concat([]byte{0}, big), "S", false},
		{"after an option of length 0", slices.Concat([]byte{9, 0}, big), "S", false},
		{"after an option of length 1", slices.Concat([]byte{9, 1}, big), "S", false},
		{"after one that goes beyond the header", slices.Concat([]byte{9, 40}, big), "S", false},
		{"of a wrong length", []byte{2, 6, 0x23, 0, 0, 0}, "S", false},
		{"cut short by the header's end", slices.Concat(nops(1), []byte{2, 4, 0x23}), "S", false},
		{"in a SYN with ACK", big, "SA", true},
		{"not in a SYN", big, "A", false},
		{"no option", nil, "S", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			bothHooks(t, func(t *testing.T, hook lb.Hook) {
				r := sharedRig(t, hook)
				for _, p := range []packetSpec{modePacket(vip4, portNAT, false), modePacket(vip6, portGUE, false)} {
					p.tcpOptions, p.flags = test.options, test.flags
					v := r.check(t, p.build(t))
					limit := binary.BigEndian.AppendUint16([]byte{2, 4}, r.model.service(p.at, p.dport, false).MSS)
					at := len(v.frame) - p.payload - (len(test.options)+3)&^3
					if got := bytes.Contains(v.frame[at:len(v.frame)-p.payload], limit); got != test.clamped {
						t.Errorf("the model clamped: %v, want %v: %x", got, test.clamped, v.frame)
					}
				}
			})
		})
	}
}

// TestRoundRobin follows flows: turns are exact, a flow keeps its backend, and
// only its end sets its client's port free for another turn.
func TestRoundRobin(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		r := sharedRig(t, hook)
		var sequence uint32
		packet := func(sport int, flags string) verdict {
			return r.check(t, packetSpec{from: client4, at: vip4, sport: uint16(sport), dport: 8080, flags: flags,
				seq: sequence}.build(t))
		}
		turns := map[lb.BackendKey]int{}
		first := map[int]lb.BackendKey{}
		for sport := 1000; sport < 1030; sport++ {
			v := packet(sport, "S")
			turns[v.backend]++
			first[sport] = v.backend
			if !v.opens {
				t.Fatal("a SYN of a new flow does not open it")
			}
		}
		for backend, n := range turns {
			if n != 10 {
				t.Errorf("%v had %d of 30 turns, want 10", backend, n)
			}
		}
		for sport, backend := range first {
			for _, flags := range []string{"S", "A", "PA", "FA", "A"} {
				if v := packet(sport, flags); v.backend != backend || v.opens {
					t.Errorf("port %d, %s: backend %v (opens: %v), want %v", sport, flags, v.backend, v.opens, backend)
				}
			}
		}
		if v := packet(1000, "S"); v.opens {
			t.Error("after FIN, the same SYN once more is a new flow")
		}
		sequence = 1 << 20
		if v := packet(1000, "S"); !v.opens {
			t.Error("after FIN, another SYN from the same port is not a new flow")
		}
		if v := packet(5000, "A"); v.opens {
			t.Error("a packet in the middle of an unknown flow took a turn")
		}
		udp := packetSpec{from: client4, at: vip4, sport: 1, dport: 5353, udp: true}.build(t)
		if a, b := r.check(t, udp), r.check(t, udp); !a.opens || b.opens || a.backend != b.backend {
			t.Errorf("two datagrams of a flow: %v, %v", a, b)
		}
	})
}

// TestMaglevSpreadsFlows checks that hash and table share many flows evenly.
func TestMaglevSpreadsFlows(t *testing.T) {
	r := newRig(t, lb.HookXDP, testState())
	for _, base := range []packetSpec{web4(), web6()} {
		counts := map[lb.BackendKey]float64{}
		const flows = 20000
		for i := range flows {
			p := base
			// As real clients have them: few addresses, ports one after the other.
			p.sport = uint16(1024 + i/4)
			a := p.from.AsSlice()
			a[len(a)-1] = byte(i % 4)
			p.from, _ = netip.AddrFromSlice(a)
			v := r.model.decide(p.build(t), seen{})
			counts[v.backend]++
		}
		// Chi-squared over 5 backends: 4 degrees of freedom, and 23.5 is exceeded
		// by chance once in 10,000. The table's own unevenness adds to it.
		ideal, chi := float64(flows)/5, 0.0
		for _, n := range counts {
			chi += (n - ideal) * (n - ideal) / ideal
		}
		if len(counts) != 5 || chi > 23.5 {
			t.Errorf("%s: %d backends, chi-squared %.1f: %v", base.at, len(counts), chi, counts)
		}
	}
}

// TestEveryServiceIsFound fills the hash tables of services: each must be
// found, within the probes that the program makes.
func TestEveryServiceIsFound(t *testing.T) {
	var state lb.State
	for i := range 3000 {
		vip := netip.AddrFrom4([4]byte{198, 19, byte(i >> 4), byte(i)})
		if i%2 == 1 {
			vip = netip.MustParseAddr(fmt.Sprintf("2001:2:0:%x::1", i))
		}
		state.Services = append(state.Services, testService(vip, uint16(1+i%7), lb.TCP, lb.RoundRobin, 1))
	}
	r := newRig(t, lb.HookXDP, state)
	for _, s := range state.Services {
		from := client4
		if s.VIP.Is6() {
			from = client6
		}
		frame := packetSpec{from: from, at: s.VIP, sport: 1, dport: s.Port, flags: "S"}.build(t)
		if action, _ := r.run(t, frame); action != actions[lb.HookXDP].transmit {
			t.Fatalf("%s was not found", s.Key())
		}
	}
}
