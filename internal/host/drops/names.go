// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// reasonPrefix is the prefix of the names in enum skb_drop_reason.
const reasonPrefix = "SKB_DROP_REASON_"

// verdicts are the verdicts of XDP (enum xdp_action, include/uapi/linux/bpf.h).
var verdicts = []string{"XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"}

func (n names) reason(source Source, reason uint32) string {
	switch source {
	case XDPException:
		if int(reason) < len(verdicts) {
			return verdicts[reason]
		}
		return fmt.Sprintf("verdict %d", reason)
	case XDPRedirect, XDPTransmit:
		if reason == 0 {
			return "no room"
		}
		if name := unix.ErrnoName(unix.Errno(reason)); name != "" {
			return name
		}
		return fmt.Sprintf("error %d", reason)
	}
	if name, known := n.reasons[reason]; known {
		return strings.TrimPrefix(name, reasonPrefix)
	}
	return fmt.Sprintf("reason %d", reason)
}

// flowOf returns the example of a value; nil if there is none.
func flowOf(v tracerDropValue) *Flow {
	e := v.Example
	f := &Flow{Protocol: e.Protocol, SourcePort: e.SourcePort, DestinationPort: e.DestinationPort}
	switch e.Version {
	case 4:
		f.Source, f.Destination = address4(e.Source), address4(e.Destination)
	case 6:
		f.Source, f.Destination = address6(e.Source), address6(e.Destination)
	default:
		return nil
	}
	return f
}

func address4(words [4]uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], words[0])
	return netip.AddrFrom4(b)
}

func address6(words [4]uint32) netip.Addr {
	var b [16]byte
	for i, w := range words {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b)
}

// String returns "tcp 192.0.2.1:4711 → 192.0.2.2:80".
func (f *Flow) String() string {
	name := map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp",
		unix.IPPROTO_ICMPV6: "icmpv6"}[f.Protocol]
	if name == "" {
		name = fmt.Sprintf("protocol %d", f.Protocol)
	}
	if f.SourcePort == 0 && f.DestinationPort == 0 {
		return fmt.Sprintf("%s %s → %s", name, f.Source, f.Destination)
	}
	return fmt.Sprintf("%s %s → %s", name,
		netip.AddrPortFrom(f.Source, f.SourcePort), netip.AddrPortFrom(f.Destination, f.DestinationPort))
}
