// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/packet"
)

// MaxLength is the length of the longest IP packet of a question, in bytes: a jumbo frame's.
const MaxLength = 9000

// TCPFlags are the names of TCP's flags, from the lowest bit on (RFC 9293
// section 3.1).
var TCPFlags = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"}

// FlagNames returns the names of the flags that are set.
func FlagNames(bits uint8) []string {
	var names []string
	for i, name := range TCPFlags {
		if bits&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Question is about a made-up packet.
type Question struct {
	Source          netip.Addr  `json:"source"`
	SourcePort      uint16      `json:"source_port"`
	Destination     netip.Addr  `json:"destination"`
	DestinationPort uint16      `json:"destination_port"`
	Protocol        lb.Protocol `json:"protocol"`
	// Flags are names of TCPFlags.
	Flags []string `json:"flags,omitempty"`
	// Length is the length of the IP packet in bytes; 0 stands for one without payload.
	Length int `json:"length,omitempty"`
	// Interface is the one that it comes in on; empty for the first.
	Interface string `json:"interface,omitempty"`
}

// String returns "tcp 192.0.2.7:4711 → 192.0.2.100:80".
func (q Question) String() string {
	return fmt.Sprintf("%s %s → %s", q.Protocol, netip.AddrPortFrom(q.Source, q.SourcePort),
		netip.AddrPortFrom(q.Destination, q.DestinationPort))
}

// Frame builds the packet as it would come in at a MAC address. Its sender's
// MAC address is zero: nothing depends on it. Error: ErrBadQuestion.
func (q Question) Frame(to net.HardwareAddr) ([]byte, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	segment := q.segment()
	ip := packet.IP{Source: q.Source, Destination: q.Destination, Protocol: uint8(q.Protocol), TTL: 64,
		DontFragment: true}
	least := q.ipHeader() + len(segment)
	switch {
	case q.Length == 0:
	case q.Length < least:
		return nil, fmt.Errorf("%w: %d bytes are fewer than its headers have (%d)", ErrBadQuestion, q.Length, least)
	default:
		segment = append(segment, make([]byte, q.Length-least)...)
	}
	if q.Protocol == lb.UDP {
		binary.BigEndian.PutUint16(segment[4:], uint16(len(segment)))
	}
	return packet.Frame(to, nil, ip.EtherType(), ip.Packet(segment)), nil
}

func (q Question) check() error {
	switch {
	case !q.Source.IsValid():
		return fmt.Errorf("%w: it has no source address", ErrBadQuestion)
	case !q.Destination.IsValid():
		return fmt.Errorf("%w: it has no destination address", ErrBadQuestion)
	case q.Source.Is4() != q.Destination.Is4():
		return fmt.Errorf("%w: %s and %s are of different families", ErrBadQuestion, q.Source, q.Destination)
	case q.Protocol != lb.TCP && q.Protocol != lb.UDP:
		return fmt.Errorf("%w: %s has no ports; use tcp or udp", ErrBadQuestion, q.Protocol)
	case q.Protocol == lb.UDP && len(q.Flags) > 0:
		return fmt.Errorf("%w: UDP has no flags", ErrBadQuestion)
	case q.Length > MaxLength:
		return fmt.Errorf("%w: %d bytes are too many; use up to %d", ErrBadQuestion, q.Length, MaxLength)
	}
	for _, flag := range q.Flags {
		if !slices.Contains(TCPFlags, flag) {
			return fmt.Errorf("%w: TCP has no flag %q; it has %s", ErrBadQuestion, flag, strings.Join(TCPFlags, ", "))
		}
	}
	return nil
}

// ipHeader returns the length of the packet's IP header in bytes.
func (q Question) ipHeader() int {
	if q.Source.Is4() {
		return 20
	}
	return 40
}

// segment returns the packet's transport header, without a checksum.
func (q Question) segment() []byte {
	if q.Protocol == lb.UDP {
		return packet.Append(nil, packet.UDP{SourcePort: q.SourcePort, DestinationPort: q.DestinationPort, Length: 8})
	}
	tcp := packet.TCP{SourcePort: q.SourcePort, DestinationPort: q.DestinationPort, DataOffset: 20 / 4 << 4,
		Window: 64240}
	for i, name := range TCPFlags {
		if slices.Contains(q.Flags, name) {
			tcp.Flags |= 1 << i
		}
	}
	if !slices.Contains(q.Flags, "syn") {
		return packet.Append(nil, tcp)
	}
	// A SYN has the MSS that a host on Ethernet says.
	tcp.DataOffset = 24 / 4 << 4
	return packet.Append(nil, tcp, [2]byte{packet.TCPOptionMSS, 4}, uint16(1500-q.ipHeader()-20))
}
