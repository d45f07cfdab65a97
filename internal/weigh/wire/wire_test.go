// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"testing"
	"time"
)

// allWell checks a step in which nothing may be lost, strange or miscounted: each side has received exactly the packets
// that the other has sent.
func allWell(t *testing.T, s Step, begun uint64) {
	t.Helper()
	if s.Begun != begun || s.Asked != begun || s.Succeeded() != begun {
		t.Errorf("%s: asked for %d, begun %d, succeeded %d; want %d", s.Kind, s.Asked, s.Begun, s.Succeeded(), begun)
	}
	if s.Failed != (Failed{}) || s.Unexpected != (Unexpected{}) || s.Retransmitted != 0 {
		t.Errorf("%s: failed %+v, strange %+v, %d sent again", s.Kind, s.Failed, s.Unexpected, s.Retransmitted)
	}
	if s.LostToServers != 0 || s.LostToClients != 0 {
		t.Errorf("%s: %d packets lost to servers, %d to clients: %+v %+v", s.Kind, s.LostToServers, s.LostToClients,
			s.Clients, s.Servers)
	}
	var accepted uint64
	for _, n := range s.PerServer {
		accepted += n
	}
	if accepted != begun {
		t.Errorf("%s: server ports accepted %v, together %d, want %d", s.Kind, s.PerServer, accepted, begun)
	}
}

// TestPlainWire runs each load from client ports directly to server ports.
func TestPlainWire(t *testing.T) {
	r := newRig(t, 2)
	r.spec.Connections = 100_000
	tester := r.open(t)
	for _, test := range []struct {
		name string
		load Load
		// The packets of each side, for each connection.
		clients, servers uint64
	}{
		// More connections than there is room for: their numbers are used again.
		{"setup", Load{Kind: Setup, Connections: 120_000}, 0, 1},
		{"session", Load{Kind: Session, Connections: 20_000}, 4, 2},
		{"exchange", Load{Kind: Session, Connections: 20_000, Request: 100, Response: 1000}, 4, 3},
		{"long", Load{Kind: Session, Connections: 2_000, Request: 1460, Response: 10_000}, 10, 9},
		{"closed by the server", Load{Kind: Session, Connections: 20_000, Request: 100}, 3, 3},
		{"capacity", Load{Kind: Capacity, Connections: 100_000}, 4, 2},
		{"udp", Load{Kind: UDP, Connections: 100_000, Rate: 200_000}, 1, 0},
		{"dns", Load{Kind: DNS, Connections: 20_000, Question: "jeoul.example"}, 1, 1},
		{"mix", Load{Kind: Mix, Connections: 4_000, Sizes: []Size{{Share: 3, Bytes: 500}, {Share: 1, Bytes: 5000}}}, 0,
			0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := runAtRate(t, tester, test.load)
			allWell(t, s, test.load.Connections)
			if n := s.Clients.Sent; test.clients != 0 && n != test.clients*s.Begun {
				t.Errorf("client ports sent %d packets, want %d for each of %d", n, test.clients, s.Begun)
			}
			if n := s.Servers.Sent; (test.servers != 0 || test.clients != 0) && n != test.servers*s.Begun {
				t.Errorf("server ports sent %d packets, want %d for each of %d", n, test.servers, s.Begun)
			}
			latency := s.Response
			if test.load.Kind == Setup || test.load.Kind == Session && test.load.Request == 0 {
				latency = s.Setup
			}
			if test.name != "closed by the server" && (latency.Count != s.Begun || latency.Min <= 0 ||
				latency.P50 < latency.Min || latency.Max < latency.P99) {
				t.Errorf("latency %+v of %d", latency, s.Begun)
			}
		})
	}
}

// TestLadder offers rates one after the other.
func TestLadder(t *testing.T) {
	r := newRig(t, 1)
	var seen int
	steps, err := r.open(t).Run(t.Context(),
		Load{Kind: Setup, Ladder: &Ladder{From: 5000, To: 15_000, By: 5000, Connections: 1000}},
		func(Step) { seen++ })
	if err != nil || len(steps) != 3 || seen != 3 {
		t.Fatalf("%d steps, %d reported, error %v", len(steps), seen, err)
	}
	for i, s := range steps {
		allWell(t, s, 1000)
		if want := float64(5000 * (i + 1)); s.Offered != want || s.Rate() > 1.2*want {
			t.Errorf("step %d offered %v and reached %v, want %v", i, s.Offered, s.Rate(), want)
		}
	}
}

// TestFloodBesideSessions counts a flood separately from the sessions that it disturbs.
func TestFloodBesideSessions(t *testing.T) {
	r := newRig(t, 2)
	s := runAtRate(t, r.open(t), Load{Kind: Session, Rate: 2000, Connections: 1000,
		Flood: &Flood{Sources: netip.MustParsePrefix("198.19.128.0/17"), Rate: 20_000}})
	allWell(t, s, 1000)
	if s.FloodSent == 0 || s.FloodSent != s.FloodArrived {
		t.Errorf("%d of a flood sent, %d arrived", s.FloodSent, s.FloodArrived)
	}
}

// TestFlood sends only a flood.
func TestFlood(t *testing.T) {
	r := newRig(t, 1)
	s := runAtRate(t, r.open(t), Load{Kind: SYNFlood, Rate: 50_000, Connections: 10_000,
		Flood: &Flood{Sources: netip.MustParsePrefix("198.19.128.0/17")}})
	if s.Begun != 10_000 || s.Established != 10_000 || s.Failed != (Failed{}) || s.LostToServers != 0 ||
		s.Duration < 150*time.Millisecond {
		t.Errorf("%+v", s)
	}
}
