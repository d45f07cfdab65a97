// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Lengths in bytes.
const (
	etherLength = 14
	tagLength   = 4
	ipv4Length  = 20
	ipv6Length  = 40
	// frameLength leaves room for the headers of every family and protocol.
	frameLength = 128
	// pieceLength is the number of bytes that the harness writes at once.
	pieceLength = 8
)

// EtherTypes.
const (
	typeIPv4 = 0x0800
	typeIPv6 = 0x86dd
	typeVLAN = 0x8100
)

// measuredVLAN is the VLAN of tagged frames.
const measuredVLAN = 7

// OwnMAC is the MAC address of the balancer, and NextHop that of the sender of its packets.
var (
	OwnMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	NextHop = net.HardwareAddr{2, 0, 0, 0, 0, 0xfe}
)

// Frame is the packet that a stream repeats, with the offsets at which its flow is written.
type Frame struct {
	// Bytes are the bytes of the frame. Checksums are 0: nothing under test depends on them, and each flow would need
	// its own.
	Bytes []byte
	IPv6  bool
	// ToClient means that the client is the receiver.
	ToClient bool
	// network is the offset of the IP header in the frame, transport that of the TCP or UDP header.
	network, transport uint32
	// tag is a VLAN that is passed as metadata, not in the packet's bytes; 0 means none.
	tag uint16
}

// NewFrame builds a frame to the balancer, from a client to a VIP or, with Reply, from a backend to a client.
func NewFrame(from, destination netip.AddrPort, protocol lb.Protocol, tcpFlags byte) Frame {
	f := Frame{Bytes: make([]byte, frameLength), IPv6: destination.Addr().Is6(), network: etherLength}
	b := f.Bytes
	copy(b[0:6], OwnMAC)
	copy(b[6:12], NextHop)
	ip := b[etherLength:]
	if f.IPv6 {
		binary.BigEndian.PutUint16(b[12:], typeIPv6)
		ip[0], ip[6], ip[7] = 0x60, byte(protocol), 64
		binary.BigEndian.PutUint16(ip[4:], frameLength-etherLength-ipv6Length)
		f.transport = etherLength + ipv6Length
	} else {
		binary.BigEndian.PutUint16(b[12:], typeIPv4)
		ip[0], ip[8], ip[9] = 0x45, 64, byte(protocol)
		binary.BigEndian.PutUint16(ip[2:], frameLength-etherLength)
		f.transport = etherLength + ipv4Length
	}
	source, at := f.addresses()
	copy(b[source:], from.Addr().AsSlice())
	copy(b[at:], destination.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[f.transport:], from.Port())
	binary.BigEndian.PutUint16(b[f.transport+2:], destination.Port())
	if protocol == lb.TCP {
		b[f.transport+12] = 5 << 4
		b[f.transport+13] = tcpFlags
	} else {
		binary.BigEndian.PutUint16(b[f.transport+4:], uint16(frameLength-f.transport))
	}
	return f
}

// Reply makes the receiver the client, whose address and port the stream varies.
func (f Frame) Reply() Frame {
	f.ToClient = true
	return f
}

// Tagged returns the frame with a VLAN tag, as the hook sees it: at TC, a socket buffer no longer has the tag among its
// bytes.
func (f Frame) Tagged(hook lb.Hook) Frame {
	if hook == lb.HookTC {
		f.tag = measuredVLAN
		return f
	}
	b := make([]byte, 0, len(f.Bytes)+tagLength)
	b = append(b, f.Bytes[:12]...)
	b = binary.BigEndian.AppendUint16(b, typeVLAN)
	b = binary.BigEndian.AppendUint16(b, measuredVLAN)
	f.Bytes = append(b, f.Bytes[12:]...)
	f.network += tagLength
	f.transport += tagLength
	return f
}

// addresses returns the offsets of the source and the destination address.
func (f Frame) addresses() (source, destination uint32) {
	if f.IPv6 {
		return f.network + 8, f.network + 24
	}
	return f.network + 12, f.network + 16
}

// lowWords returns the offsets of the last four bytes of each address, in which addresses of one network differ.
func (f Frame) lowWords() (source, destination uint32) {
	source, destination = f.addresses()
	if f.IPv6 {
		return source + 12, destination + 12
	}
	return source, destination
}

// client returns the offsets of the last four bytes of the client's address, and of its port.
func (f Frame) client() (address, port uint32) {
	source, destination := f.lowWords()
	if f.ToClient {
		return destination, f.transport + 2
	}
	return source, f.transport
}

// pieceOf returns the offset of the piece that holds the byte at an offset. After the Ethernet header, the harness
// writes 8 bytes at once.
func pieceOf(at uint32) uint32 {
	return etherLength + (at-etherLength)/pieceLength*pieceLength
}

// varied returns the piece that holds a field of length bytes, with the field cleared, the offset of the piece, and the
// shift of the field in the piece, in bits.
func (f Frame) varied(at uint32, length int) (rest uint64, piece, shift uint32) {
	piece = pieceOf(at)
	shift = (at - piece) * 8
	rest = binary.LittleEndian.Uint64(f.Bytes[piece:])
	return rest &^ ((1<<(8*length) - 1) << shift), piece, shift
}

// etherType returns the EtherType of the IP packet, in the byte order of the frame.
func (f Frame) etherType() uint16 {
	return binary.LittleEndian.Uint16(f.Bytes[f.network-2:])
}
