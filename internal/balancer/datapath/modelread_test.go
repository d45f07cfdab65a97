// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The model's parser of packets.

const malformed = "dropped_malformed"

// Numbers of protocols and extension headers.
const (
	protoHopByHop    = 0
	protoICMP        = 1
	protoTCP         = byte(lb.TCP)
	protoUDP         = byte(lb.UDP)
	protoRouting     = 43
	protoFragment    = 44
	protoICMPv6      = 58
	protoDestination = 60
)

// part says which part of a datagram a packet is.
type part int

const (
	whole part = iota
	firstFragment
	laterFragment
)

// header is an IP header with the headers that follow it, up to the ports.
type header struct {
	six                 bool
	source, destination netip.Addr
	// length is that of the IP packet, as its header says.
	length   int
	tos      byte
	df       bool
	protocol byte
	part     part
	// id tells datagrams of one source apart; it has a meaning in fragments only.
	id       uint32
	unwalked bool
	// hops is the TTL or hop limit.
	hops byte
	// transport is where the walk ended, counted from the IP header on.
	transport int
	// ports says that the packet has ports: TCP or UDP, and no later fragment.
	ports        bool
	sport, dport uint16
	flags        byte
	seq          uint32
}

// packet is a frame, as the model has parsed it.
type packet struct {
	header
	frame []byte
	// ip is where the IP header begins in the frame.
	ip int
}

// tagged says that the frame has a VLAN tag.
func (p *packet) tagged() bool { return p.ip == 18 }

// complete says that the frame holds all of the IP packet.
func (p *packet) complete() bool { return p.ip+p.length <= len(p.frame) }

// isICMP says that the packet bears ICMP of its own family.
func (h *header) isICMP() bool {
	return h.six && h.protocol == protoICMPv6 || !h.six && h.protocol == protoICMP
}

// hopsAt is where the TTL or hop limit is in the header.
func (h *header) hopsAt() int {
	if h.six {
		return 7
	}
	return 8
}

// isTag says that the EtherType is that of a VLAN tag.
func isTag(etherType uint16) bool { return etherType == 0x8100 || etherType == 0x88a8 }

// readFrame parses a frame, or returns its outcome where that needs no more. Where tags is true, one tag is skipped;
// where gso is true, a header without a length is that of a packet as long as the frame (BIG TCP).
func readFrame(frame []byte, mac []byte, tags, gso bool) (p packet, outcome string) {
	p.frame = frame
	if len(frame) < 14 {
		return p, malformed
	}
	if !bytes.Equal(frame[:6], mac) {
		return p, "passed_other_host"
	}
	p.ip = 14
	etherType := binary.BigEndian.Uint16(frame[12:])
	if tags && isTag(etherType) {
		if len(frame) < 18 {
			return p, malformed
		}
		p.ip = 18
		etherType = binary.BigEndian.Uint16(frame[16:])
	}
	switch etherType {
	case 0x0800, 0x86dd:
	default:
		return p, "passed_not_ip"
	}
	b, buffered := frame[p.ip:], 0
	if gso {
		buffered = len(b)
	}
	var ok bool
	if p.header, ok = readHeader(b, etherType == 0x86dd, buffered); !ok || !p.readTransport(b) {
		return p, malformed
	}
	return p, ""
}

// readHeader reads the IP header that b begins with, extension headers included; buffered is the length of the packet
// if the header has none.
func readHeader(b []byte, six bool, buffered int) (h header, ok bool) {
	if six {
		return readIPv6(b, buffered)
	}
	return readIPv4(b, buffered)
}

func readIPv4(b []byte, buffered int) (h header, ok bool) {
	if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 {
		return h, false
	}
	h.transport = int(b[0]&15) * 4
	h.length = cmp.Or(int(binary.BigEndian.Uint16(b[2:])), buffered)
	if h.length < h.transport || len(b) < h.transport {
		return h, false
	}
	h.tos, h.hops, h.protocol = b[1], b[8], b[9]
	h.source, h.destination = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	fragment := binary.BigEndian.Uint16(b[6:])
	h.df = fragment&0x4000 != 0
	h.id = uint32(binary.BigEndian.Uint16(b[4:]))
	switch {
	case fragment&0x1fff != 0:
		h.part = laterFragment
	case fragment&0x2000 != 0:
		h.part = firstFragment
	}
	return h, true
}

