// SPDX-License-Identifier: Apache-2.0

// Package packet has the headers of Ethernet frames as Go structs, and builds and reads frames with them.
//
// It supports only the protocols that this program sends and explains. gopacket, which tests compare it with, supports
// 150 protocols, whose tables add 6 MB to every program that links it.
//
// Fields are in host byte order in a struct and in network byte order in a frame.
package packet

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Ethernet is the header of a frame (IEEE 802.3), of 14 bytes.
type Ethernet struct {
	Destination, Source [6]byte
	// Type is an EtherType, unix.ETH_P_*.
	Type uint16
}

// VLAN is the rest of a tag after its EtherType (IEEE 802.1Q), of 4 bytes.
type VLAN struct {
	// Control has the VLAN identifier in its lower 12 bits.
	Control uint16
	Type    uint16
}

// ARP is a packet of ARP for IPv4 on Ethernet (RFC 826), of 28 bytes.
type ARP struct {
	HardwareType, ProtocolType     uint16
	HardwareLength, ProtocolLength uint8
	Operation                      uint16
	SenderMAC                      [6]byte
	SenderIP                       [4]byte
	TargetMAC                      [6]byte
	TargetIP                       [4]byte
}

// Operations of ARP.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// IPv4 is a header without options (RFC 791 section 3.1), of 20 bytes.
type IPv4 struct {
	// VersionLength has the version in its upper 4 bits, and the header's length in
	// words of 4 bytes in its lower.
	VersionLength, TOS     uint8
	Length, Identification uint16
	// Fragment has the flags in its upper 3 bits, and the offset in units of 8 bytes.
	Fragment            uint16
	TTL, Protocol       uint8
	Checksum            uint16
	Source, Destination [4]byte
}

// Flags of IPv4.Fragment, and the mask of its offset.
const (
	IPv4Evil          = 1 << 15 // RFC 3514
	IPv4DontFragment  = 1 << 14
	IPv4MoreFragments = 1 << 13
	IPv4Offset        = IPv4MoreFragments - 1
)

// IPv6 is a header (RFC 8200 section 3), of 40 bytes.
type IPv6 struct {
	// VersionClassFlow has the version in its upper 4 bits, then the traffic class in 8, and the flow
	// label in 20.
	VersionClassFlow     uint32
	PayloadLength        uint16
	NextHeader, HopLimit uint8
	Source, Destination  [16]byte
}

// TCP is a header without options (RFC 9293 section 3.1), of 20 bytes.
type TCP struct {
	SourcePort, DestinationPort uint16
	Sequence, Acknowledgment    uint32
	// DataOffset has the header's length, options included, in words of 4 bytes in its upper 4 bits.
	DataOffset, Flags        uint8
	Window, Checksum, Urgent uint16
}

// Flags of TCP (RFC 9293 section 3.1).
const (
	FlagSYN = 0x02
	FlagRST = 0x04
	FlagACK = 0x10
)

// TCPOptionMSS is the kind of the option Maximum Segment Size (RFC 9293 section 3.2).
const TCPOptionMSS = 2

// UDP is a header (RFC 768), of 8 bytes.
type UDP struct {
	SourcePort, DestinationPort, Length, Checksum uint16
}

// ICMP is the first 8 bytes of a message of ICMP (RFC 792) and ICMPv6 (RFC 4443).
type ICMP struct {
	Type, Code uint8
	Checksum   uint16
	// Rest depends on the type: an echo's identifier and sequence number, a path's MTU.
	Rest uint32
}

// Read returns the header at the beginning of b, and the rest. It returns false if b is shorter than that.
func Read[T any](b []byte) (header T, rest []byte, ok bool) {
	n, err := binary.Decode(b, binary.BigEndian, &header)
	if err != nil {
		return header, nil, false
	}
	return header, b[n:], true
}

// Append appends headers to b. Each is a struct of this package, or a number or array of fixed size.
func Append(b []byte, headers ...any) []byte {
	for _, h := range headers {
		var err error
		if b, err = binary.Append(b, binary.BigEndian, h); err != nil {
			panic(err) // the type has no fixed size: a mistake of the caller
		}
	}
	return b
}

