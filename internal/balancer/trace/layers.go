// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/packet"
)

// guePort is the port of GUE.
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

// Describe lists the headers of a frame, as far as they are there and known. Bytes behind the transport header are not
// looked at, but for the packet in a tunnel and the one that an ICMP error quotes.
func Describe(frame []byte) []Layer {
	eth, rest, ok := packet.Read[packet.Ethernet](frame)
	if !ok {
		return nil
	}
	d := description{}
	d.add("ethernet", Field{"destination", net.HardwareAddr(eth.Destination[:]).String()},
		Field{"source", net.HardwareAddr(eth.Source[:]).String()})
	next := eth.Type
	for next == unix.ETH_P_8021Q || next == unix.ETH_P_8021AD {
		var tag packet.VLAN
		if tag, rest, ok = packet.Read[packet.VLAN](rest); !ok {
			return d.layers
		}
		d.add("vlan", number("id", tag.Control&0xfff))
		next = tag.Type
	}
	switch next {
	case unix.ETH_P_IP:
		d.ipv4(rest)
	case unix.ETH_P_IPV6:
		d.ipv6(rest)
	}
	return d.layers
}

// description collects the layers of a frame. Its methods take the bytes from the header of their name on, and add
// nothing if that is cut off or malformed.
type description struct {
	layers []Layer
	// prefix is put before names.
	prefix string
}

func (d *description) add(name string, fields ...Field) {
	d.layers = append(d.layers, Layer{d.prefix + name, fields})
}

// inner describes an IP packet inside another.
func (d *description) inner(b []byte, prefix string) {
	if len(b) == 0 {
		return
	}
	within := description{prefix: prefix}
	if b[0]>>4 == 6 {
		within.ipv6(b)
	} else {
		within.ipv4(b)
	}
	d.layers = append(d.layers, within.layers...)
}

func (d *description) ipv4(b []byte) {
	h, _, ok := packet.Read[packet.IPv4](b)
	headerLength := int(h.VersionLength&0xf) * 4
	if !ok || headerLength < 20 || headerLength > len(b) {
		return
	}
	if h.Length == 0 { // too long for the field, before the card cuts it into segments
		h.Length = uint16(len(b))
	}
	if int(h.Length) < headerLength {
		return
	}
	d.add("ipv4", Field{"source", netip.AddrFrom4(h.Source).String()},
		Field{"destination", netip.AddrFrom4(h.Destination).String()},
		hex("tos", uint(h.TOS), 2), number("length", h.Length), number("identification", h.Identification),
		Field{"flags", orDash(ipv4Flags(h.Fragment))}, number("ttl", h.TTL), number("protocol", h.Protocol),
		sum(h.Checksum))
	if h.Fragment&(packet.IPv4MoreFragments|packet.IPv4Offset) == 0 {
		d.transport(h.Protocol, b[headerLength:min(int(h.Length), len(b))])
	}
}

func ipv4Flags(fragment uint16) string {
	var names []string
	for _, flag := range []struct {
		bit  uint16
		name string
	}{{packet.IPv4Evil, "evil"}, {packet.IPv4DontFragment, "df"}, {packet.IPv4MoreFragments, "mf"}} {
		if fragment&flag.bit != 0 {
			names = append(names, flag.name)
		}
	}
	return strings.Join(names, "|")
}

func (d *description) ipv6(b []byte) {
	h, rest, ok := packet.Read[packet.IPv6](b)
	if !ok {
		return
	}
	d.add("ipv6", Field{"source", netip.AddrFrom16(h.Source).String()},
		Field{"destination", netip.AddrFrom16(h.Destination).String()},
		hex("traffic class", uint(h.VersionClassFlow>>20&0xff), 2),
		hex("flow label", uint(h.VersionClassFlow&0xfffff), 5),
		number("payload length", h.PayloadLength), number("next header", h.NextHeader), number("hop limit", h.HopLimit))
	if h.PayloadLength > 0 { // else it is a jumbogram
		rest = rest[:min(int(h.PayloadLength), len(rest))]
	}
	next := h.NextHeader
	for next == unix.IPPROTO_HOPOPTS || next == unix.IPPROTO_DSTOPTS || next == unix.IPPROTO_ROUTING {
		// RFC 8200 section 4: the next header, and the length in units of 8 bytes beyond the first.
		if len(rest) < 2 || len(rest) < (int(rest[1])+1)*8 {
			return
		}
		next, rest = rest[0], rest[(int(rest[1])+1)*8:]
	}
	d.transport(next, rest)
}

