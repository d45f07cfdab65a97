// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/lb"
)

// MaxLength is the length of the longest IP packet that can be asked about, in
// bytes: a jumbo frame's.
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
	// Length is that of the IP packet in bytes; 0 stands for one without payload.
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
	parts, least := q.headers(to)
	switch {
	case q.Length == 0:
	case q.Length < least:
		return nil, fmt.Errorf("%w: %d bytes are fewer than its headers have (%d)", ErrBadQuestion, q.Length, least)
	default:
		parts = append(parts, gopacket.Payload(make([]byte, q.Length-least)))
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, parts...); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrBadQuestion, err)
	}
	return buffer.Bytes(), nil
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

// headers returns the packet's headers, and the length of those of the IP packet.
func (q Question) headers(to net.HardwareAddr) (parts []gopacket.SerializableLayer, length int) {
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: to, EthernetType: layers.EthernetTypeIPv4}
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	protocol := layers.IPProtocol(q.Protocol)
	if q.Source.Is4() {
		length = 20
		ip = &layers.IPv4{Version: 4, TTL: 64, Flags: layers.IPv4DontFragment, Protocol: protocol,
			SrcIP: q.Source.AsSlice(), DstIP: q.Destination.AsSlice()}
	} else {
		length = 40
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol,
			SrcIP: q.Source.AsSlice(), DstIP: q.Destination.AsSlice()}
	}
	if q.Protocol == lb.UDP {
		udp := &layers.UDP{SrcPort: layers.UDPPort(q.SourcePort), DstPort: layers.UDPPort(q.DestinationPort)}
		_ = udp.SetNetworkLayerForChecksum(ip) // fails for other layers than IP
		return []gopacket.SerializableLayer{eth, ip, udp}, length + 8
	}
	tcp := q.tcp(length)
	_ = tcp.SetNetworkLayerForChecksum(ip)
	length += 20
	for _, option := range tcp.Options {
		length += int(option.OptionLength)
	}
	return []gopacket.SerializableLayer{eth, ip, tcp}, length
}

// tcp returns the TCP header of a packet with an IP header of a length. A SYN
// has the MSS that a host on Ethernet says.
func (q Question) tcp(ipHeader int) *layers.TCP {
	has := func(flag string) bool { return slices.Contains(q.Flags, flag) }
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(q.SourcePort), DstPort: layers.TCPPort(q.DestinationPort), Window: 64240,
		FIN: has("fin"), SYN: has("syn"), RST: has("rst"), PSH: has("psh"), ACK: has("ack"), URG: has("urg"), ECE: has("ece"), CWR: has("cwr"),
	}
	if tcp.SYN {
		mss := 1500 - ipHeader - 20
		tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{byte(mss >> 8), byte(mss)}}}
	}
	return tcp
}
