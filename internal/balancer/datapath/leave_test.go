// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// without returns the service without its backend i.
func withoutBackend(s lb.RoutedService, i int) lb.RoutedService {
	s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
	s.Backends, s.Paths = slices.Delete(s.Backends, i, i+1), slices.Delete(s.Paths, i, i+1)
	s.Observed = s.Observed.Without(i)
	return s
}

// in returns the service in another mode.
func inMode(s lb.RoutedService, mode lb.Mode) lb.RoutedService {
	s.Mode, s.DSCP = mode, 7
	return s
}

// TestRepliesOfThoseThatLeft lets a backend of NAT leave in each way there is: its late replies go to clients as
// before, and nothing goes to it.
func TestRepliesOfThoseThatLeft(t *testing.T) {
	service := modeService(vip4, portNAT, lb.UDP, lb.Maglev)
	other := modeService(vip4, portIPIP, lb.TCP, lb.Maglev)
	left := service.Backends[0]
	for _, test := range []struct {
		name  string
		after []lb.RoutedService
		// counted: the packets count for a backend that is there.
		counted bool
	}{
		{"a backend", []lb.RoutedService{withoutBackend(service, 0), other}, false},
		{"a service", []lb.RoutedService{other}, false},
		{"all services", nil, false},
		{"the service's mode", []lb.RoutedService{inMode(service, lb.DSCP), other}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			oneHook(t, func(t *testing.T, hook lb.Hook) {
				r := newRig(t, hook, lb.State{Services: []lb.RoutedService{service, other}})
				reply := packetSpec{from: left.Address, sport: left.Port, at: client4, dport: 9, udp: true,
					payload: 200}
				before := threeParts(reply.build(t), 3)
				expectOutcome(t, r, before[0], "returned")
				r.apply(t, lb.State{Services: test.after})

				v := expectOutcome(t, r, reply.build(t), "returned")
				if (v.backend != lb.BackendKey{}) != test.counted {
					t.Errorf("counted for %v", v.backend)
				}
				expectOutcome(t, r, icmpError(t, left.Address, reply.answer().build(t), 60), "returned")
				expectOutcome(t, r, icmpError(t, transitRouter(false), reply.answer().build(t), 60), "returned")
				want := map[bool]string{false: "dropped_fragment", true: "returned"}[test.counted]
				expectOutcome(t, r, before[1], want)
				after := threeParts(reply.build(t), 4)
				expectOutcome(t, r, after[1], "dropped_fragment")
				expectOutcome(t, r, after[0], "returned")
				expectOutcome(t, r, after[1], "returned")
				expectOutcome(t, r, with(reply, func(p *packetSpec) { p.sport++ }).build(t), unserved)
			})
		})
	}
}

// TestEndpointsOfThoseThatLeftAreClaimed gives the endpoint of a backend that left
// to another service, and takes it from that.
func TestEndpointsOfThoseThatLeftAreClaimed(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		service := modeService(vip4, portNAT, lb.UDP, lb.Maglev)
		other := service
		other.Port, other.MSS = 9999, 0
		left := service.Backends[0]
		reply := packetSpec{from: left.Address, sport: left.Port, at: client4, dport: 9, udp: true, payload: 200}
		r := newRig(t, hook, lb.State{Services: []lb.RoutedService{service}})
		r.apply(t, lb.State{})
		first := threeParts(reply.build(t), 3)
		expectOutcome(t, r, first[0], "returned")
		r.apply(t, lb.State{Services: []lb.RoutedService{other}})
		if v := expectOutcome(t, r, reply.build(t), "returned"); v.backend != other.BackendKey(left) {
			t.Errorf("counted for %v", v.backend)
		}
		expectOutcome(t, r, first[1], "dropped_fragment")
		r.apply(t, lb.State{})
		expectOutcome(t, r, first[1], "dropped_fragment")
		if v := expectOutcome(t, r, reply.build(t), "returned"); v.backend != (lb.BackendKey{}) {
			t.Errorf("counted for %v", v.backend)
		}
		// It comes back: its packets count as its own again.
		r.apply(t, lb.State{Services: []lb.RoutedService{service}})
		if v := expectOutcome(t, r, reply.build(t), "returned"); v.backend != service.BackendKey(left) {
			t.Errorf("counted for %v", v.backend)
		}
	})
}

// TestFlowsOfThoseThatLeftAreOver lets a flow's backend leave after a change of
// its service's mode: the flow goes to another, also when it comes back.
func TestFlowsOfThoseThatLeftAreOver(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		service := modeService(vip4, portNAT, lb.UDP, lb.RoundRobin)
		frame := modePacket(vip4, portNAT, true).build(t)
		for _, modes := range [][]lb.Mode{{lb.NAT, lb.NAT}, {lb.L2DSR, lb.L2DSR}} {
			r := newRig(t, hook, lb.State{Services: []lb.RoutedService{service}})
			v := expectOutcome(t, r, frame, "forwarded")
			i := slices.IndexFunc(service.Backends, func(b lb.Backend) bool {
				return service.BackendKey(b) == v.backend
			})
			r.apply(t, lb.State{Services: []lb.RoutedService{inMode(service, modes[0])}})
			r.apply(t, lb.State{Services: []lb.RoutedService{withoutBackend(inMode(service, modes[1]), i)}})
			if v := expectOutcome(t, r, frame, "forwarded"); !v.opens {
				t.Errorf("by %s: the flow of a backend that left goes on", modes)
			}
			r.apply(t, lb.State{Services: []lb.RoutedService{inMode(service, modes[1])}})
			if v := expectOutcome(t, r, frame, "forwarded"); v.opens {
				t.Errorf("by %s: its new flow does not go on", modes)
			}
		}
	})
}
