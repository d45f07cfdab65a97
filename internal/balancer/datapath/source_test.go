// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// hostGroup is the key by which services can share clients' hosts: the VIP, and the family of the backends.
type hostGroup struct {
	vip netip.Addr
	six bool
}

// bySource is the state of allModes with every service going by the client's address, by
// one name or the other, with weights, and with and without memory of flows.
func bySource() lb.State {
	state := allModes()
	state.Services = slices.DeleteFunc(state.Services, func(s lb.RoutedService) bool {
		return s.Port < portIPIP || s.Port > portFullNATAlike
	})
	for i := range state.Services {
		s := &state.Services[i]
		s.Scheduler, s.MSS = lb.SourceHash, 0
		if i%2 == 1 {
			s.Scheduler, s.Hash = lb.Maglev, lb.HashSource
		}
		for b := range s.Backends {
			s.Backends[b].Weight = uint16(1 + b)
			if i%3 == 0 {
				s.Backends[b].Upper = 1 << 20
			}
		}
	}
	return state
}

// TestSourceMeets sends clients to every service of a VIP, in every mode, over TCP and UDP:
// each client meets one host, whatever the ports of services and backends are.
func TestSourceMeets(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, bySource())
		met := map[hostGroup]map[netip.Addr]bool{}
		for number := byte(2); number < 34; number++ {
			hosts := map[hostGroup]netip.Addr{}
			for i := range r.model.state.Services {
				s := &r.model.state.Services[i]
				p := modePacket(s.VIP, s.Port, s.Protocol == lb.UDP)
				p.from, p.payload = clientOf(0, s.VIP.Is6(), number), 0
				p.sport = 1000 + uint16(i)
				at := hostGroup{s.VIP, s.Backends[0].Address.Is6()}
				got := expectOutcome(t, r, p.build(t), "forwarded").backend.Address
				if host, known := hosts[at]; known && got != host {
					t.Fatalf("client %v meets %v at %s, and %v at another service", p.from, got, s.Name, host)
				}
				hosts[at] = got
				if met[at] == nil {
					met[at] = map[netip.Addr]bool{}
				}
				met[at][got] = true
			}
		}
		for at, hosts := range met {
			if len(hosts) != 4 {
				t.Errorf("at %v (IPv6 backends: %t) 32 clients meet %d of 4 hosts", at.vip, at.six, len(hosts))
			}
		}
	})
}
