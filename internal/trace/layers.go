// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// guePort is the port of GUE, which gopacket does not know.
const guePort = 6080

// Layer is a header of a frame.
type Layer struct {
	// Name is "ethernet", "vlan", "ipv4", "ipv6", "tcp", "udp", "icmp" or
	// "icmpv6", with "quoted " before it inside an ICMP error.
	Name   string  `json:"name"`
	Fields []Field `json:"fields"`
}

// Field is a field of a header, as a person reads it.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Get returns a field's value, or "".
func (l Layer) Get(name string) string {
	for _, f := range l.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Describe lists the headers of a frame, as far as they are there and known.
// What follows the transport header is not looked at, but for what a tunnel
// bears and an ICMP error quotes.
func Describe(frame []byte) []Layer {
	return describe(gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy), "")
}

func describe(packet gopacket.Packet, prefix string) []Layer {
	var all []Layer
	add := func(name string, fields ...Field) { all = append(all, Layer{prefix + name, fields}) }
	for _, layer := range packet.Layers() {
		switch l := layer.(type) {
		case *layers.Ethernet:
			add("ethernet", Field{"destination", l.DstMAC.String()}, Field{"source", l.SrcMAC.String()})
		case *layers.Dot1Q:
			add("vlan", number("id", l.VLANIdentifier))
		case *layers.IPv4:
			add("ipv4", ipv4Fields(l)...)
		case *layers.IPv6:
			add("ipv6", ipv6Fields(l)...)
		case *layers.IPv6HopByHop, *layers.IPv6Destination, *layers.IPv6Routing, *layers.IPv6Fragment:
		case *layers.TCP:
			add("tcp", tcpFields(l)...)
			return all
		case *layers.UDP:
			add("udp", number("source port", uint16(l.SrcPort)), number("destination port", uint16(l.DstPort)),
				number("length", l.Length), sum(l.Checksum))
			if l.DstPort == guePort {
				all = append(all, inner(l.Payload, prefix)...)
			}
			return all
		case *layers.ICMPv4:
			add("icmp", number("type", l.TypeCode.Type()), number("code", l.TypeCode.Code()), sum(l.Checksum))
			if l.TypeCode.Type() == layers.ICMPv4TypeDestinationUnreachable && l.TypeCode.Code() == layers.ICMPv4CodeFragmentationNeeded {
				all[len(all)-1].Fields = append(all[len(all)-1].Fields, number("mtu", l.Seq))
			}
			switch l.TypeCode.Type() {
			case layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeTimeExceeded, layers.ICMPv4TypeParameterProblem:
				all = append(all, inner(l.Payload, "quoted ")...)
			}
			return all
		case *layers.ICMPv6:
			add("icmpv6", number("type", l.TypeCode.Type()), number("code", l.TypeCode.Code()), sum(l.Checksum))
			if len(l.Payload) < 4 || l.TypeCode.Type() >= layers.ICMPv6TypeEchoRequest {
				return all
			}
			if l.TypeCode.Type() == layers.ICMPv6TypePacketTooBig {
				all[len(all)-1].Fields = append(all[len(all)-1].Fields, number("mtu", binary.BigEndian.Uint32(l.Payload)))
			}
			return append(all, inner(l.Payload[4:], "quoted ")...)
		default:
			return all
		}
	}
	return all
}

// inner describes an IP packet inside another.
func inner(packet []byte, prefix string) []Layer {
	if len(packet) == 0 {
		return nil
	}
	first := layers.LayerTypeIPv4
	if packet[0]>>4 == 6 {
		first = layers.LayerTypeIPv6
	}
	return describe(gopacket.NewPacket(packet, first, gopacket.NoCopy), prefix)
}

func ipv4Fields(l *layers.IPv4) []Field {
	source, _ := netip.AddrFromSlice(l.SrcIP)
	destination, _ := netip.AddrFromSlice(l.DstIP)
	return []Field{
		{"source", source.String()}, {"destination", destination.String()}, hex("tos", uint(l.TOS), 2), number("length", l.Length),
		number("identification", l.Id), {"flags", orDash(strings.ToLower(l.Flags.String()))}, number("ttl", l.TTL), number("protocol", uint8(l.Protocol)), sum(l.Checksum),
	}
}

func ipv6Fields(l *layers.IPv6) []Field {
	source, _ := netip.AddrFromSlice(l.SrcIP)
	destination, _ := netip.AddrFromSlice(l.DstIP)
	return []Field{
		{"source", source.String()}, {"destination", destination.String()}, hex("traffic class", uint(l.TrafficClass), 2),
		hex("flow label", uint(l.FlowLabel), 5), number("payload length", l.Length), number("next header", uint8(l.NextHeader)),
		number("hop limit", l.HopLimit),
	}
}

func tcpFields(l *layers.TCP) []Field {
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

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number[N uint8 | uint16 | uint32](name string, n N) Field {
	return Field{name, fmt.Sprint(n)}
}

func hex(name string, n uint, digits int) Field {
	return Field{name, fmt.Sprintf("0x%0*x", digits, n)}
}

func sum(checksum uint16) Field { return hex("checksum", uint(checksum), 4) }
