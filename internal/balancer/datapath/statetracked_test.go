// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The configurations of services that track flows.

// firstTracked is the port of the first of trackedServices.
const firstTracked = 5001

// trackedKinds are kinds of services all of whose flows have entries, by scheduler, weights and bounds.
var trackedKinds = []struct {
	name     string
	backends int
	of       func(*lb.RoutedService)
}{
	{"wrr", 4, func(s *lb.RoutedService) { s.Scheduler = lb.WeightedRoundRobin; weigh(s, 1, 2, 4, 3) }},
	{"lc", 5, func(s *lb.RoutedService) { s.Scheduler = lb.LeastConnections; weigh(s, 1, 7, 1, 9, 3) }},
	{"wlc", 5, func(s *lb.RoutedService) { s.Scheduler = lb.WeightedLeastConnections; weigh(s, 1, 2, 4, 3, 2) }},
	{"wlc of many", 75, func(s *lb.RoutedService) {
		s.Scheduler = lb.WeightedLeastConnections
		weigh(s, 1, 2, 5)
		bound(s, 3, 1)
	}},
	{"random2", 6, func(s *lb.RoutedService) { s.Scheduler = lb.TwoChoices; weigh(s, 1, 2, 4) }},
	{"random2 with bounds", 6, func(s *lb.RoutedService) {
		s.Scheduler = lb.TwoChoices
		weigh(s, 1, 2, 4)
		bound(s, 4, 2)
	}},
	{"sh", 5, func(s *lb.RoutedService) { s.Scheduler = lb.SourceHash; weigh(s, 3, 1) }},
	{"maglev by source", 5, func(s *lb.RoutedService) {
		s.Scheduler, s.Hash, s.TableSize = lb.Maglev, lb.HashSource, 127
	}},
	{"fo", 3, func(s *lb.RoutedService) { s.Scheduler = lb.Failover }},
	{"fo with bounds", 3, func(s *lb.RoutedService) {
		s.Scheduler = lb.Failover
		bound(s, 5, 3)
		s.Limits.Refuse = lb.RefuseByReset
	}},
	{"maglev with bounds", 4, func(s *lb.RoutedService) {
		s.Scheduler = lb.Maglev
		weigh(s, 2, 1)
		bound(s, 6, 0)
		s.Limits.Refuse = lb.RefuseByReset
	}},
	{"rr with bounds", 4, func(s *lb.RoutedService) {
		s.Scheduler = lb.RoundRobin
		bound(s, 5, 4)
		s.Limits.Refuse = lb.RefuseByReset
	}},
	{"wrr with a cap", 4, func(s *lb.RoutedService) {
		s.Scheduler = lb.WeightedRoundRobin
		weigh(s, 5, 1)
		s.Limits = lb.Limits{Connections: 20, Refuse: lb.RefuseByReset}
	}},
	{"maglev with a rate", 4, func(s *lb.RoutedService) {
		s.Scheduler = lb.Maglev
		s.Limits = lb.Limits{Rate: 50, Burst: 3, Refuse: lb.RefuseByReset}
	}},
	{"lc with a rate", 4, func(s *lb.RoutedService) {
		s.Scheduler = lb.LeastConnections
		s.Limits = lb.Limits{Rate: 100, Refuse: lb.RefuseByReset}
	}},
	{"rr persistent", 4, func(s *lb.RoutedService) { s.Scheduler = lb.RoundRobin; persist(s, 0, 0) }},
	{"maglev persistent by prefix", 4, func(s *lb.RoutedService) {
		s.Scheduler = lb.Maglev
		persist(s, 24, 112)
		bound(s, 9, 0)
	}},
	{"fo persistent", 3, func(s *lb.RoutedService) { s.Scheduler = lb.Failover; persist(s, 30, 126) }},
	{"rr in a group", 4, func(s *lb.RoutedService) { s.Scheduler = lb.RoundRobin; shareAffinity(s) }},
	{"lc in a group", 3, func(s *lb.RoutedService) { s.Scheduler = lb.LeastConnections; shareAffinity(s) }},
}

// trackedServices are one of each kind for each family and protocol, in modes
// in turn.
func trackedServices() (all []lb.RoutedService) {
	modes := []lb.Mode{lb.L2DSR, lb.NAT, lb.DSCP, lb.FullNAT, lb.NAT, lb.IPIP, lb.FullNAT}
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			for i, kind := range trackedKinds {
				port := uint16(firstTracked + i)
				s := testService(vip, port, protocol, lb.Maglev, kind.backends)
				s.Name = kind.name
				if s.Mode = modes[len(all)%len(modes)]; s.Mode.Translates() {
					addBackends(&s, kind.backends, port+natPortOffset, vip.Is6())
				}
				s.DSCP = uint8(1 + i)
				kind.of(&s)
				all = append(all, s)
			}
		}
	}
	return all
}

// weigh gives the backends weights, over and over.
func weigh(s *lb.RoutedService, weights ...uint16) {
	for i := range s.Backends {
		s.Backends[i].Weight = weights[i%len(weights)]
	}
}

// bound gives every backend thresholds.
func bound(s *lb.RoutedService, upper, lower uint32) {
	for i := range s.Backends {
		s.Backends[i].Upper, s.Backends[i].Lower = upper, lower
	}
}

// persist gives clients of a prefix one backend; 0 stands for whole addresses.
func persist(s *lb.RoutedService, bits4, bits6 uint8) {
	s.Persistence = lb.Persistence{Timeout: 3 * time.Minute, Prefix: bits4}
	if s.VIP.Is6() {
		s.Persistence.Prefix = bits6
	}
	if s.Persistence.Prefix == 0 {
		s.Persistence.Prefix = uint8(s.VIP.BitLen())
	}
}

// share has a service share its persistence with all others of its family that do.
func shareAffinity(s *lb.RoutedService) {
	persist(s, 28, 124)
	s.Persistence.Group = "four"
	if s.VIP.Is6() {
		s.Persistence.Group = "six"
	}
}

// allKinds is allModes with trackedServices.
func allKinds() lb.State {
	state := allModes()
	state.Services = append(state.Services, trackedServices()...)
	return state
}
