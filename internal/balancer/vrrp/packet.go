// SPDX-License-Identifier: Apache-2.0

// Package vrrp elects, among balancers of one segment, the one that holds the VIPs (VRRP version 3, RFC 9568, IPv4 and
// IPv6). It is given the VIPs to announce, and reports whether this host is active.
//
// It is our own because the election must wait for the balancer: a host whose backends have no verdict yet listens
// without taking over, a drain yields before flows stop, and addresses have a lifetime in the kernel that only a
// running process renews. The libraries in Go that speak version 3 (VRRP-go and its forks) send and count time in
// goroutines that own their sockets, so that no test can hold their clock, and leave addresses to the caller;
// keepalived is a second daemon with a configuration and a state of its own to keep in step. A kept library whose
// machine is a function of packets and time would replace packet.go and the machine; sockets and addresses would stay.
package vrrp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

const (
	// protocol is the IP protocol number of VRRP, and requiredTTL the TTL or hop limit of packets that no router has
	// forwarded (RFC 9568 sections 5.1.1.3 and 5.1.2.3).
	protocol, requiredTTL = 112, 255
	// headerLength is the length of an ADVERTISEMENT before its addresses (section 5.1).
	headerLength = 8
	// versionAndType is version 3, ADVERTISEMENT.
	versionAndType = 3<<4 | 1
	// intervalUnit is the unit of the interval on the wire, and maxInterval the largest number in its 12 bits.
	intervalUnit, maxInterval = 10 * time.Millisecond, 1<<12 - 1
	// mtu is the MTU of Ethernet.
	mtu = 1500
)

const (
	// MaxIPv4 and MaxIPv6 are how many VIPs of a family a packet has room for: its count has 8 bits, and it is sent
	// whole (1500 bytes, less the headers of IP and of VRRP).
	MaxIPv4 = 255
	MaxIPv6 = (mtu - 40 - headerLength) / 16
)

// The groups that packets are sent to (RFC 9568 sections 5.1.1.2 and 5.1.2.2).
var (
	group4 = netip.AddrFrom4([4]byte{224, 0, 0, 18})
	group6 = netip.MustParseAddr("ff02::12")
)

// Errors of invalid packets.
var (
	ErrShort     = errors.New("it is shorter than its addresses")
	ErrHops      = errors.New("its TTL or hop limit is not 255: a router has forwarded it")
	ErrVersion   = errors.New("it is not of VRRP version 3")
	ErrType      = errors.New("it is no ADVERTISEMENT")
	ErrChecksum  = errors.New("its checksum is wrong")
	ErrNoAddress = errors.New("it has no address")
	ErrInterval  = errors.New("its interval is 0")
)

// Advert is an ADVERTISEMENT (RFC 9568 section 5.1).
type Advert struct {
	VRID uint8
	// Priority is 0 where the sender gives the addresses up, 1 to 255 otherwise.
	Priority uint8
	// Interval is a multiple of 10 ms, up to 40.95 s.
	Interval time.Duration
	// Addresses are the virtual router's, of the packet's family.
	Addresses []netip.Addr
}

// Marshal returns the packet behind the IP header. src and dst are for the checksum; Addresses are of their family, at
// most MaxIPv4 or MaxIPv6.
func (a Advert) Marshal(src, dst netip.Addr) []byte {
	packet := make([]byte, headerLength, headerLength+len(a.Addresses)*16)
	packet[0], packet[1], packet[2], packet[3] = versionAndType, a.VRID, a.Priority, uint8(len(a.Addresses))
	binary.BigEndian.PutUint16(packet[4:], uint16(min(max(a.Interval/intervalUnit, 1), maxInterval)))
	for _, address := range a.Addresses {
		packet = append(packet, address.AsSlice()...)
	}
	binary.BigEndian.PutUint16(packet[6:], ^checksum(packet, pseudoHeaderSum(src, dst, len(packet))))
	return packet
}

// Parse reads a packet behind the IP header, which says src, dst and how many hops are left. Errors: those of invalid
// packets (section 7.1). The checksum of IPv4 may lack the pseudo-header, as some implementations read RFC 5798.
func Parse(packet []byte, src, dst netip.Addr, left int) (Advert, error) {
	switch size := src.BitLen() / 8; {
	case left != requiredTTL:
		return Advert{}, ErrHops
	case len(packet) < headerLength:
		return Advert{}, ErrShort
	case packet[0]>>4 != versionAndType>>4:
		return Advert{}, fmt.Errorf("%w, but %d", ErrVersion, packet[0]>>4)
	case packet[0]&0xf != versionAndType&0xf:
		return Advert{}, ErrType
	case packet[3] == 0:
		return Advert{}, ErrNoAddress
	case len(packet) < headerLength+int(packet[3])*size:
		return Advert{}, ErrShort
	case checksum(packet, pseudoHeaderSum(src, dst, len(packet))) != 0xffff && (src.Is6() || checksum(packet,
		0) != 0xffff):
		return Advert{}, ErrChecksum
	case binary.BigEndian.Uint16(packet[4:])&maxInterval == 0:
		return Advert{}, ErrInterval
	}
	a := Advert{VRID: packet[1], Priority: packet[2],
		Interval: time.Duration(binary.BigEndian.Uint16(packet[4:])&maxInterval) * intervalUnit}
	size := src.BitLen() / 8
	for at := range slices.Chunk(packet[headerLength:headerLength+int(packet[3])*size], size) {
		address, _ := netip.AddrFromSlice(at)
		a.Addresses = append(a.Addresses, address)
	}
	return a, nil
}

// pseudoHeaderSum is the sum of the pseudo-header (RFC 8200 section 8.1; for IPv4 the same fields, as of RFC 9293).
func pseudoHeaderSum(src, dst netip.Addr, length int) uint64 {
	total := uint64(protocol) + uint64(length)
	for _, address := range []netip.Addr{src, dst} {
		for word := range slices.Chunk(address.AsSlice(), 2) {
			total += uint64(binary.BigEndian.Uint16(word))
		}
	}
	return total
}

// checksum is the one's complement sum of a packet and of an earlier sum (RFC 1071).
func checksum(packet []byte, total uint64) uint16 {
	for word := range slices.Chunk(packet, 2) {
		total += uint64(word[0]) << 8
		if len(word) == 2 {
			total += uint64(word[1])
		}
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
