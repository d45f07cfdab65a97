// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/packet"
)

// guePort is the UDP port of GUE (draft-ietf-intarea-gue, IANA: gue).
const guePort = 6080

// Truncate returns the first snap bytes of a frame of a length, or its headers where snap is 0.
func Truncate(frame []byte, length, snap int) Frame {
	if snap == 0 {
		frame = frame[:min(HeaderSnap, len(frame))]
		snap = HeaderLength(frame)
	}
	return Frame{Length: length, Bytes: frame[:min(snap, len(frame))]}
}

// HeaderLength returns how many bytes of a frame are headers: Ethernet, tags, IP with options and extension headers, of
// tunnels (IP in IP, GUE) both, TCP with options, UDP, ICMP, and of an ICMP error the headers that it quotes. The rest
// is payload. Of a header that is malformed or cut off, the first bytes count (malformedHeader), unless another packet
// carries it: then it may be anything.
func HeaderLength(frame []byte) int {
	_, rest, ok := packet.Read[packet.Ethernet](frame)
	if !ok {
		return len(frame)
	}
	next := uint16(frame[12])<<8 | uint16(frame[13])
	for next == unix.ETH_P_8021Q || next == unix.ETH_P_8021AD {
		var tag packet.VLAN
		if tag, rest, ok = packet.Read[packet.VLAN](rest); !ok {
			return len(frame)
		}
		next = tag.Type
	}
	switch next {
	case unix.ETH_P_IP, unix.ETH_P_IPV6:
		rest = afterIP(rest, 0)
	case unix.ETH_P_ARP:
		rest = nil
	}
	return len(frame) - len(rest)
}

// maxNested bounds packets in packets: an ICMP error about a packet in a tunnel has two.
const maxNested = 4

// malformedHeader is how many bytes of a packet that cannot be read are shown as its header.
const malformedHeader = 40

// malformed returns the bytes that count as payload behind a header that cannot be read.
func malformed(b []byte, depth int) []byte {
	if depth > 0 {
		return b
	}
	return b[min(malformedHeader, len(b)):]
}

// afterIP returns the bytes behind the headers of an IP packet.
func afterIP(b []byte, depth int) []byte {
	if len(b) == 0 || depth > maxNested {
		return b
	}
	if b[0]>>4 == 6 {
		return afterIPv6(b, depth)
	}
	h, _, ok := packet.Read[packet.IPv4](b)
	header := int(h.VersionLength&0xf) * 4
	if !ok || header < 20 || header > len(b) {
		return malformed(b, depth)
	}
	if h.Fragment&packet.IPv4Offset != 0 {
		return b[header:]
	}
	return afterTransport(h.Protocol, b[header:], depth)
}

func afterIPv6(b []byte, depth int) []byte {
	h, rest, ok := packet.Read[packet.IPv6](b)
	if !ok {
		return malformed(b, depth)
	}
	next := h.NextHeader
	for {
		switch next {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_DSTOPTS, unix.IPPROTO_ROUTING:
			if len(rest) < 8 || len(rest) < (int(rest[1])+1)*8 {
				return malformed(rest, depth)
			}
			next, rest = rest[0], rest[(int(rest[1])+1)*8:]
		case unix.IPPROTO_FRAGMENT:
			if len(rest) < 8 {
				return malformed(rest, depth)
			}
			later := uint16(rest[2])<<8|uint16(rest[3]) > 7
			if next, rest = rest[0], rest[8:]; later {
				return rest
			}
		default:
			return afterTransport(next, rest, depth)
		}
	}
}

// afterTransport returns the bytes behind the header of a protocol and those of the packet that it carries.
func afterTransport(protocol uint8, b []byte, depth int) []byte {
	switch protocol {
	case unix.IPPROTO_TCP:
		h, _, ok := packet.Read[packet.TCP](b)
		if header := int(h.DataOffset>>4) * 4; ok && header >= 20 {
			return b[min(header, len(b)):]
		}
		return malformed(b, depth)
	case unix.IPPROTO_UDP:
		h, rest, ok := packet.Read[packet.UDP](b)
		if ok && h.DestinationPort == guePort {
			return afterIP(rest, depth+1)
		}
		return rest
	case unix.IPPROTO_IPIP, unix.IPPROTO_IPV6:
		return afterIP(b, depth+1)
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		h, rest, ok := packet.Read[packet.ICMP](b)
		if ok && quotesPacket(protocol, h.Type) {
			return afterIP(rest, depth+1)
		}
		return rest
	}
	return b
}

// quotesPacket reports whether an ICMP message of a type quotes a packet (RFC 792, RFC 4443 section 2.1).
func quotesPacket(protocol, kind uint8) bool {
	if protocol == unix.IPPROTO_ICMPV6 {
		return kind < 128
	}
	return kind == 3 || kind == 11 || kind == 12
}
