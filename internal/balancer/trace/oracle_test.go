// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// oracle describes a frame by gopacket.
func oracle(frame []byte) []Layer {
	return oracleDescribe(gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy), "")
}

// frames are ones that a balancer receives and sends: every header, option and nesting that Describe knows.
func frames(t *testing.T) map[string][]byte {
	udp := question6()
	udp.Protocol, udp.Flags = lb.UDP, nil
	syn, syn6, datagram6 := frame(t, question()), frame(t, question6()), frame(t, udp)
	build := func(parts ...gopacket.SerializableLayer) []byte { return testpacket.Build(t, parts...) }
	eth := func(of layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: ours, DstMAC: backend, EthernetType: of}
	}
	ip := func(protocol layers.IPProtocol) *layers.IPv4 {
		return &layers.IPv4{Version: 4, TTL: 63, TOS: 0xb8, Id: 77, Protocol: protocol, SrcIP: net.IP{192, 0, 2, 1},
			DstIP: net.IP{192, 0, 2, 2}}
	}
	ip6 := func(next layers.IPProtocol) *layers.IPv6 {
		return &layers.IPv6{Version: 6, HopLimit: 9, TrafficClass: 0x28, FlowLabel: 0xabcde, NextHeader: next,
			SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2")}
	}
	fragment := ip(layers.IPProtocolUDP)
	fragment.Flags, fragment.FragOffset = layers.IPv4MoreFragments, 3
	options := ip(layers.IPProtocolTCP)
	options.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true, PSH: true, CWR: true, Options: []layers.TCPOption{
		{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3,
			OptionData: []byte{7}},
		{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 0xb4}}}}
	gue := &layers.UDP{SrcPort: 50000, DstPort: guePort}
	error4 := func(kind, code uint8) *layers.ICMPv4 {
		return &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, code), Seq: 1400}
	}
	error6 := func(kind uint8) *layers.ICMPv6 { return &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)} }
	hop := gopacket.Payload([]byte{byte(layers.IPProtocolTCP), 0, 1, 4, 0, 0, 0, 0})
	return map[string][]byte{
		"syn": syn, "syn6": syn6, "datagram6": datagram6,
		"tag":        slices.Concat(syn[:12], []byte{0x81, 0, 0x20, 5}, syn[12:]),
		"two tags":   slices.Concat(syn[:12], []byte{0x88, 0xa8, 0, 7, 0x81, 0, 0, 5}, syn[12:]),
		"options":    build(eth(layers.EthernetTypeIPv4), options, tcp, gopacket.Payload("data")),
		"fragment":   build(eth(layers.EthernetTypeIPv4), fragment, gopacket.Payload(make([]byte, 64))),
		"ipip":       build(eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolIPv4), gopacket.Payload(syn[14:58])),
		"ip6 in ip4": build(eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolIPv6), gopacket.Payload(syn6[14:])),
		"ip4 in ip6": build(eth(layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv4), gopacket.Payload(syn[14:58])),
		"gue": build(eth(layers.EthernetTypeIPv6), ip6(layers.IPProtocolUDP), gue,
			gopacket.Payload(syn[14:58])),
		"gre": build(eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolGRE), gopacket.Payload(syn[:40])),
		"hop-by-hop": build(eth(layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv6HopByHop), hop,
			gopacket.Payload(syn6[54:])),
		"echo": build(eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolICMPv4), error4(8, 0)),
		"unreachable": build(eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolICMPv4), error4(3, 3),
			gopacket.Payload(syn[14:58])),
		"too big": build(eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolICMPv4), error4(3, 4),
			gopacket.Payload(syn[14:58])),
		"exceeded": build(eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolICMPv4), error4(11, 0),
			gopacket.Payload(syn[14:58])),
		"echo6": build(eth(layers.EthernetTypeIPv6), ip6(layers.IPProtocolICMPv6), error6(128),
			gopacket.Payload(make([]byte, 8))),
		"unreachable6": build(eth(layers.EthernetTypeIPv6), ip6(layers.IPProtocolICMPv6), error6(1),
			gopacket.Payload(slices.Concat(make([]byte, 4), syn6[14:]))),
		"too big6": build(eth(layers.EthernetTypeIPv6), ip6(layers.IPProtocolICMPv6), error6(2),
			gopacket.Payload(slices.Concat([]byte{0, 0, 5, 0x14}, syn6[14:]))),
		"arp": build(eth(layers.EthernetTypeARP), gopacket.Payload(make([]byte, 28))),
	}
}

// TestDescribeAgreesWithGopacket compares whole frames, and frames that are cut off anywhere.
func TestDescribeAgreesWithGopacket(t *testing.T) {
	for name, whole := range frames(t) {
		for n := range len(whole) + 1 {
			if diff := cmp.Diff(oracle(whole[:n:n]), Describe(whole[:n:n])); diff != "" {
				t.Errorf("%s, %d of %d bytes (-gopacket +Describe):\n%s", name, n, len(whole), diff)
				break
			}
		}
	}
}

