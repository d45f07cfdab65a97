// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"encoding/binary"
	"net"
)

// Lengths and numbers of the frames (see bpf/lab/flood.bpf.c).
const (
	ethernetLength = 14
	ipv4Length     = 20
	ipv6Length     = 40
	tcpLength      = 20
	udpLength      = 8
	// ipv4Frame and ipv6Frame are IPV4_FRAME and IPV6_FRAME.
	ipv4Frame = 64
	ipv6Frame = 80
	// mark is MARK, and markLength the bytes of a datagram's payload.
	mark       = 0x4a65
	markLength = 10

	hopLimit    = 64
	protocolTCP = 6
	protocolUDP = 17
)

// frame is a frame of a flood. The fields that differ from one frame to the next are zero.
type frame struct {
	options Options
	bytes   []byte
	// sumIP and sumL4 are the constant parts of the checksums of the IPv4 header and of the segment with its pseudo
	// header, before the complement.
	sumIP, sumL4 uint32
}

func newFrame(o Options) *frame {
	f := &frame{options: o}
	ip := f.ethernet()
	length, protocol := tcpLength, byte(protocolTCP)
	if o.Packets == UDP {
		length, protocol = udpLength+markLength, protocolUDP
	}
	target := o.Target.Addr().AsSlice()
	var l4 []byte
	if o.Target.Addr().Is4() {
		ip[0] = 4<<4 | ipv4Length/4
		binary.BigEndian.PutUint16(ip[2:], uint16(ipv4Length+length))
		binary.BigEndian.PutUint16(ip[6:], 1<<14) // do not fragment: the identification may be 0 (RFC 6864)
		ip[8], ip[9] = hopLimit, protocol
		copy(ip[16:], target)
		f.sumIP = sum(ip[:ipv4Length])
		l4 = ip[ipv4Length:][:length]
	} else {
		ip[0] = 6 << 4
		binary.BigEndian.PutUint16(ip[4:], uint16(length))
		ip[6], ip[7] = protocol, hopLimit
		copy(ip[8:], o.Sources.Masked().Addr().AsSlice()[:8])
		copy(ip[24:], target)
		l4 = ip[ipv6Length:][:length]
	}
	f.transport(l4)
	f.sumL4 = sum(l4) + sum(target) + uint32(protocol)<<8 + sum(binary.BigEndian.AppendUint16(nil, uint16(length)))
	if !o.Target.Addr().Is4() {
		f.sumL4 += sum(ip[8:16])
	}
	return f
}

// ethernet makes the frame and returns the part behind its Ethernet header.
func (f *frame) ethernet() (ip []byte) {
	length, etherType := ipv4Frame, uint16(0x0800)
	if f.options.Target.Addr().Is6() {
		length, etherType = ipv6Frame, 0x86dd
	}
	f.bytes = make([]byte, length)
	copy(f.bytes[6:], f.options.From)
	binary.BigEndian.PutUint16(f.bytes[12:], etherType)
	return f.bytes[ethernetLength:]
}

// transport writes the constant fields of a segment or datagram.
func (f *frame) transport(l4 []byte) {
	binary.BigEndian.PutUint16(l4[2:], f.options.Target.Port())
	if f.options.Packets == UDP {
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
		binary.BigEndian.PutUint16(l4[udpLength:], mark)
		return
	}
	binary.BigEndian.PutUint16(l4[14:], mark)
}

// settings returns the constants of the programs.
func (f *frame) settings() floodSettings {
	o := f.options
	s := floodSettings{
		SumIp: f.sumIP, SumL4: f.sumL4, Ifindex: uint32(o.Interface), Targets: uint32(len(o.To)),
		Ipv6: flag(o.Target.Addr().Is6()), Udp: flag(o.Packets == UDP), Pairs: flag(o.Packets == SYNACK),
		DropAtPort: flag(o.DropAtPort), DropAtExit: flag(o.DropAtExit),
		Seed: o.Seed, Limit: o.Limit, Rate: uint64(o.Rate),
	}
	for i := range s.Frame {
		if at := 8 * i; at < len(f.bytes) {
			s.Frame[i] = binary.NativeEndian.Uint64(f.bytes[at:])
		}
	}
	for i, mac := range o.To {
		s.Target[i] = macKey(mac)
	}
	s.Prefix, s.Wild = f.sources()
	return s
}

// sources returns the prefix as the programs read it, and the bits that may differ.
func (f *frame) sources() (prefix [2]uint64, wild uint64) {
	address := f.options.Sources.Masked().Addr()
	differ := make([]byte, len(address.AsSlice()))
	for i := f.options.Sources.Bits(); i < 8*len(differ); i++ {
		differ[i/8] |= 0x80 >> (i % 8)
	}
	if address.Is4() {
		bytes := address.As4()
		prefix[0] = uint64(binary.NativeEndian.Uint32(bytes[:]))
		return prefix, uint64(binary.NativeEndian.Uint32(differ))
	}
	bytes := address.As16()
	prefix[0], prefix[1] = binary.NativeEndian.Uint64(bytes[:]), binary.NativeEndian.Uint64(bytes[8:])
	return prefix, binary.NativeEndian.Uint64(differ[8:])
}

// macKey returns a MAC address as the programs read it: the first bytes of a word.
func macKey(mac net.HardwareAddr) uint64 {
	var b [8]byte
	copy(b[:], mac)
	return binary.NativeEndian.Uint64(b[:])
}

// sum adds up 16-bit words in the byte order of memory, without folding (RFC 1071, section 2 (B): the order of bytes
// does not matter). The sum of a frame fits.
func sum(words []byte) uint32 {
	var total uint32
	for i := 0; i+1 < len(words); i += 2 {
		total += uint32(binary.NativeEndian.Uint16(words[i:]))
	}
	return total
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
