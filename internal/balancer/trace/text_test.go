// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"testing"
	"time"
)

// TestLine: a packet on one line, as far as it is known.
func TestLine(t *testing.T) {
	slot := uint32(7)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	came := &Flow{Source: netip.MustParseAddr("192.0.2.7"), SourcePort: 4711, Destination: netip.MustParseAddr("192.0.2.100"),
		DestinationPort: 80, Protocol: "tcp", Flags: []string{"syn", "ack"}, Length: 44}
	field := func(pairs ...string) (fields []Field) {
		for i := 0; i < len(pairs); i += 2 {
			fields = append(fields, Field{Name: pairs[i], Value: pairs[i+1]})
		}
		return fields
	}
	leaves := []Layer{
		{Name: "ethernet", Fields: field("source", "02:00:00:00:00:01", "destination", "02:00:00:00:00:09")},
		{Name: "ipv4", Fields: field("source", "192.0.2.100", "destination", "192.0.2.7")},
		{Name: "icmp", Fields: field("type", "3", "code", "4", "mtu", "1400")},
		{Name: "quoted tcp", Fields: field("source port", "4711", "destination port", "80")},
	}
	for want, p := range map[string]*Packet{
		"03:04:05.000006 eth0 tcp 192.0.2.7:4711 → 192.0.2.100:80 syn,ack, 44 bytes: forwarded service we?b slot 7 new " +
			"backend w1 as 02:00:00:00:00:09 ipv4 192.0.2.100 → 192.0.2.7 icmp 3/4 mtu 1400 quoted tcp 4711 → 80": {
			Time: at, Interface: "eth0", Came: came, Outcome: "forwarded", Service: &Service{Name: "we\nb"}, Slot: &slot,
			Reasons: []Reason{"new"}, Backend: &Backend{Name: "w1"}, Leaves: leaves},
		"03:04:05.000006 - a frame that was not read: dropped": {Time: at, Outcome: "dropped", Leaves: leaves},
		"03:04:05.000006 - icmp 192.0.2.7 → 192.0.2.100, 28 bytes: passed": {Time: at, Outcome: "passed",
			Came: &Flow{Source: came.Source, Destination: came.Destination, Protocol: "icmp", Length: 28}},
	} {
		if got := p.Line(); got != want {
			t.Errorf("got  %q,\nwant %q", got, want)
		}
	}
	if p := (&Packet{Reasons: []Reason{"new"}}); !p.Has("new") || p.Has("old") {
		t.Errorf("%q have new: %v, old: %v", p.Reasons, p.Has("new"), p.Has("old"))
	}
	if got, want := question().String(), "tcp 192.0.2.7:4711 → 192.0.2.100:80"; got != want {
		t.Errorf("the question is %q, want %q", got, want)
	}
}
