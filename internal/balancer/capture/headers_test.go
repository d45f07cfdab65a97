// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	payload  = gopacket.Payload(strings.Repeat("secret", 10))
	ethernet = &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	tagged   = &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6),
		EthernetType: layers.EthernetTypeDot1Q}
	tag = &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv6}
)

func ip4(protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: make([]byte, 4), DstIP: make([]byte, 4)}
}

func ip6(protocol layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: make([]byte, 16),
		DstIP: make([]byte, 16)}
}

// TestHeaderLength builds frames by gopacket: of each, all but the payload are headers.
func TestHeaderLength(t *testing.T) {
	tcp := &layers.TCP{SrcPort: 1, DstPort: 80,
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4,
			OptionData: make([]byte, 2)}}}
	udp, gue := &layers.UDP{SrcPort: 1, DstPort: 53}, &layers.UDP{SrcPort: 1, DstPort: guePort}
	unreachable := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4)}
	echo := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}
	for name, frame := range map[string][]gopacket.SerializableLayer{
		"TCP":                {ethernet, ip4(layers.IPProtocolTCP), tcp, payload},
		"UDP over IPv6, tag": {tagged, tag, ip6(layers.IPProtocolUDP), udp, payload},
		"IP in IP":           {ethernet, ip4(layers.IPProtocolIPv4), ip4(layers.IPProtocolTCP), tcp, payload},
		"IPv6 in IPv4":       {ethernet, ip4(layers.IPProtocolIPv6), ip6(layers.IPProtocolUDP), udp, payload},
		"GUE":                {ethernet, ip4(layers.IPProtocolUDP), gue, ip6(layers.IPProtocolTCP), tcp, payload},
		"no GUE":             {ethernet, ip4(layers.IPProtocolUDP), gue, payload},
		"quoted": {ethernet, ip4(layers.IPProtocolICMPv4), unreachable, ip4(layers.IPProtocolUDP),
			udp, payload},
		"echo":           {ethernet, ip4(layers.IPProtocolICMPv4), echo, payload},
		"other protocol": {ethernet, ip4(layers.IPProtocolSCTP), payload},
		"options of IPv6": {tagged, tag, ip6(layers.IPProtocolIPv6Destination),
			gopacket.Payload{17, 0, 1, 4, 0, 0, 0, 0}, udp, payload},
		"later IPv6 fragment": {tagged, tag, ip6(layers.IPProtocolIPv6Fragment),
			gopacket.Payload{17, 0, 0, 8, 0, 0, 0, 0}, payload},
	} {
		buffer := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true}, frame...); err != nil {
			t.Fatal(err)
		}
		all := buffer.Bytes()
		if got, want := HeaderLength(all), len(all)-len(payload); got != want {
			t.Errorf("%s: %d bytes of headers, want %d", name, got, want)
		}
	}
}

func FuzzHeaderLength(f *testing.F) {
	f.Add([]byte{12: 0x08, 14: 0x45, 23: 4, 34: 0x60})
	f.Fuzz(func(t *testing.T, frame []byte) {
		if n := HeaderLength(frame); n < 0 || n > len(frame) {
			t.Errorf("%d bytes of headers, of %d", n, len(frame))
		}
	})
}

// TestRequestComplete: a request gets its defaults, and a wrong one is refused.
func TestRequestComplete(t *testing.T) {
	r, err := Request{}.Complete()
	if err != nil || r.For() != DefaultFor || r.Rate != DefaultRate || r.Bytes != DefaultBytes ||
		r.SnapLength() != HeaderSnap {
		t.Errorf("%+v, %v", r, err)
	}
	bad := []Request{{Snap: MaxSnap + 1}, {Snap: noFrames}, {Seconds: -1}, {Seconds: 1e9}, {Rate: MaxRate + 1},
		{Filter: Filter{Family: 5}},
		{Filter: Filter{Backend: "web01"}}}
	mixed := Request{Filter: Filter{Family: 6}}
	mixed.Source = netip.MustParsePrefix("192.0.2.0/24")
	for _, r := range append(bad, mixed) {
		if _, err := r.Complete(); err == nil {
			t.Errorf("%+v was taken", r)
		}
	}
}