// transport describes the content of an IP packet.
func (d *description) transport(protocol uint8, b []byte) {
	switch protocol {
	case unix.IPPROTO_TCP:
		d.tcp(b)
	case unix.IPPROTO_UDP:
		d.udp(b)
	case unix.IPPROTO_ICMP:
		d.icmp(b)
	case unix.IPPROTO_ICMPV6:
		d.icmpv6(b)
	case unix.IPPROTO_IPIP:
		d.ipv4(b)
	case unix.IPPROTO_IPV6:
		d.ipv6(b)
	}
}

func (d *description) tcp(b []byte) {
	h, rest, ok := packet.Read[packet.TCP](b)
	headerLength := int(h.DataOffset>>4) * 4
	if !ok || headerLength < 20 {
		return
	}
	fields := []Field{number("source port", h.SourcePort), number("destination port", h.DestinationPort),
		{"flags", orDash(strings.Join(FlagNames(h.Flags), ","))}, sum(h.Checksum)}
	if mss, ok := mssOption(rest[:min(headerLength-20, len(rest))]); ok {
		fields = append(fields, number("mss", mss))
	}
	d.add("tcp", fields...)
}

// mssOption finds the maximum segment size among a SYN's options (RFC 9293 section 3.1).
func mssOption(options []byte) (mss uint16, ok bool) {
	const (
		end  = 0
		noOp = 1
	)
	for len(options) > 0 && options[0] != end {
		if options[0] == noOp {
			options = options[1:]
			continue
		}
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			return 0, false
		}
		if options[0] == packet.TCPOptionMSS && options[1] == 4 {
			return binary.BigEndian.Uint16(options[2:]), true
		}
		options = options[options[1]:]
	}
	return 0, false
}

func (d *description) udp(b []byte) {
	h, rest, ok := packet.Read[packet.UDP](b)
	if !ok || h.Length > 0 && h.Length < 8 {
		return
	}
	d.add("udp", number("source port", h.SourcePort), number("destination port", h.DestinationPort),
		number("length", h.Length), sum(h.Checksum))
	if h.DestinationPort == guePort {
		if h.Length > 0 {
			rest = rest[:min(int(h.Length)-8, len(rest))]
		}
		d.inner(rest, d.prefix)
	}
}

func (d *description) icmp(b []byte) {
	h, rest, ok := packet.Read[packet.ICMP](b)
	if !ok {
		return
	}
	fields := []Field{number("type", h.Type), number("code", h.Code), sum(h.Checksum)}
	// RFC 792, and RFC 1191 section 4 for the MTU.
	const unreachable, tooBig, timeExceeded, parameterProblem = 3, 4, 11, 12
	if h.Type == unreachable && h.Code == tooBig {
		fields = append(fields, number("mtu", uint16(h.Rest)))
	}
	d.add("icmp", fields...)
	if h.Type == unreachable || h.Type == timeExceeded || h.Type == parameterProblem {
		d.inner(rest, "quoted ")
	}
}

func (d *description) icmpv6(b []byte) {
	h, rest, ok := packet.Read[packet.ICMP](b)
	if !ok {
		return
	}
	fields := []Field{number("type", h.Type), number("code", h.Code), sum(h.Checksum)}
	// RFC 4443 section 2.1: types below 128 are errors, and quote a packet.
	const tooBig, information = 2, 128
	if h.Type == tooBig {
		fields = append(fields, number("mtu", h.Rest))
	}
	d.add("icmpv6", fields...)
	if h.Type < information {
		d.inner(rest, "quoted ")
	}
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
