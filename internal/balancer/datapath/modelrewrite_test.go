// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The model's rewriting of packets. It has no incremental checksums: every sum is taken over all that it covers, before
// and after.

// change has the new values of a packet's fields; zero leaves a field.
type change struct {
	// A port of 0 stays.
	source, destination netip.AddrPort
	// bothPorts: a port of 0 is written too.
	bothPorts bool
	dscp      uint8
	mss       uint16
	// hop: the packet is a hop farther.
	hop bool
	// The same in the packet that an ICMP error quotes.
	quoted                          *quote
	quotedSource, quotedDestination netip.AddrPort
}

// rewritten is the frame after a change.
type rewritten struct {
	frame []byte
	// equal lists fields, counted from the end of the frame, in which 0 and
	// 0xffff mean the same: checksums, but those of UDP.
	equal []int
}

// sum is the sum of 16-bit words of RFC 1071, taken modulo 0xffff: 0 and 0xffff
// are one number.
func sum(parts ...[]byte) uint16 {
	var total uint64
	for _, b := range parts {
		for ; len(b) > 1; b = b[2:] {
			total += uint64(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			total += uint64(b[0]) << 8
		}
	}
	return uint16(total % 0xffff)
}

// pseudo is the part of the pseudo header that a change may touch: the addresses. It has the length and the protocol,
// too, which none does.
func pseudo(ip []byte, six bool) []byte {
	if six {
		return ip[8:40]
	}
	return ip[12:20]
}

// apply makes a change. The frame of p stays as it is.
func (p *packet) apply(c change) rewritten {
	r := rewritten{frame: slices.Clone(p.frame)}
	r.edit(p, &c)
	if bytes.Equal(r.frame, p.frame) {
		return r
	}
	all := span{p.ip + p.transport, len(p.frame)}
	switch {
	case c.quoted != nil:
		r.resumQuoted(p, c.quoted)
		r.resum(p, all, all.from+2, p.six, p.ip)
	case p.ports && p.protocol == protoTCP:
		r.resum(p, all, all.from+16, true, p.ip)
	case p.ports && !zero(p.frame[all.from+6:]):
		r.resumUDP(p, all, p.ip)
	}
	if !p.six {
		r.resumIPv4(p, p.ip)
	}
	return r
}

// span is a part of a frame.
type span struct{ from, end int }

// resum sets the checksum at the offset such that the sum of the bytes stays the same: a right checksum stays right,
// and a wrong one stays as wrong as it was. Where addresses is true, those of the IP header at ip count too.
func (r *rewritten) resum(p *packet, s span, at int, addresses bool, ip int) {
	var old, now []byte
	if addresses {
		old, now = pseudo(p.frame[ip:], p.six), pseudo(r.frame[ip:], p.six)
	}
	before := sum(p.frame[s.from:s.end], old)
	binary.BigEndian.PutUint16(r.frame[at:], 0)
	after := sum(r.frame[s.from:s.end], now)
	binary.BigEndian.PutUint16(r.frame[at:], uint16((uint32(before)+0xffff-uint32(after))%0xffff))
	r.equal = append(r.equal, len(r.frame)-at)
}

// resumUDP does it for UDP, where 0 and 0xffff differ: the first says that there
// is no checksum (RFC 768; over IPv6, tunnels may do without, RFC 6935).
func (r *rewritten) resumUDP(p *packet, s span, ip int) {
	r.resum(p, s, s.from+6, true, ip)
	r.equal = r.equal[:len(r.equal)-1]
	if field := r.frame[s.from+6:]; zero(field) {
		field[0], field[1] = 0xff, 0xff
	}
}

// resumIPv4 does it for the IPv4 header at the offset.
func (r *rewritten) resumIPv4(p *packet, ip int) {
	r.resum(p, span{ip, ip + int(p.frame[ip]&15)*4}, ip+10, false, ip)
}

// resumQuoted does it in the quoted packet, as far as that is quoted.
func (r *rewritten) resumQuoted(p *packet, q *quote) {
	if !q.six {
		r.resumIPv4(p, q.at)
	}
	s := span{q.at + q.transport, p.ip + p.length}
	switch {
	case q.protocol == protoTCP && s.from+18 <= s.end:
		r.resum(p, s, s.from+16, true, q.at)
	case q.protocol == protoUDP && !zero(p.frame[s.from+6:]):
		r.resumUDP(p, s, q.at)
	}
}

// zero says that a checksum field is 0.
func zero(field []byte) bool { return field[0] == 0 && field[1] == 0 }

// edit writes addresses, ports, code point and MSS; the checksums are wrong until they are recomputed.
func (r *rewritten) edit(p *packet, c *change) {
	ip := r.frame[p.ip:]
	putAddresses(ip, p.six, c.source.Addr(), c.destination.Addr())
	if p.ports {
		putPorts(ip[p.transport:], c.source, c.destination, c.bothPorts)
	}
	if c.dscp != 0 {
		tos := c.dscp<<2 | p.tos&3
		if p.six {
			ip[0], ip[1] = ip[0]&0xf0|tos>>4, ip[1]&0x0f|tos<<4
		} else {
			ip[1] = tos
		}
	}
	if c.hop {
		ip[p.hopsAt()]--
	}
	if c.mss != 0 && p.ports && p.protocol == protoTCP && p.flags&flagSYN != 0 {
		clampMSS(ip[p.transport:], c.mss)
	}
	if q := c.quoted; q != nil {
		b := r.frame[q.at:]
		putAddresses(b, q.six, c.quotedSource.Addr(), c.quotedDestination.Addr())
		putPorts(b[q.transport:], c.quotedSource, c.quotedDestination, true)
	}
}

func putAddresses(ip []byte, six bool, source, destination netip.Addr) {
	at, size := 12, 4
	if six {
		at, size = 8, 16
	}
	if source.IsValid() {
		copy(ip[at:], source.AsSlice())
	}
	if destination.IsValid() {
		copy(ip[at+size:], destination.AsSlice())
	}
}

// putPorts writes the ports of ends that are there; port 0 stays what it was, unless all is true:
// a client of UDP may have it (RFC 768).
func putPorts(transport []byte, source, destination netip.AddrPort, all bool) {
	if source.Port() != 0 || all && source.IsValid() {
		binary.BigEndian.PutUint16(transport, source.Port())
	}
	if destination.Port() != 0 || all && destination.IsValid() {
		binary.BigEndian.PutUint16(transport[2:], destination.Port())
	}
}

// maxOptions is how many TCP options are looked at.
const maxOptions = 8

// clampMSS lowers the first MSS option of a TCP header.
func clampMSS(tcp []byte, most uint16) {
	end := min(int(tcp[12]>>4)*4, len(tcp))
	at := 20
	for range maxOptions {
		if at >= end || tcp[at] == 0 {
			return
		}
		if tcp[at] == 1 {
			at++
			continue
		}
		if at+2 > end || tcp[at+1] < 2 || at+int(tcp[at+1]) > end {
			return
		}
		if tcp[at] == 2 && tcp[at+1] == 4 {
			binary.BigEndian.PutUint16(tcp[at+2:], min(most, binary.BigEndian.Uint16(tcp[at+2:])))
			return
		}
		at += int(tcp[at+1])
	}
}

// The sizes of the headers that a tunnel puts before a packet.
const (
	ipv4Size, ipv6Size, udpSize = 20, 40, 8
	guePort                     = 6080
)

// overhead is the length of the headers that a mode adds to a packet, in bytes.
func overhead(mode lb.Mode, backend netip.Addr) int {
	size := ipv4Size
	if backend.Is6() {
		size = ipv6Size
	}
	switch mode {
	case lb.IPIP:
		return size
	case lb.GUE:
		return size + udpSize
	}
	return 0
}

// encapsulate puts the packet into a tunnel's.
func (r *rewritten) encapsulate(p *packet, mode lb.Mode, local, backend netip.Addr, hash uint32) {
	protocol := byte(4)
	if p.six {
		protocol = 41
	}
	var udp []byte
	if mode == lb.GUE {
		protocol = protoUDP
		udp = binary.BigEndian.AppendUint16(nil, 0xc000|uint16(hash&0x3fff))
		udp = binary.BigEndian.AppendUint16(udp, guePort)
		udp = binary.BigEndian.AppendUint16(udp, uint16(udpSize+p.length))
		udp = append(udp, 0, 0)
	}
	payload := len(udp) + p.length
	var outer []byte
	etherType := []byte{0x08, 0x00}
	if backend.Is4() {
		outer = newIPv4(p.tos, payload, true, protocol, local, backend)
	} else {
		etherType = []byte{0x86, 0xdd}
		outer = newIPv6(p.tos, hash&0xfffff, payload, protocol, local, backend)
	}
	inner := r.frame[p.ip:]
	r.frame = slices.Concat(r.frame[:p.ip-2], etherType, outer, udp, inner)
	if backend.Is4() {
		r.equal = append(r.equal, len(inner)+len(udp)+ipv4Size-10)
	}
}

// newIPv4 makes a header with a TTL of 64 and no id.
func newIPv4(tos byte, payload int, df bool, protocol byte, source, destination netip.Addr) []byte {
	b := []byte{0x45, tos, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0}
	binary.BigEndian.PutUint16(b[2:], uint16(ipv4Size+payload))
	if df {
		b[6] = 0x40
	}
	b = append(append(b, source.AsSlice()...), destination.AsSlice()...)
	binary.BigEndian.PutUint16(b[10:], ^sum(b))
	return b
}

// newIPv6 makes a header with a hop limit of 64.
func newIPv6(class byte, label uint32, payload int, next byte, source, destination netip.Addr) []byte {
	b := binary.BigEndian.AppendUint32(nil, 6<<28|uint32(class)<<20|label)
	b = binary.BigEndian.AppendUint16(b, uint16(payload))
	b = append(b, next, 64)
	return append(append(b, source.AsSlice()...), destination.AsSlice()...)
}

// untag takes the VLAN tag off.
func (r *rewritten) untag(p *packet) {
	if p.tagged() {
		r.frame = slices.Delete(r.frame, 12, 16)
	}
}

// Most that an ICMP error quotes, in bytes: such that it is 576 bytes at most
// over IPv4 (RFC 1812, section 4.3.2.3) and 1280 over IPv6 (RFC 4443, 2.4).
const quoted4, quoted6 = 576 - 28, 1280 - 48

// tooBigAnswer is the ICMP error that says how long packets may be.
func (p *packet) tooBigAnswer(mtu int) rewritten {
	if p.six {
		return p.answer(2, 0, mtu, p.destination)
	}
	return p.answer(3, 4, mtu, p.destination)
}

// unreachableAnswer is the ICMP error that says that nothing serves the port.
func (p *packet) unreachableAnswer() rewritten {
	if p.six {
		return p.answer(1, 4, 0, p.destination)
	}
	return p.answer(3, 3, 0, p.destination)
}

// expiredAnswer is the ICMP error that says that the hops are used up.
func (p *packet) expiredAnswer(from netip.Addr) rewritten {
	if p.six {
		return p.answer(3, 0, 0, from)
	}
	return p.answer(11, 0, 0, from)
}

// answer is the ICMP error of a type and code with this second word.
func (p *packet) answer(kind, code byte, word int, from netip.Addr) rewritten {
	link := slices.Concat(p.frame[6:12], p.frame[:6], p.frame[12:p.ip])
	ip := p.frame[p.ip:]
	if p.six {
		quote := ip[:min(quoted6, p.length)&^3]
		icmp := binary.BigEndian.AppendUint32([]byte{kind, code, 0, 0}, uint32(word))
		header := newIPv6(0, 0, len(icmp)+len(quote), protoICMPv6, from, p.source)
		length := binary.BigEndian.AppendUint16(nil, uint16(len(icmp)+len(quote)))
		binary.BigEndian.PutUint16(icmp[2:], ^sum(header[8:], length, []byte{0, protoICMPv6}, icmp, quote))
		return rewritten{slices.Concat(link, header, icmp, quote), []int{len(quote) + len(icmp) - 2}}
	}
	quote := ip[:min(quoted4, p.length)&^3]
	icmp := binary.BigEndian.AppendUint32([]byte{kind, code, 0, 0}, uint32(word))
	binary.BigEndian.PutUint16(icmp[2:], ^sum(icmp, quote))
	header := newIPv4(0, len(icmp)+len(quote), false, protoICMP, from, p.source)
	return rewritten{slices.Concat(link, header, icmp, quote),
		[]int{len(quote) + len(icmp) - 2, len(quote) + len(icmp) + ipv4Size - 10}}
}

// reset is the answer to a packet of no connection: RFC 9293, section 3.10.7.1.
func (p *packet) reset() rewritten {
	link := slices.Concat(p.frame[6:12], p.frame[:6], p.frame[12:p.ip])
	of := p.frame[p.ip+p.transport:]
	tcp := slices.Concat(of[2:4], of[0:2])
	if p.flags&flagACK != 0 {
		// <SEQ=SEG.ACK><CTL=RST>
		tcp = append(slices.Concat(tcp, of[8:12]), 0, 0, 0, 0, 5<<4, flagRST)
	} else {
		// <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>, where SYN and FIN count.
		length := max(0, p.length-p.transport-int(of[12]>>4)*4)
		for _, flag := range []byte{flagSYN, flagFIN} {
			if p.flags&flag != 0 {
				length++
			}
		}
		tcp = binary.BigEndian.AppendUint32(append(tcp, 0, 0, 0, 0), binary.BigEndian.Uint32(of[4:])+uint32(length))
		tcp = append(tcp, 5<<4, flagRST|flagACK)
	}
	tcp = append(tcp, 0, 0, 0, 0, 0, 0)
	covered := slices.Concat(p.destination.AsSlice(), p.source.AsSlice(), []byte{0, protoTCP, 0, byte(len(tcp))})
	binary.BigEndian.PutUint16(tcp[16:], ^sum(covered, tcp))
	if p.six {
		return rewritten{slices.Concat(link, newIPv6(0, 0, len(tcp), protoTCP, p.destination, p.source), tcp),
			[]int{len(tcp) - 16}}
	}
	header := newIPv4(0, len(tcp), true, protoTCP, p.destination, p.source)
	return rewritten{slices.Concat(link, header, tcp), []int{len(tcp) - 16, len(tcp) + ipv4Size - 10}}
}
