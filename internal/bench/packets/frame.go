// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/jeoul/jeoul/internal/lb"
)

// Offsets in bytes from the start of a frame without VLAN tag or IP options.
const (
	etherLength = 14
	ipv4Length  = 20
	ipv6Length  = 40
	// frameLength leaves room for the headers of every family and protocol.
	frameLength = 128
)

// frame is the packet that a case repeats, and where its flow is written.
type frame struct {
	bytes []byte
	// addressAt is where the last four bytes of the client's address are,
	// portAt where its port is.
	addressAt, portAt uint32
}

// flags of TCP, RFC 9293 section 3.1.
const (
	tcpSYN = 0x02
	tcpACK = 0x10
)

// newFrame builds a frame from the router to the VIP. Checksums are 0: nothing
// under test reads them, and each flow would need its own.
func newFrame(to net.HardwareAddr, client, vip netip.Addr, protocol lb.Protocol, port uint16, tcpFlags byte) frame {
	b := make([]byte, frameLength)
	copy(b[0:6], to)
	copy(b[6:12], net.HardwareAddr{2, 0, 0, 0, 0, 0xfe})
	f := frame{bytes: b}
	transport := etherLength + ipv4Length
	if vip.Is4() {
		binary.BigEndian.PutUint16(b[12:], 0x0800)
		ip := b[etherLength:]
		ip[0], ip[8], ip[9] = 0x45, 64, byte(protocol)
		binary.BigEndian.PutUint16(ip[2:], frameLength-etherLength)
		copy(ip[12:16], client.AsSlice())
		copy(ip[16:20], vip.AsSlice())
		f.addressAt = etherLength + 12
	} else {
		binary.BigEndian.PutUint16(b[12:], 0x86dd)
		ip := b[etherLength:]
		ip[0], ip[6], ip[7] = 0x60, byte(protocol), 64
		binary.BigEndian.PutUint16(ip[4:], frameLength-etherLength-ipv6Length)
		copy(ip[8:24], client.AsSlice())
		copy(ip[24:40], vip.AsSlice())
		f.addressAt = etherLength + 20
		transport = etherLength + ipv6Length
	}
	f.portAt = uint32(transport)
	binary.BigEndian.PutUint16(b[transport+2:], port)
	if protocol == lb.TCP {
		b[transport+12] = 5 << 4
		b[transport+13] = tcpFlags
	} else {
		binary.BigEndian.PutUint16(b[transport+4:], uint16(frameLength-transport))
	}
	return f
}
