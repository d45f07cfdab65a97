// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testservice"
)

// The configurations that packets are tested with.

const testTableSize = testservice.TableSize

var testService, addBackends = testservice.New, testservice.AddBackends

var (
	balancerMAC = testservice.BalancerMAC
	routerMAC   = net.HardwareAddr{2, 0, 0, 0, 0, 0xfe}
	vip4        = testservice.VIP4
	vip6        = netip.MustParseAddr("2001:2::100")
	client4     = netip.MustParseAddr("198.18.1.7")
	client6     = netip.MustParseAddr("2001:2::1:7")
	local4      = testservice.Local4
	local6      = testservice.Local6
	pool4       = netip.MustParseAddr("198.18.0.99")
	pool6       = netip.MustParseAddr("2001:2::99")
)

// testState has an L2DSR service of each kind, one without a usable backend,
// and one of whose backends is down.
func testState() lb.State {
	empty := testService(vip4, 81, lb.TCP, lb.Maglev, 2)
	empty.Paths = nil
	partly := testService(vip4, 82, lb.TCP, lb.Maglev, 3)
	partly.Paths[1].MAC = nil
	partly.Backends[2].Weight = 0
	return lb.State{Services: []lb.RoutedService{
		testService(vip4, 80, lb.TCP, lb.Maglev, 5),
		testService(vip4, 53, lb.UDP, lb.Maglev, 5),
		testService(vip6, 80, lb.TCP, lb.Maglev, 5),
		testService(vip6, 53, lb.UDP, lb.Maglev, 5),
		testService(vip4, 8080, lb.TCP, lb.RoundRobin, 3),
		testService(vip4, 5353, lb.UDP, lb.RoundRobin, 3),
		testService(vip6, 8080, lb.TCP, lb.RoundRobin, 3),
		empty,
		partly,
	}}
}

// The ports of the services of allModes. Cross are tunnels to backends of the
// other family; alike is a second service with the backends of full NAT's first.
const (
	portIPIP = 1001 + iota
	portGUE
	portDSCP
	portNAT
	portFullNAT
	portIPIPCross
	portGUECross
	portFullNATAlike
)

// natPortOffset is how far a backend's port is from the service's, where the
// mode rewrites ports.
const natPortOffset = 1000

// allModes is testState and a service for each mode, family and protocol, by one
// scheduler or the other.
func allModes() lb.State {
	state := testState()
	state.Pool = lb.Pool{Addresses: []netip.Addr{pool4, pool4.Prev(), pool6, pool6.Prev()}, FirstPort: 20000,
		LastPort: 23999}
	turn := 0
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			for port := uint16(portIPIP); port <= portFullNATAlike; port++ {
				turn++
				state.Services = append(state.Services,
					modeService(vip, port, protocol, []lb.Scheduler{lb.Maglev, lb.RoundRobin}[turn/2%2]))
			}
		}
	}
	return state
}

// modeService makes the service of allModes that has the port.
func modeService(vip netip.Addr, port uint16, protocol lb.Protocol, scheduler lb.Scheduler) lb.RoutedService {
	s := testService(vip, port, protocol, scheduler, 4)
	six := vip.Is6()
	switch port {
	case portIPIP:
		s.Mode, s.MSS = lb.IPIP, 1340
	case portGUE:
		s.Mode, s.MSS = lb.GUE, 536
	case portDSCP:
		s.Mode, s.DSCP = lb.DSCP, 10
		if six {
			s.DSCP = 46
		}
	case portNAT:
		s.Mode, s.MSS = lb.NAT, 1400
	case portFullNAT, portFullNATAlike:
		s.Mode = lb.FullNAT
	case portIPIPCross:
		s.Mode, six = lb.IPIP, !six
	case portGUECross:
		s.Mode, six = lb.GUE, !six
	}
	switch s.Mode {
	case lb.NAT:
		addBackends(&s, 4, port+natPortOffset, six)
	case lb.FullNAT:
		addBackends(&s, 4, portFullNAT+natPortOffset, six)
	default:
		addBackends(&s, 4, port, six)
	}
	s.Name = fmt.Sprintf("%s-%s", s.Mode, s.Name)
	return s
}