// maxExtensions is how many extension headers are walked.
const maxExtensions = 4

func readIPv6(b []byte, buffered int) (h header, ok bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return h, false
	}
	h.six, h.tos, h.hops, h.protocol = true, b[0]<<4|b[1]>>4, b[7], b[6]
	h.length = 40 + int(binary.BigEndian.Uint16(b[4:]))
	if h.length == 40 && buffered > 0 {
		h.length = buffered
	}
	h.source, h.destination = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	h.transport = 40
	for walked := 0; slices.Contains([]byte{protoHopByHop, protoRouting, protoDestination, protoFragment},
		h.protocol); walked++ {
		if walked == maxExtensions {
			h.unwalked = true
			return h, true
		}
		at := h.transport
		if len(b) < at+8 {
			return h, false
		}
		size := (int(b[at+1]) + 1) * 8
		if h.protocol == protoFragment {
			size = 8
			h.readFragment(b[at:])
		}
		h.protocol = b[at]
		h.transport += size
		if h.part == laterFragment {
			return h, true
		}
	}
	return h, true
}

// readFragment reads a fragment header; an atomic one, of a packet that is whole (RFC 6946), is ignored.
func (h *header) readFragment(b []byte) {
	field := binary.BigEndian.Uint16(b[2:])
	if field&0xfff9 == 0 {
		return
	}
	h.id, h.part = binary.BigEndian.Uint32(b[4:]), firstFragment
	if field&0xfff8 != 0 {
		h.part = laterFragment
	}
}

// readTransport reads the ports; ok is false where they should be there and
// are not.
func (h *header) readTransport(b []byte) (ok bool) {
	least := map[byte]int{protoTCP: 20, protoUDP: 8}[h.protocol]
	if least == 0 || h.part == laterFragment || h.unwalked {
		return true
	}
	if len(b) < h.transport+least || h.length < h.transport+least {
		return false
	}
	h.readPorts(b)
	if h.protocol == protoTCP {
		h.flags, h.seq = b[h.transport+13], binary.BigEndian.Uint32(b[h.transport+4:])
		return b[h.transport+12]>>4 >= 5
	}
	return true
}

func (h *header) readPorts(b []byte) {
	h.ports = true
	h.sport, h.dport = binary.BigEndian.Uint16(b[h.transport:]), binary.BigEndian.Uint16(b[h.transport+2:])
}

// Flags of TCP.
const (
	flagFIN, flagSYN, flagRST, flagACK = 0x01, 0x02, 0x04, 0x10
)

// quote is the packet that an ICMP error quotes.
type quote struct {
	header
	// at is where it begins in the frame.
	at int
}

// readQuote reads the packet that an ICMP error quotes; ok is false where p is none, or its quote cannot be parsed.
func (p *packet) readQuote() (q quote, ok bool) {
	if !p.isICMP() || p.part != whole || p.unwalked {
		return q, false
	}
	end := min(p.ip+p.length, len(p.frame))
	at := p.ip + p.transport
	if at+8 > end {
		return q, false
	}
	errors := []byte{3, 11, 12}
	if p.six {
		errors = []byte{1, 2, 3, 4}
	}
	if !slices.Contains(errors, p.frame[at]) {
		return q, false
	}
	q.at = at + 8
	b := p.frame[q.at:end]
	if q.header, ok = readHeader(b, p.six, 0); !ok || q.part == laterFragment || q.unwalked ||
		q.protocol != protoTCP && q.protocol != protoUDP || len(b) < q.transport+8 {
		return q, false
	}
	q.readPorts(b)
	return q, true
}