func oracleDescribe(packet gopacket.Packet, prefix string) []Layer {
	var all []Layer
	add := func(name string, fields ...Field) { all = append(all, Layer{prefix + name, fields}) }
	for _, layer := range packet.Layers() {
		if len(layer.LayerContents()) == 0 {
			return all // cut off: gopacket has the layer nevertheless, with its fields at 0
		}
		switch l := layer.(type) {
		case *layers.Ethernet:
			add("ethernet", Field{"destination", l.DstMAC.String()}, Field{"source", l.SrcMAC.String()})
		case *layers.Dot1Q:
			add("vlan", number("id", l.VLANIdentifier))
		case *layers.IPv4:
			add("ipv4", oracleIPv4(l)...)
		case *layers.IPv6:
			add("ipv6", oracleIPv6(l)...)
		case *layers.IPv6HopByHop, *layers.IPv6Destination, *layers.IPv6Routing, *layers.IPv6Fragment:
		case *layers.TCP:
			add("tcp", oracleTCP(l)...)
			return all
		case *layers.UDP:
			add("udp", number("source port", uint16(l.SrcPort)), number("destination port", uint16(l.DstPort)),
				number("length", l.Length), sum(l.Checksum))
			if l.DstPort == guePort {
				all = append(all, oracleInner(l.Payload, prefix)...)
			}
			return all
		case *layers.ICMPv4:
			add("icmp", number("type", l.TypeCode.Type()), number("code", l.TypeCode.Code()), sum(l.Checksum))
			if l.TypeCode.Type() == layers.ICMPv4TypeDestinationUnreachable &&
				l.TypeCode.Code() == layers.ICMPv4CodeFragmentationNeeded {
				all[len(all)-1].Fields = append(all[len(all)-1].Fields, number("mtu", l.Seq))
			}
			switch l.TypeCode.Type() {
			case layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeTimeExceeded,
				layers.ICMPv4TypeParameterProblem:
				all = append(all, oracleInner(l.Payload, "quoted ")...)
			}
			return all
		case *layers.ICMPv6:
			if len(l.Payload) < 4 {
				return all // gopacket's header has no part that depends on the type
			}
			add("icmpv6", number("type", l.TypeCode.Type()), number("code", l.TypeCode.Code()), sum(l.Checksum))
			if l.TypeCode.Type() >= layers.ICMPv6TypeEchoRequest {
				return all
			}
			if l.TypeCode.Type() == layers.ICMPv6TypePacketTooBig {
				all[len(all)-1].Fields = append(all[len(all)-1].Fields,
					number("mtu", binary.BigEndian.Uint32(l.Payload)))
			}
			return append(all, oracleInner(l.Payload[4:], "quoted ")...)
		default:
			return all
		}
	}
	return all
}

// oracleInner describes an IP packet inside another.
func oracleInner(packet []byte, prefix string) []Layer {
	if len(packet) == 0 {
		return nil
	}
	first := layers.LayerTypeIPv4
	if packet[0]>>4 == 6 {
		first = layers.LayerTypeIPv6
	}
	return oracleDescribe(gopacket.NewPacket(packet, first, gopacket.NoCopy), prefix)
}

func oracleIPv4(l *layers.IPv4) []Field {
	source, _ := netip.AddrFromSlice(l.SrcIP)
	destination, _ := netip.AddrFromSlice(l.DstIP)
	return []Field{
		{"source", source.String()}, {"destination", destination.String()}, hex("tos", uint(l.TOS), 2),
		number("length", l.Length),
		number("identification", l.Id), {"flags", orDash(strings.ToLower(l.Flags.String()))}, number("ttl", l.TTL),
		number("protocol", uint8(l.Protocol)), sum(l.Checksum),
	}
}

func oracleIPv6(l *layers.IPv6) []Field {
	source, _ := netip.AddrFromSlice(l.SrcIP)
	destination, _ := netip.AddrFromSlice(l.DstIP)
	return []Field{
		{"source", source.String()}, {"destination", destination.String()},
		hex("traffic class", uint(l.TrafficClass), 2),
		hex("flow label", uint(l.FlowLabel), 5), number("payload length", l.Length),
		number("next header", uint8(l.NextHeader)),
		number("hop limit", l.HopLimit),
	}
}

func oracleTCP(l *layers.TCP) []Field {
	var flags uint8
	for i, set := range []bool{l.FIN, l.SYN, l.RST, l.PSH, l.ACK, l.URG, l.ECE, l.CWR} {
		if set {
			flags |= 1 << i
		}
	}
	fields := []Field{number("source port", uint16(l.SrcPort)), number("destination port", uint16(l.DstPort)),
		{"flags", orDash(strings.Join(FlagNames(flags), ","))}, sum(l.Checksum)}
	for _, option := range l.Options {
		if option.OptionType == layers.TCPOptionKindMSS && len(option.OptionData) == 2 {
			return append(fields, number("mss", binary.BigEndian.Uint16(option.OptionData)))
		}
	}
	return fields
}
