// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/lb"
)

// packetSpec describes a packet from a client.
type packetSpec struct {
	to       net.HardwareAddr
	from, at netip.Addr
	sport    uint16
	dport    uint16
	udp      bool
	flags    string
	payload  int
	options  []layers.IPv4Option
}

// build makes the frame with gopacket, an encoder that shares no code with
// what is tested.
func (p packetSpec) build(tb testing.TB) []byte {
	tb.Helper()
	if p.to == nil {
		p.to = balancerMAC
	}
	eth := &layers.Ethernet{SrcMAC: routerMAC, DstMAC: p.to, EthernetType: layers.EthernetTypeIPv4}
	protocol := layers.IPProtocolTCP
	if p.udp {
		protocol = layers.IPProtocolUDP
	}
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	if p.at.Is4() {
		ip = &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: p.from.AsSlice(), DstIP: p.at.AsSlice(), Options: p.options}
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: p.from.AsSlice(), DstIP: p.at.AsSlice()}
	}
	transport := p.transport(tb, ip)
	buffer := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		eth, ip, transport, gopacket.Payload(make([]byte, p.payload)))
	if err != nil {
		tb.Fatal(err)
	}
	return buffer.Bytes()
}

func (p packetSpec) transport(tb testing.TB, ip gopacket.NetworkLayer) gopacket.SerializableLayer {
	tb.Helper()
	if p.udp {
		udp := &layers.UDP{SrcPort: layers.UDPPort(p.sport), DstPort: layers.UDPPort(p.dport)}
		if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
			tb.Fatal(err)
		}
		return udp
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(p.sport), DstPort: layers.TCPPort(p.dport), Window: 64240}
	for _, flag := range p.flags {
		switch flag {
		case 'S':
			tcp.SYN = true
		case 'A':
			tcp.ACK = true
		case 'F':
			tcp.FIN = true
		case 'R':
			tcp.RST = true
		case 'P':
			tcp.PSH = true
		default:
			tb.Fatalf("no such TCP flag: %c", flag)
		}
	}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		tb.Fatal(err)
	}
	return tcp
}

// web4 is the packet that the table's cases are variations of.
func web4() packetSpec {
	return packetSpec{from: client4, at: vip4, sport: 40000, dport: 80, flags: "S"}
}

func web6() packetSpec {
	return packetSpec{from: client6, at: vip6, sport: 40000, dport: 80, flags: "S"}
}

func with(p packetSpec, change func(*packetSpec)) packetSpec {
	change(&p)
	return p
}

// patched returns a frame with bytes changed.
func patched(frame []byte, at int, bytes ...byte) []byte {
	copy(frame[at:], bytes)
	return frame
}

// ipv6WithExtensions puts extension headers between the IPv6 and the transport
// header of a frame. Each is its type and its length in units of 8 bytes.
func ipv6WithExtensions(frame []byte, extensions ...[2]byte) []byte {
	out := append([]byte(nil), frame[:54]...)
	last := frame[20]
	at := 20
	for _, extension := range extensions {
		out[at] = extension[0]
		at = len(out)
		header := make([]byte, extension[1]*8)
		if extension[0] != 44 {
			header[1] = extension[1] - 1
		}
		out = append(out, header...)
	}
	out[at] = last
	out = append(out, frame[54:]...)
	binary.BigEndian.PutUint16(out[18:], uint16(len(out)-54))
	return out
}

