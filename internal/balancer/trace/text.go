// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// Text writes "tcp 192.0.2.7:4711 → 192.0.2.100:80 syn, 44 bytes". A nil *Flow is a frame that was not read.
func (f *Flow) Text() string {
	if f == nil {
		return "a frame that was not read"
	}
	ends := f.Source.String() + " → " + f.Destination.String()
	if f.SourcePort != 0 || f.DestinationPort != 0 {
		ends = fmt.Sprintf("%s → %s", netip.AddrPortFrom(f.Source, f.SourcePort),
			netip.AddrPortFrom(f.Destination, f.DestinationPort))
	}
	text := f.Protocol + " " + ends
	if len(f.Flags) > 0 {
		text += " " + strings.Join(f.Flags, ",")
	}
	return fmt.Sprintf("%s, %d bytes", text, f.Length)
}

// Line describes a packet on one line: its time, interface, addresses and length, its outcome, its backend and the
// reasons, and the frame that leaves.
func (p *Packet) Line() string {
	words := []string{p.Time.Format("15:04:05.000000"), orDash(p.Interface), p.Came.Text() + ":", p.Outcome}
	if p.Service != nil {
		words = append(words, "service "+p.Service.Name)
	}
	if p.Slot != nil {
		words = append(words, fmt.Sprintf("slot %d", *p.Slot))
	}
	for _, r := range p.Reasons {
		words = append(words, string(r))
	}
	if p.Backend != nil {
		words = append(words, "backend "+p.Backend.Name)
	}
	if leaves := p.LeavesText(); leaves != "" {
		words = append(words, "as "+leaves)
	}
	return Printable(strings.Join(words, " "))
}

// Printable returns text with "?" in place of each character that is not printable, so that a name neither acts on a
// terminal nor begins a line of its own.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// LeavesText describes the frame as which a packet is sent on, from its next hop on.
func (p *Packet) LeavesText() string {
	if p.Outcome != "forwarded" && p.Outcome != "returned" && !strings.HasPrefix(p.Outcome, "answered_") {
		return ""
	}
	var words []string
	for _, l := range p.Leaves {
		switch strings.TrimPrefix(l.Name, "quoted ") {
		case "ethernet":
			words = append(words, l.Get("destination"))
		case "ipv4", "ipv6":
			words = append(words, l.Name, l.Get("source")+" → "+l.Get("destination"))
		case "tcp", "udp":
			words = append(words, l.Name, l.Get("source port")+" → "+l.Get("destination port"))
		case "icmp", "icmpv6":
			words = append(words, l.Name, l.Get("type")+"/"+l.Get("code"))
			if mtu := l.Get("mtu"); mtu != "" {
				words = append(words, "mtu "+mtu)
			}
		}
	}
	return strings.Join(words, " ")
}
