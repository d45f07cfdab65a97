// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// number returns an IPv4 address in host byte order.
func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// nativeIPv4 returns an IPv4 address as the programs read it from a packet; 0 for any other address.
func nativeIPv4(a netip.Addr) uint32 {
	if !a.Is4() {
		return 0
	}
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// portInPacket returns a port number as the programs read it from a packet.
func portInPacket(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}

// word returns a MAC address as the first six bytes of a word.
func word(mac net.HardwareAddr) uint64 {
	var b [8]byte
	copy(b[:], mac)
	return binary.NativeEndian.Uint64(b[:])
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
