// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// traced is a SYN for a service in mode nat.
func traced() *trace.Packet {
	slot := uint32(17)
	return &trace.Packet{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Hook: lb.HookTC, Interface: "eth0",
		Came: &trace.Flow{Source: netip.MustParseAddr("192.0.2.7"), SourcePort: 4711,
			Destination: netip.MustParseAddr("192.0.2.100"), DestinationPort: 80,
			Protocol: "tcp", Flags: []string{"syn"}, Length: 44},
		Outcome: "forwarded", Help: "sent on to a backend", Slot: &slot, Slots: 251,
		Service: &trace.Service{Name: "web", VIP: netip.MustParseAddr("192.0.2.100"), Port: 80, Protocol: lb.TCP,
			Mode: lb.NAT, Scheduler: lb.Maglev},
		Backend: &trace.Backend{Name: "web03", Address: netip.MustParseAddr("192.0.2.3"), Port: 8080},
		Path:    &trace.Path{Interface: "eth1", NextHop: "02:00:00:00:00:03", Source: "02:00:00:00:00:01", MTU: 1500},
		Leaves: []trace.Layer{
			{Name: "ethernet", Fields: []trace.Field{{Name: "destination", Value: "02:00:00:00:00:03"},
				{Name: "source", Value: "02:00:00:00:00:01"}}},
			{Name: "ipv4", Fields: []trace.Field{{Name: "source", Value: "192.0.2.7"},
				{Name: "destination", Value: "192.0.2.3"}}},
			{Name: "tcp", Fields: []trace.Field{{Name: "source port", Value: "4711"},
				{Name: "destination port", Value: "8080"}}},
		},
		Changes: []trace.Change{
			{Layer: "ethernet", Field: "destination", Before: "02:00:00:00:00:01", After: "02:00:00:00:00:03"},
			{Layer: "ipv4", Field: "destination", Before: "192.0.2.100", After: "192.0.2.3"},
			{Layer: "tcp", Field: "destination port", Before: "80", After: "8080"},
			{Layer: "udp", Field: "length", After: "52"},
		},
	}
}

// tracedOnce returns a packet with a change.
func tracedOnce(change func(*trace.Packet)) *trace.Packet {
	p := traced()
	change(p)
	return p
}

func TestWriteExplanation(t *testing.T) {
	for name, p := range map[string]*trace.Packet{
		"trace": traced(),
		"trace-turn": tracedOnce(func(p *trace.Packet) {
			p.Service.Scheduler, p.Reasons, p.Path.Interface = lb.RoundRobin, []trace.Reason{trace.NewFlow}, ""
		}),
		"trace-unknown": tracedOnce(func(p *trace.Packet) { p.Service.Scheduler = lb.RoundRobin }),
		"trace-known": tracedOnce(func(p *trace.Packet) {
			p.Slot, p.Reasons = nil, []trace.Reason{trace.KnownFlow}
		}),
		"trace-dropped": tracedOnce(func(p *trace.Packet) {
			p.Outcome, p.Help, p.Slot, p.Backend, p.Path, p.Changes, p.Leaves = "dropped_no_backend",
				"dropped: no backend", nil, nil, nil, nil, nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			writeExplanation(&got, p)
			golden := filepath.Join("testdata", name+".golden")
			if *cmdtest.Update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTraceLine(t *testing.T) {
	for want, p := range map[string]*trace.Packet{
		"03:04:05.000006 eth0 tcp 192.0.2.7:4711 → 192.0.2.100:80 syn, 44 bytes: forwarded service web slot 17 backend web03 " +
			"as 02:00:00:00:00:03 ipv4 192.0.2.7 → 192.0.2.3 tcp 4711 → 8080": traced(),
		"03:04:05.000006 eth0 icmp 192.0.2.7 → 192.0.2.100, 56 bytes: passed_no_service": {
			Time: traced().Time, Hook: lb.HookTC, Interface: "eth0", Outcome: "passed_no_service",
			Leaves: traced().Leaves,
			Came: &trace.Flow{Source: traced().Came.Source, Destination: traced().Came.Destination, Protocol: "icmp",
				Length: 56}},
		"03:04:05.000006 - a frame that was not read: passed_not_ip": {Time: traced().Time, Hook: lb.HookTC,
			Outcome: "passed_not_ip"},
		"03:04:05.000006 eth0 tcp 192.0.2.7:4711 → 192.0.2.100:80 syn, 44 bytes: answered_too_big service web backend web03 " +
			"as 02:00:00:00:00:07 icmp 3/4 mtu 1480": tracedOnce(func(p *trace.Packet) {
			p.Outcome, p.Slot = "answered_too_big", nil
			p.Leaves = []trace.Layer{{Name: "ethernet",
				Fields: []trace.Field{{Name: "destination", Value: "02:00:00:00:00:07"}}},
				{Name: "icmp", Fields: []trace.Field{{Name: "type", Value: "3"}, {Name: "code", Value: "4"},
					{Name: "mtu", Value: "1480"}}}}
		}),
	} {
		if diff := cmp.Diff(want, p.Line()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestTraceRequest(t *testing.T) {
	c := TraceCmd{Live: true, Src: "192.0.2.0/24", VIP: "::ffff:192.0.2.100", Port: 80, Protocol: "udp",
		For: 90 * time.Second, Sample: 3}
	got, err := c.request()
	if err != nil {
		t.Fatal(err)
	}
	want := trace.Filter{Source: netip.MustParsePrefix("192.0.2.0/24"),
		Destination:     netip.MustParsePrefix("192.0.2.100/32"),
		DestinationPort: 80, Protocol: lb.UDP, Sample: 3}
	if got.Filter != want || got.Seconds != 90 {
		t.Errorf("got %v, want %v", got, want)
	}
	for flag, c := range map[string]TraceCmd{"--src": {Src: "192.0.2"}, "--vip": {VIP: "192.0.2.1/33"}} {
		if _, err := c.request(); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("error %v, want one about %s", err, flag)
		}
		if _, err := c.question(); err == nil {
			t.Error("a question without addresses was taken")
		}
	}
}
