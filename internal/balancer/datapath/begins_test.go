// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestFirstTableOfUDP: a new service of which no packet was sent on has no flows: where the MAC addresses of some
// backends are known later than the others', datagrams go to all of them at once. Where there was a packet, or the
// service is older, its flows stay where they are, and a transition begins.
func TestFirstTableOfUDP(t *testing.T) {
	s := testService(vip4, 53, lb.UDP, lb.Maglev, 5)
	some := s
	some.Paths = slices.Clone(s.Paths)
	clear(some.Paths[1:])
	now := time.Now()
	start := func(services ...lb.RoutedService) peer {
		m := newPeer(t, services...)
		m.register.Unused = m.unused
		m.now = func() time.Time { return now }
		return m
	}
	datagram := func(m peer, port int) string {
		t.Helper()
		_, out, err := m.Program().Test(with(modePacket(vip4, 53, true), func(p *packetSpec) {
			p.sport = uint16(port)
		}).build(t))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", out[:6])
	}
	whole := start(s)
	for _, test := range []struct {
		name   string
		before func(peer)
		opens  bool
	}{
		{"as soon as they are known", func(peer) {}, false},
		{"later", func(peer) { now = now.Add(generation.FirstTables - time.Second) }, false},
		{"when it is no new service any more", func(peer) { now = now.Add(generation.FirstTables) }, true},
		{"after a datagram", func(m peer) { datagram(m, 1000) }, true},
	} {
		m := start()
		m.apply(some)
		test.before(m)
		went := ""
		if test.opens {
			went = datagram(m, 1000)
		}
		m.apply(s)
		if is := m.register.ByKey[s.Key()].View.InTransition(); is != test.opens {
			t.Errorf("%s, a transition has begun: %v, want %v", test.name, is, test.opens)
		}
		if test.opens {
			if got := datagram(m, 1000); got != went {
				t.Errorf("%s, the flow went to %s, and goes to %s", test.name, went, got)
			}
			continue
		}
		for port := 1000; port < 1100; port++ {
			if got, want := datagram(m, port), datagram(whole, port); got != want {
				t.Errorf("%s, port %d goes to %s, want %s", test.name, port, got, want)
			}
		}
		// From here on there are flows.
		m.apply(drained(s, 1))
		if !m.register.ByKey[s.Key()].View.InTransition() {
			t.Errorf("%s: a drain after datagrams began no transition", test.name)
		}
	}
}
