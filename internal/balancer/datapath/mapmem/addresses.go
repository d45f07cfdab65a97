// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Address is an address in the layout of packets: see OfAddress.
type Address = [4]uint32

// OfAddress returns an address as four words in network byte order; IPv4 uses the first one.
func OfAddress(a netip.Addr) (words [4]uint32) {
	for i, b := 0, a.AsSlice(); i < len(b)/4; i++ {
		words[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return words
}

// ToAddress returns the address of family 4 or 6 in four words: the inverse of OfAddress.
func ToAddress(words [4]uint32, family uint8) netip.Addr {
	var b []byte
	for _, word := range words {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	if family == 4 {
		b = b[:4]
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// NetworkOrder returns v such that its bytes in memory are big-endian.
func NetworkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// PowerOfTwo returns the least power of two that is n or more.
func PowerOfTwo(n int) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// Family returns the number of an address's family, the index of all pairs by family: 0 is IPv4 and 1 is IPv6.
func Family(address netip.Addr) int {
	if address.Is4() {
		return 0
	}
	return 1
}
