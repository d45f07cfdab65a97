// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

var (
	ours    = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	backend = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

func question() Question {
	return Question{Source: netip.MustParseAddr("192.0.2.7"), SourcePort: 4711,
		Destination: netip.MustParseAddr("192.0.2.100"), DestinationPort: 80, Protocol: lb.TCP, Flags: []string{"syn"}}
}

func question6() Question {
	q := question()
	q.Source, q.Destination = netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("2001:db8::100")
	return q
}

// frame builds a question's packet.
func frame(t *testing.T, q Question) []byte {
	t.Helper()
	b, err := q.Frame(ours)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFrame(t *testing.T) {
	udp := question6()
	udp.Protocol, udp.Flags, udp.Length = lb.UDP, nil, 1280
	for name, test := range map[string]struct {
		question Question
		length   int // of the frame
		want     string
	}{
		"IPv4 SYN": {question(), 60, // Ethernet pads
			"ipv4 192.0.2.7 192.0.2.100 tcp 4711 80 syn 1460"},
		"IPv6 SYN": {question6(), 14 + 40 + 24, "ipv6 2001:db8::7 2001:db8::100 tcp 4711 80 syn 1440"},
		"IPv6 UDP": {udp, 14 + 1280, "ipv6 2001:db8::7 2001:db8::100 udp 4711 80"},
	} {
		t.Run(name, func(t *testing.T) {
			b := frame(t, test.question)
			if len(b) != test.length {
				t.Errorf("%d bytes, want %d", len(b), test.length)
			}
			var words []string
			for _, layer := range Describe(b)[1:] {
				words = append(words, layer.Name)
				for _, field := range []string{"source", "destination", "source port", "destination port",
					"flags", "mss"} {
					if v := layer.Get(field); v != "" && v != "df" && v != "-" {
						words = append(words, v)
					}
				}
			}
			if got := strings.Join(words, " "); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestBadQuestions(t *testing.T) {
	for want, change := range map[string]func(*Question){
		"different families":               func(q *Question) { q.Source = netip.MustParseAddr("2001:db8::7") },
		"no source":                        func(q *Question) { q.Source = netip.Addr{} },
		"no destination":                   func(q *Question) { q.Destination = netip.Addr{} },
		"no ports":                         func(q *Question) { q.Protocol = 1 },
		"UDP has no flags":                 func(q *Question) { q.Protocol = lb.UDP },
		`no flag "xyz"`:                    func(q *Question) { q.Flags = []string{"syn", "xyz"} },
		"fewer than its headers have (44)": func(q *Question) { q.Length = 43 },
		"too many":                         func(q *Question) { q.Length = MaxLength + 1 },
	} {
		q := question()
		change(&q)
		if _, err := q.Frame(ours); !errors.Is(err, ErrBadQuestion) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestFilterCheck(t *testing.T) {
	for _, bad := range []Filter{
		{Source: netip.MustParsePrefix("192.0.2.0/24"), Destination: netip.MustParsePrefix("2001:db8::/32")},
		{Protocol: 1},
	} {
		if bad.Check() == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	if err := (Filter{Source: netip.MustParsePrefix("192.0.2.0/24"), Protocol: lb.UDP}).Check(); err != nil {
		t.Error(err)
	}
}

// readdressed returns a frame as L2 DSR sends it on.
func readdressed(b []byte) []byte {
	out := append([]byte(nil), b...)
	copy(out, backend)
	copy(out[6:], ours)
	return out
}

func TestCompare(t *testing.T) {
	came := frame(t, question())
	macs := []Change{
		{"ethernet", "destination", ours.String(), backend.String()},
		{"ethernet", "source", "00:00:00:00:00:00", ours.String()},
	}
	eth := func(of layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: ours, DstMAC: backend, EthernetType: of}
	}
	outer := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, FlowLabel: 0xabcde,
		SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::9")}
	gue := testpacket.Build(t, eth(layers.EthernetTypeIPv6), outer, &layers.UDP{SrcPort: 50000, DstPort: guePort},
		gopacket.Payload(came[14:58]))
	translated := question()
	translated.Destination, translated.DestinationPort = netip.MustParseAddr("192.0.2.9"), 8080
	tagged := append(append(append([]byte(nil), came[:12]...), 0x81, 0, 0, 5), came[12:]...)
	answer := testpacket.Build(t, eth(layers.EthernetTypeIPv4),
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: net.IP{192, 0, 2, 100},
			DstIP: net.IP{192, 0, 2, 7}},
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: 1480}, gopacket.Payload(came[14:58]))

	for name, test := range map[string]struct {
		came, leaves []byte
		want         string
	}{
		"nothing": {came, came, ""},
		"l2dsr":   {came, readdressed(came), ""},
		"gue": {came, gue,
			"ipv6.source:>2001:db8::1 ipv6.destination:>2001:db8::9 ipv6.traffic class:>0x00 ipv6.flow label:>0xabcde " +
				"ipv6.payload length:>52 ipv6.next header:>17 ipv6.hop limit:>64 udp.source port:>50000 udp.destination port:>6080 udp.length:>52 udp.checksum:>"},
		"nat": {came, readdressed(frame(t, translated)),
			"ipv4.destination:192.0.2.100>192.0.2.9 ipv4.checksum: tcp.destination port:80>8080 tcp.checksum:"},
		"tag": {tagged, readdressed(came), "vlan.id:5>"},
		"too big": {came, answer,
			"ipv4.source:>192.0.2.100 ipv4.destination:>192.0.2.7 ipv4.tos:>0x00 ipv4.length:>72 ipv4.identification:>0 ipv4.flags:>- " +
				"ipv4.ttl:>64 ipv4.protocol:>1 ipv4.checksum: icmp.type:>3 icmp.code:>4 icmp.checksum: icmp.mtu:>1480"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Compare(Describe(test.came), Describe(test.leaves))
			if name != "nothing" {
				if diff := cmp.Diff(macs, got[:2]); diff != "" {
					t.Errorf("MAC addresses (-want +got):\n%s", diff)
				}
				got = got[2:]
			}
			var words []string
			for _, c := range got {
				word := c.Layer + "." + c.Field + ":"
				if c.Field != "checksum" || name == "gue" {
					word += c.Before + ">" + c.After
				}
				if name == "gue" && c.Field == "checksum" {
					word = "udp.checksum:>"
				}
				words = append(words, word)
			}
			if diff := cmp.Diff(test.want, strings.Join(words, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzDescribe describes any bytes that a network might bring.
func FuzzDescribe(f *testing.F) {
	b, err := question().Frame(ours)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, b[:40])
	f.Fuzz(func(t *testing.T, a, b []byte) {
		before, after := Describe(a), Describe(b)
		for _, change := range Compare(before, after) {
			if change.Before == change.After {
				t.Errorf("no change: %v", change)
			}
		}
		if changes := Compare(before, before); len(changes) > 0 {
			t.Errorf("a frame differs from itself: %v", changes)
		}
	})
}
