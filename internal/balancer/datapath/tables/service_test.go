// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// routedService returns a service of TCP with n backends of weight 1 whose MAC addresses are known.
func routedService(port uint16, scheduler lb.Scheduler, n int) lb.RoutedService {
	s := lb.RoutedService{Service: lb.Service{Name: "web", VIP: netip.MustParseAddr("198.18.0.100"), Port: port,
		Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: scheduler}}
	address := netip.MustParseAddr("198.18.2.1")
	for i := range n {
		s.Backends = append(s.Backends, lb.Backend{Name: fmt.Sprintf("web%02d", i+1), Address: address, Port: port,
			Weight: 1})
		s.Paths = append(s.Paths, lb.Path{MAC: net.HardwareAddr{2, 0, 0, 0, byte(i >> 8), byte(i + 1)}})
		address = address.Next()
	}
	return s
}
