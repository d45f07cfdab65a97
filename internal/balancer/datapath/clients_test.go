// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// clientsOf returns allModes, in which all services allow and deny the networks of their family.
func clientsOf(allow, deny []string) lb.State {
	state := allModes()
	for i := range state.Services {
		s := &state.Services[i]
		for _, list := range []struct {
			text []string
			to   *[]netip.Prefix
		}{{allow, &s.Allow}, {deny, &s.Deny}} {
			for _, text := range list.text {
				if prefix := netip.MustParsePrefix(text); prefix.Addr().Is6() == s.VIP.Is6() {
					*list.to = append(*list.to, prefix)
				}
			}
		}
	}
	return state
}

// TestClients: the longest of a service's prefixes decides which clients it serves, in every mode,
// of new flows and of those that are known, of whole packets and of pieces; a list that changes
// counts from the next packet on, without another program.
func TestClients(t *testing.T) {
	one, two := [2]string{"198.18.1.7", "2001:2::1:7"}, [2]string{"198.18.1.8", "2001:2::1:8"}
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, allModes())
		without, id := r.datapath.Program(), uint32(0)
		expect := func(clients [2]string, served bool) {
			t.Helper()
			want := map[bool]string{true: "forwarded", false: denied}[served]
			for i := range r.model.state.Services {
				s := &r.model.state.Services[i]
				if s.Port < portIPIP || s.Port > portFullNATAlike {
					continue
				}
				p := modePacket(s.VIP, s.Port, s.Protocol == lb.UDP)
				p.from, p.payload = netip.MustParseAddr(clients[0]), 300
				if s.VIP.Is6() {
					p.from = netip.MustParseAddr(clients[1])
				}
				for _, p.flags = range []string{"S", "A"} {
					expectOutcome(t, r, p.build(t), want)
				}
				expectOutcome(t, r, tagged(p.build(t), 0x8100), want)
				if s.Protocol == lb.TCP {
					continue
				}
				id++
				parts := threeParts(p.build(t), id)
				expectOutcome(t, r, parts[0], want)
				if !served {
					want := "dropped_fragment"
					expectOutcome(t, r, parts[1], want)
				}
			}
		}
		bring := func(allow, deny []string) {
			t.Helper()
			r.applyAll(t, clientsOf(allow, deny))
		}
		expect(one, true)
		expect(two, true)
		bring(nil, []string{"198.18.1.7/32", "2001:2::1:7/128"})
		expect(one, false)
		expect(two, true)
		program := r.datapath.Program()
		if program == without {
			t.Error("a service has a list, and the program is one that knows none")
		}
		bring([]string{"198.18.1.7/32", "2001:2::1:7/128"}, nil)
		expect(one, true)
		expect(two, false)
		bring([]string{"198.18.0.0/16", "2001:2::/32", "198.18.1.7/32", "2001:2::1:7/128"},
			[]string{"198.18.1.0/24", "2001:2::1:0/112"})
		expect(one, true)
		expect(two, false)
		bring([]string{"0.0.0.0/0", "::/0"}, []string{"198.18.1.8/32", "2001:2::1:8/128"})
		expect(one, true)
		expect(two, false)
		bring([]string{"198.18.1.8/32", "2001:2::1:8/128"}, []string{"0.0.0.0/0", "::/0"})
		expect(one, false)
		expect(two, true)
		if r.datapath.Program() != program {
			t.Error("the program was loaded anew for another list")
		}
		bring(nil, nil)
		expect(one, true)
		expect(two, true)
		if lists := r.datapath.shared.Prefixes.Lists; len(lists) > 0 {
			t.Errorf("lists that no service has: %v", lists)
		}
		if got := elementsOf(t, r.datapath.shared.Prefixes.Map); got != 0 {
			t.Errorf("%d prefixes that no service has", got)
		}
	})
}

// TestClientsAreOfTheirService: a client that one service denies, another of the same VIP serves; and a list of
// thousands is searched as one of two is.
func TestClientsAreOfTheirService(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		state := lb.State{Services: []lb.RoutedService{modeService(vip4, portDSCP, lb.TCP, lb.Maglev),
			modeService(vip4, portNAT, lb.TCP, lb.RoundRobin)}}
		for n := range 5000 {
			prefix := netip.MustParsePrefix(fmt.Sprintf("198.%d.%d.0/24", 18+n>>8&1, n&0xff))
			if n >= 512 {
				prefix = netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", n>>8, n&0xff))
			}
			state.Services[0].Deny = append(state.Services[0].Deny, prefix)
		}
		r := newRig(t, hook, state)
		for i := range state.Services {
			s := &state.Services[i]
			p := packetSpec{from: netip.MustParseAddr("198.18.200.9"), at: s.VIP, sport: 40000, dport: s.Port,
				flags: "S"}
			want := "forwarded"
			if i == 0 {
				want = denied
			}
			expectOutcome(t, r, p.build(t), want)
			p.from = netip.MustParseAddr("192.0.2.9")
			expectOutcome(t, r, p.build(t), "forwarded")
		}
	})
}
