// SPDX-License-Identifier: Apache-2.0

package packet_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

var (
	to   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	from = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// TestBuildsAsGopacket builds the same frames with this package and with gopacket.
func TestBuildsAsGopacket(t *testing.T) {
	payload := []byte("seven b") // odd: the last byte is half a word of the checksum
	ip := packet.IP{Source: netip.MustParseAddr("192.0.2.1"), Destination: netip.MustParseAddr("192.0.2.2"), TTL: 64,
		DontFragment: true}
	ip6 := packet.IP{Source: netip.MustParseAddr("2001:db8::1"), Destination: netip.MustParseAddr("2001:db8::2"),
		TTL: 255}
	frame := func(p packet.IP, protocol uint8, headers ...any) []byte {
		p.Protocol = protocol
		return packet.Frame(to, from, p.EtherType(), p.Packet(append(packet.Append(nil, headers...), payload...)))
	}
	eth := func(of layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: from, DstMAC: to, EthernetType: of}
	}
	want := func(p packet.IP, protocol layers.IPProtocol, parts ...gopacket.SerializableLayer) []byte {
		if p.Source.Is4() {
			h := &layers.IPv4{Version: 4, TTL: p.TTL, Flags: layers.IPv4DontFragment, Protocol: protocol,
				SrcIP: p.Source.AsSlice(), DstIP: p.Destination.AsSlice()}
			return testpacket.Build(t, append([]gopacket.SerializableLayer{eth(layers.EthernetTypeIPv4), h},
				append(parts, gopacket.Payload(payload))...)...)
		}
		h := &layers.IPv6{Version: 6, HopLimit: p.TTL, NextHeader: protocol, SrcIP: p.Source.AsSlice(),
			DstIP: p.Destination.AsSlice()}
		return testpacket.Build(t, append([]gopacket.SerializableLayer{eth(layers.EthernetTypeIPv6), h},
			append(parts, gopacket.Payload(payload))...)...)
	}
	length := uint16(8 + len(payload))
	tcp := packet.TCP{SourcePort: 4711, DestinationPort: 80, Sequence: 1 << 31, Acknowledgment: 7, DataOffset: 5 << 4,
		Flags: 0x12, Window: 512, Urgent: 3}
	goTCP := &layers.TCP{SrcPort: 4711, DstPort: 80, Seq: 1 << 31, Ack: 7, SYN: true, ACK: true, Window: 512, Urgent: 3}
	for name, test := range map[string]struct{ got, want []byte }{
		"tcp":  {frame(ip, unix.IPPROTO_TCP, tcp), want(ip, layers.IPProtocolTCP, goTCP)},
		"tcp6": {frame(ip6, unix.IPPROTO_TCP, tcp), want(ip6, layers.IPProtocolTCP, goTCP)},
		"udp": {frame(ip, unix.IPPROTO_UDP, packet.UDP{1, 2, length, 0}),
			want(ip, layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2})},
		"udp6": {frame(ip6, unix.IPPROTO_UDP, packet.UDP{1, 2, length, 0}),
			want(ip6, layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2})},
		"icmp": {frame(ip, unix.IPPROTO_ICMP, packet.ICMP{Type: 8, Rest: 5<<16 | 6}),
			want(ip, layers.IPProtocolICMPv4, &layers.ICMPv4{TypeCode: 8 << 8, Id: 5, Seq: 6})},
		"icmp6": {frame(ip6, unix.IPPROTO_ICMPV6, packet.ICMP{Type: 128, Rest: 5<<16 | 6}),
			want(ip6, layers.IPProtocolICMPv6, &layers.ICMPv6{TypeCode: 128 << 8},
				&layers.ICMPv6Echo{Identifier: 5, SeqNumber: 6})},
		"arp": {packet.ARPFrame(from, ip.Source, ip.Destination), testpacket.Build(t,
			&layers.Ethernet{SrcMAC: from, DstMAC: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
				EthernetType: layers.EthernetTypeARP},
			&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6,
				ProtAddressSize: 4, Operation: layers.ARPRequest,
				SourceHwAddress: from, SourceProtAddress: ip.Source.AsSlice(), DstHwAddress: make([]byte, 6),
				DstProtAddress: ip.Destination.AsSlice()})},
	} {
		if !bytes.Equal(test.got, test.want) {
			t.Errorf("%s:\n got %x\nwant %x", name, test.got, test.want)
		}
	}
}

// TestZeroChecksum: a UDP checksum of 0 means no checksum, so a computed 0 is sent as 0xffff (RFC 768).
func TestZeroChecksum(t *testing.T) {
	p := packet.IP{Source: netip.MustParseAddr("0.0.0.0"), Destination: netip.MustParseAddr("0.0.0.0"),
		Protocol: unix.IPPROTO_UDP}
	// The pseudo-header sums to 17+8, and the header to 8 and the ports.
	segment := packet.Append(nil, packet.UDP{SourcePort: 0xffff - 17 - 8 - 8, Length: 8})
	udp, _, ok := packet.Read[packet.UDP](p.Packet(segment)[20:])
	if !ok || udp.Checksum != 0xffff {
		t.Errorf("checksum %#x, want 0xffff", udp.Checksum)
	}
}

func TestReadIsBounded(t *testing.T) {
	if _, _, ok := packet.Read[packet.IPv6](make([]byte, 39)); ok {
		t.Error("39 bytes are an IPv6 header")
	}
	if _, rest, ok := packet.Read[packet.IPv6](make([]byte, 41)); !ok || len(rest) != 1 {
		t.Errorf("of 41 bytes %d follow an IPv6 header", len(rest))
	}
}
