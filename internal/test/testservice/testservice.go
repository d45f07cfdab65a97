// SPDX-License-Identifier: Apache-2.0

// Package testservice makes services for tests of the data plane.
package testservice

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TableSize is the size of small tables, which keep tests fast. It is a prime, like other sizes.
const TableSize = 251

// FarIndex is the index of the second interface, which the paths of every other backend use.
const FarIndex = 102

// Addresses of the balancer.
var (
	BalancerMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	// FarMAC is the MAC address of the second interface.
	FarMAC = net.HardwareAddr{2, 0, 0, 1, 1, 2}
	VIP4   = netip.MustParseAddr("198.18.0.100")
	Local4 = netip.MustParseAddr("198.18.0.2")
	Local6 = netip.MustParseAddr("2001:2::2")
)

// New returns a service of mode L2DSR with n backends whose MAC addresses are known.
func New(vip netip.Addr, port uint16, protocol lb.Protocol, scheduler lb.Scheduler, n int) lb.RoutedService {
	s := lb.RoutedService{Service: lb.Service{
		Name: fmt.Sprintf("%s-%s-%d", scheduler, protocol, port), VIP: vip, Port: port,
		Protocol: protocol, Mode: lb.L2DSR, Scheduler: scheduler,
	}}
	AddBackends(&s, n, port, vip.Is6())
	return s
}

// AddBackends replaces the backends of a service by n backends. Their paths differ in interface and MTU.
func AddBackends(s *lb.RoutedService, n int, port uint16, six bool) {
	s.Backends, s.Paths = nil, nil
	address, local, least := netip.MustParseAddr("198.18.2.1"), Local4, uint16(700)
	if six {
		address, local, least = netip.MustParseAddr("2001:2::2:1"), Local6, 1340
	}
	for i := range n {
		s.Backends = append(s.Backends, lb.Backend{
			Name: fmt.Sprintf("web%02d", i+1), Address: address, Port: port, Weight: 1})
		path := lb.Path{MAC: net.HardwareAddr{2, byte(port >> 8), 0, byte(port), byte(i >> 8), byte(i + 1)},
			Source: BalancerMAC, MTU: []uint16{0, 1400, least}[i%3], Local: local}
		if i%2 == 1 {
			path.Interface, path.Source = FarIndex, FarMAC
		}
		s.Paths = append(s.Paths, path)
		address = address.Next()
	}
}

// Reversed returns the service with its backends in reverse order.
func Reversed(s lb.RoutedService) lb.RoutedService {
	s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
	slices.Reverse(s.Backends)
	slices.Reverse(s.Paths)
	return s
}