// minimum is the least length of a frame without its check sequence (IEEE 802.3), in bytes.
const minimum = 60

// Frame returns a frame with a payload, padded to Ethernet's minimum length. A missing MAC address is zero.
func Frame(to, from net.HardwareAddr, etherType uint16, payload []byte) []byte {
	h := Ethernet{Type: etherType}
	copy(h.Destination[:], to)
	copy(h.Source[:], from)
	b := append(Append(make([]byte, 0, max(minimum, 14+len(payload))), h), payload...)
	return append(b, make([]byte, max(0, minimum-len(b)))...)
}

// ARPFrame returns the frame of a broadcast ARP request for an IPv4 address. from is the address of the sender.
func ARPFrame(mac net.HardwareAddr, from, target netip.Addr) []byte {
	arp := ARP{HardwareType: unix.ARPHRD_ETHER, ProtocolType: unix.ETH_P_IP, HardwareLength: 6, ProtocolLength: 4,
		Operation: ARPRequest, SenderMAC: [6]byte(mac), SenderIP: from.As4(), TargetIP: target.As4()}
	return Frame(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, unix.ETH_P_ARP, Append(nil, arp))
}

// IP is the IP header of a packet. Source and Destination are of one family.
type IP struct {
	Source, Destination netip.Addr
	// Protocol is unix.IPPROTO_*.
	Protocol uint8
	// TTL is the hop limit of IPv6.
	TTL uint8
	// DontFragment is a flag of IPv4.
	DontFragment bool
}

// EtherType returns the EtherType of the packet's family.
func (p IP) EtherType() uint16 {
	if p.Source.Is4() {
		return unix.ETH_P_IP
	}
	return unix.ETH_P_IPV6
}

// Packet returns the IP packet of a segment or message, whose checksum it fills in. A segment is 65,515 bytes at most.
func (p IP) Packet(segment []byte) []byte {
	p.fillChecksum(segment)
	if !p.Source.Is4() {
		h := IPv6{VersionClassFlow: 6 << 28, PayloadLength: uint16(len(segment)), NextHeader: p.Protocol,
			HopLimit: p.TTL,
			Source:   p.Source.As16(), Destination: p.Destination.As16()}
		return append(Append(nil, h), segment...)
	}
	h := IPv4{VersionLength: 4<<4 | 5, Length: uint16(20 + len(segment)), TTL: p.TTL, Protocol: p.Protocol,
		Source: p.Source.As4(), Destination: p.Destination.As4()}
	if p.DontFragment {
		h.Fragment = IPv4DontFragment
	}
	h.Checksum = checksum(0, Append(nil, h))
	return append(Append(nil, h), segment...)
}

// fillChecksum sets the checksum of a segment of TCP or UDP, or of a message of ICMP.
func (p IP) fillChecksum(segment []byte) {
	at, ok := map[uint8]int{unix.IPPROTO_TCP: 16, unix.IPPROTO_UDP: 6, unix.IPPROTO_ICMP: 2,
		unix.IPPROTO_ICMPV6: 2}[p.Protocol]
	if !ok || len(segment) < at+2 {
		return
	}
	var initial uint32
	if p.Protocol != unix.IPPROTO_ICMP { // RFC 792 has no pseudo-header
		initial = sum(sum(0, p.Source.AsSlice()), p.Destination.AsSlice()) + uint32(p.Protocol) + uint32(len(segment))
	}
	binary.BigEndian.PutUint16(segment[at:], 0)
	c := checksum(initial, segment)
	if c == 0 && p.Protocol == unix.IPPROTO_UDP {
		c = 0xffff // 0 means no checksum
	}
	binary.BigEndian.PutUint16(segment[at:], c)
}

// checksum is the Internet checksum (RFC 1071) of b; initial is the sum of the bytes before it.
func checksum(initial uint32, b []byte) uint16 {
	s := sum(initial, b)
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// sum adds the words of b to s. It does not overflow for a packet's length.
func sum(s uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}
