// SPDX-License-Identifier: Apache-2.0

package iface

import (
	"encoding/binary"
	"math"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// IsRenewal reports whether an rtnetlink message only extends the lifetime of an existing /32 or /128 address, which
// some programs do every second or two.
func IsRenewal(m syscall.NetlinkMessage) bool {
	const head = unix.SizeofIfAddrmsg
	if m.Header.Type != unix.RTM_NEWADDR || len(m.Data) < head {
		return false
	}
	bits := map[byte]byte{unix.AF_INET: 32, unix.AF_INET6: 128}[m.Data[0]]
	if bits == 0 || m.Data[1] != bits {
		return false
	}
	attributes, err := nl.ParseRouteAttr(m.Data[head:])
	if err != nil {
		return false
	}
	for _, a := range attributes {
		// struct ifa_cacheinfo: preferred and valid lifetime in seconds, then when the address was made and when it was
		// last changed, in hundredths of a second; 32 bits each in host byte order.
		if a.Attr.Type == unix.IFA_CACHEINFO && len(a.Value) >= 16 {
			word := func(at int) uint32 { return binary.NativeEndian.Uint32(a.Value[at:]) }
			return word(4) != math.MaxUint32 && word(8) != word(12)
		}
	}
	return false
}