func TestPackets(t *testing.T) {
	fragment4 := func(field ...byte) []byte { return patched(web4().build(t), 20, field...) }
	for _, test := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"IPv4 TCP SYN", web4().build(t), "forwarded"},
		{"IPv4 TCP data", with(web4(), func(p *packetSpec) { p.flags, p.payload = "PA", 1000 }).build(t), "forwarded"},
		{"IPv4 TCP RST", with(web4(), func(p *packetSpec) { p.flags = "R" }).build(t), "forwarded"},
		{"IPv4 UDP", packetSpec{from: client4, at: vip4, sport: 9, dport: 53, udp: true, payload: 30}.build(t), "forwarded"},
		{"IPv6 TCP SYN", web6().build(t), "forwarded"},
		{"IPv6 UDP", packetSpec{from: client6, at: vip6, sport: 9, dport: 53, udp: true}.build(t), "forwarded"},
		{"IPv4 options", with(web4(), func(p *packetSpec) {
			p.options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}).build(t), "forwarded"},
		{"IPv4 longest header", patched(append(web4().build(t), make([]byte, 40)...), 14, 0x4f, 0, 0, 80), malformed},
		{"Ethernet padding", append(web4().build(t), make([]byte, 30)...), "forwarded"},
		{"jumbo frame", with(web4(), func(p *packetSpec) { p.flags, p.payload = "A", 8900 }).build(t), "forwarded"},

		{"frame for another host", with(web4(), func(p *packetSpec) { p.to = net.HardwareAddr{2, 0, 0, 0, 0, 2} }).build(t), "passed_other_host"},
		{"broadcast", with(web4(), func(p *packetSpec) { p.to = net.HardwareAddr{255, 255, 255, 255, 255, 255} }).build(t), "passed_other_host"},
		{"MAC differs in its first byte", with(web4(), func(p *packetSpec) { p.to = net.HardwareAddr{6, 0, 0, 0, 0, 1} }).build(t), "passed_other_host"},
		{"ARP", patched(web4().build(t), 12, 0x08, 0x06), "passed_not_ip"},
		{"VLAN tag", patched(web4().build(t), 12, 0x81, 0x00), "passed_not_ip"},
		{"other address", with(web4(), func(p *packetSpec) { p.at = netip.MustParseAddr("198.18.0.101") }).build(t), "passed_no_service"},
		{"other port", with(web4(), func(p *packetSpec) { p.dport = 443 }).build(t), "passed_no_service"},
		{"port 0", with(web4(), func(p *packetSpec) { p.dport = 0 }).build(t), "passed_no_service"},
		{"other protocol, same port", packetSpec{from: client4, at: vip4, sport: 9, dport: 80, udp: true}.build(t), "passed_no_service"},
		{"ICMP to the VIP", patched(web4().build(t), 23, 1), "passed_no_service"},
		{"protocol without ports", patched(web4().build(t), 23, 47), "passed_no_service"},
		{"IPv6 other address", with(web6(), func(p *packetSpec) { p.at = netip.MustParseAddr("2001:2::101") }).build(t), "passed_no_service"},
		{"ICMPv6 to the VIP", patched(web6().build(t), 20, 58), "passed_no_service"},
		{"IPv6 no next header", patched(web6().build(t), 20, 59), "passed_no_service"},

		{"first IPv4 fragment", fragment4(0x20, 0x00), "dropped_fragment"},
		{"later IPv4 fragment", fragment4(0x00, 0x10), "dropped_fragment"},
		{"don't fragment is no fragment", fragment4(0x40, 0x00), "forwarded"},
		{"fragment for another address", patched(with(web4(), func(p *packetSpec) { p.at = client4 }).build(t), 20, 0x20, 0), "passed_no_service"},
		{"fragment for 0.0.0.0", patched(with(web4(), func(p *packetSpec) { p.at = netip.IPv4Unspecified() }).build(t), 20, 0x20, 0), "passed_no_service"},
		{"fragment for ::", patched(ipv6WithExtensions(with(web6(), func(p *packetSpec) { p.at = netip.IPv6Unspecified() }).build(t), [2]byte{44, 1}), 56, 0, 1), "passed_no_service"},
		{"protocol 255 to the VIP", patched(web4().build(t), 23, 255), "passed_no_service"},
		{"IPv6 fragment", patched(ipv6WithExtensions(web6().build(t), [2]byte{44, 1}), 56, 0, 1), "dropped_fragment"},
		{"IPv6 atomic fragment", ipv6WithExtensions(web6().build(t), [2]byte{44, 1}), "forwarded"},
		{"IPv6 hop-by-hop", ipv6WithExtensions(web6().build(t), [2]byte{0, 1}), "forwarded"},
		{"IPv6 three extension headers", ipv6WithExtensions(web6().build(t), [2]byte{0, 1}, [2]byte{43, 3}, [2]byte{60, 2}), "forwarded"},
		{"IPv6 four extension headers", ipv6WithExtensions(web6().build(t), [2]byte{0, 1}, [2]byte{60, 1}, [2]byte{43, 1}, [2]byte{60, 1}), "dropped_extension_headers"},
		{"IPv6 extension header that goes beyond the packet", patched(ipv6WithExtensions(web6().build(t), [2]byte{0, 1}), 55, 200), malformed},

		{"empty IPv4", web4().build(t)[:14], malformed},
		{"half an IPv4 header", web4().build(t)[:24], malformed},
		{"half a TCP header", web4().build(t)[:44], malformed},
		{"half an IPv6 header", web6().build(t)[:40], malformed},
		{"IPv4 version 6", patched(web4().build(t), 14, 0x65), malformed},
		{"IPv6 version 4", patched(web6().build(t), 14, 0x40), malformed},
		{"IPv4 header length 16", patched(web4().build(t), 14, 0x44), malformed},
		{"IPv4 length below its header", patched(web4().build(t), 16, 0, 19), malformed},
		{"IPv4 length without the TCP header", patched(web4().build(t), 16, 0, 30), malformed},
		{"IPv4 length beyond the frame", patched(web4().build(t), 16, 0xff, 0xff), malformed},
		{"IPv6 length beyond the frame", patched(web6().build(t), 18, 0xff, 0xff), malformed},
		{"TCP header length 16", patched(web4().build(t), 46, 0x40), malformed},
		{"length beyond the frame, for another address", patched(with(web4(), func(p *packetSpec) { p.at = client4 }).build(t), 16, 0xff, 0xff), "passed_no_service"},

		{"service without a usable backend", with(web4(), func(p *packetSpec) { p.dport = 81 }).build(t), "dropped_no_backend"},
		{"service with one usable backend", with(web4(), func(p *packetSpec) { p.dport = 82 }).build(t), "forwarded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bothHooks(t, func(t *testing.T, hook lb.Hook) {
				if !testable(hook, test.frame) {
					t.Skip("the kernel does not test such a packet in this hook")
				}
				if got := newRig(t, hook, testState()).check(t, test.frame); got.outcome != test.want {
					t.Errorf("the model says %s, the table %s", got.outcome, test.want)
				}
			})
		})
	}
}

// TestRoundRobin follows flows: turns are exact, a flow keeps its backend, and
// only its end sets its client's port free for another turn.
func TestRoundRobin(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, testState())
		packet := func(sport int, flags string) verdict {
			return r.check(t, packetSpec{from: client4, at: vip4, sport: uint16(sport), dport: 8080, flags: flags}.build(t))
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
		if v := packet(1000, "S"); !v.opens {
			t.Error("after FIN, a SYN from the same port is not a new flow")
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
			// What clients do: few addresses, ports one after the other.
			p.sport = uint16(1024 + i/4)
			a := p.from.AsSlice()
			a[len(a)-1] = byte(i % 4)
			p.from, _ = netip.AddrFromSlice(a)
			v := r.model.decide(p.build(t))
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
	var state State
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
		action, _, err := r.datapath.Program().Test(frame)
		if err != nil {
			t.Fatal(err)
		}
		if action != actions[lb.HookXDP].transmit {
			t.Fatalf("%s was not found", s.Key())
		}
	}
}
