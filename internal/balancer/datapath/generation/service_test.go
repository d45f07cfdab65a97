// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Small tables keep the tests quick; they are primes all the same.
const testTableSize = 251

var (
	balancerMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	vip4        = netip.MustParseAddr("198.18.0.100")
	local4      = netip.MustParseAddr("198.18.0.2")
	local6      = netip.MustParseAddr("2001:2::2")
)

// testService returns a service with n backends whose MAC addresses are known.
func testService(vip netip.Addr, port uint16, protocol lb.Protocol, scheduler lb.Scheduler, n int) lb.RoutedService {
	s := lb.RoutedService{Service: lb.Service{
		Name: fmt.Sprintf("%s-%s-%d", scheduler, protocol, port), VIP: vip, Port: port,
		Protocol: protocol, Mode: lb.L2DSR, Scheduler: scheduler,
	}}
	addBackends(&s, n, port, vip.Is6())
	return s
}

// addBackends gives a service n backends in place of those that it has. Their paths differ in interface and MTU.
func addBackends(s *lb.RoutedService, n int, port uint16, six bool) {
	s.Backends, s.Paths = nil, nil
	address, local, least := netip.MustParseAddr("198.18.2.1"), local4, uint16(700)
	if six {
		address, local, least = netip.MustParseAddr("2001:2::2:1"), local6, 1340
	}
	for i := range n {
		s.Backends = append(s.Backends, lb.Backend{
			Name: fmt.Sprintf("web%02d", i+1), Address: address, Port: port, Weight: 1})
		path := lb.Path{MAC: net.HardwareAddr{2, byte(port >> 8), 0, byte(port), byte(i >> 8), byte(i + 1)},
			Source: balancerMAC, MTU: []uint16{0, 1400, least}[i%3], Local: local}
		if i%2 == 1 {
			path.Interface, path.Source = 102, net.HardwareAddr{2, 0, 0, 1, 1, 2}
		}
		s.Paths = append(s.Paths, path)
		address = address.Next()
	}
}
