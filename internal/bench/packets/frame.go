// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/jeoul/jeoul/internal/lb"
)

// Lengths in bytes.
const (
	etherLength = 14
	tagLength   = 4
	ipv4Length  = 20
	ipv6Length  = 40
	// frameLength leaves room for the headers of every family and protocol.
	frameLength = 128
	// pieceLength is what the harness writes at once.
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

// flags of TCP, RFC 9293 section 3.1.
const (
	tcpSYN = 0x02
	tcpACK = 0x10
)

// nextHop is who sends to the balancer.
var nextHop = net.HardwareAddr{2, 0, 0, 0, 0, 0xfe}

// frame is the packet that a case repeats, and where its flow is written.
type frame struct {
	bytes []byte
	ipv6  bool
	// network is where the IP header begins in the frame, transport where that
	// of TCP or UDP does.
	network, transport uint32
	// toClient says that the client is the receiver.
	toClient bool
	// tag is a VLAN that is told beside the packet's bytes; 0 for none.
	tag uint16
}

// newFrame builds a frame of a client to a VIP, or, by reply, of a backend to
// a client. Checksums are 0: nothing under test depends on them, and each flow
// would need its own.
func newFrame(to net.HardwareAddr, from, destination netip.AddrPort, protocol lb.Protocol, tcpFlags byte) frame {
	f := frame{bytes: make([]byte, frameLength), ipv6: destination.Addr().Is6(), network: etherLength}
	b := f.bytes
	copy(b[0:6], to)
	copy(b[6:12], nextHop)
	ip := b[etherLength:]
	if f.ipv6 {
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

// reply makes the receiver the client, whose address and port vary.
func (f frame) reply() frame {
	f.toClient = true
	return f
}

// tagged returns the frame with a VLAN tag, as the hook sees it: a socket
// buffer no longer has it among its bytes when it comes to TC.
func (f frame) tagged(hook lb.Hook) frame {
	if hook == lb.HookTC {
		f.tag = measuredVLAN
		return f
	}
	b := make([]byte, 0, len(f.bytes)+tagLength)
	b = append(b, f.bytes[:12]...)
	b = binary.BigEndian.AppendUint16(b, typeVLAN)
	b = binary.BigEndian.AppendUint16(b, measuredVLAN)
	f.bytes = append(b, f.bytes[12:]...)
	f.network += tagLength
	f.transport += tagLength
	return f
}

// addresses returns where the source and the destination address begin.
func (f frame) addresses() (source, destination uint32) {
	if f.ipv6 {
		return f.network + 8, f.network + 24
	}
	return f.network + 12, f.network + 16
}

// lowWords returns where the last four bytes of each address are: the part in
// which addresses of one network differ.
func (f frame) lowWords() (source, destination uint32) {
	source, destination = f.addresses()
	if f.ipv6 {
		return source + 12, destination + 12
	}
	return source, destination
}

// client returns where the last four bytes of the client's address are, and
// its port.
func (f frame) client() (address, port uint32) {
	source, destination := f.lowWords()
	if f.toClient {
		return destination, f.transport + 2
	}
	return source, f.transport
}

// pieceOf returns where the piece that holds the byte at an offset begins: the
// Ethernet header apart, the harness writes 8 bytes at once.
func pieceOf(at uint32) uint32 {
	return etherLength + (at-etherLength)/pieceLength*pieceLength
}

// etherType returns that of the IP packet as it stands in memory.
func (f frame) etherType() uint16 {
	return binary.LittleEndian.Uint16(f.bytes[f.network-2:])
}
