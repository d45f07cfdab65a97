// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/lb"
)

// setup is a configuration that a balancer is measured with. Each has a
// balancer of its own: what is not configured is not in its program.
type setup string

const (
	// oneService has nothing but one L2DSR service.
	oneService setup = "one service"
	// allModes has a service of each mode.
	allModes setup = "all modes"
	// newFlows is for full NAT's new flows: its table is emptied for each figure.
	newFlows setup = "new flows"
)

// only is the setup with services of one mode.
func only(mode lb.Mode) setup { return setup(mode) }

// setups lists all of them.
func setups() []setup {
	list := []setup{oneService, allModes, newFlows}
	for _, mode := range lb.Modes {
		list = append(list, only(mode))
	}
	return list
}

// Where the measured services are: the range reserved for benchmarks (RFC 2544
// section C.2.2, RFC 5180 section 8). No packet leaves the machine.
var (
	ownMAC    = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	client4   = netip.MustParseAddr("198.18.0.0")
	client6   = netip.MustParseAddr("2001:2::")
	web4      = vip4(1)
	web6      = vip6(1)
	dns4      = netip.AddrPortFrom(web4.Addr(), 53)
	rr4       = vip4(2)
	foreign4  = vip4(3)
	crossed4  = vip4(4)
	backend4  = netip.MustParseAddr("198.19.1.1")
	backend6  = netip.MustParseAddr("2001:2:0:2::1")
	gateway4  = netip.MustParsePrefix("198.19.255.1/24")
	gateway6  = netip.MustParsePrefix("2001:2:0:ff::1/64")
	pooled4   = netip.MustParseAddr("198.19.2.1")
	pooled6   = netip.MustParseAddr("2001:2:0:3::1")
	clients4  = netip.MustParsePrefix("198.18.0.0/16")
	clients6  = netip.MustParsePrefix("2001:2::/64")
	firstPort = uint16(1024)
)

const (
	webPort      = 80
	backendCount = 25
	// pooledCount addresses leave most of their ports free when a million flows
	// are known.
	pooledCount = 8
	// leastEntries is the size of a flow table that need not be large.
	leastEntries = 1 << 16
)

// vip4 and vip6 are the addresses of the services.
func vip4(n byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, 0, n}), webPort)
}

func vip6(n byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 1, 0, 2, 0, 0, 0, 1, 15: n}), webPort)
}

// state is what a balancer forwards with a setup.
func (s setup) state() datapath.State {
	state := datapath.State{Pool: datapath.Pool{
		Addresses: append(run(pooled4, pooledCount), run(pooled6, pooledCount)...),
		FirstPort: firstPort, LastPort: 65535,
	}}
	add := func(mode lb.Mode, vip netip.AddrPort, protocol lb.Protocol, scheduler lb.Scheduler, backends netip.Addr) {
		state.Services = append(state.Services, service(mode, vip, protocol, scheduler, backends))
	}
	switch s {
	case only(lb.L2DSR):
		add(lb.L2DSR, web4, lb.TCP, lb.Maglev, backend4)
		add(lb.L2DSR, dns4, lb.UDP, lb.Maglev, backend4)
		add(lb.L2DSR, web6, lb.TCP, lb.Maglev, backend6)
		add(lb.L2DSR, rr4, lb.TCP, lb.RoundRobin, backend4)
	case oneService:
		add(lb.L2DSR, web4, lb.TCP, lb.Maglev, backend4)
	case allModes:
		for i, mode := range lb.Modes {
			add(mode, vip4(byte(i+1)), lb.TCP, lb.Maglev, backend4)
			add(mode, vip6(byte(i+1)), lb.TCP, lb.Maglev, backend6)
		}
	case newFlows:
		add(lb.FullNAT, web4, lb.TCP, lb.Maglev, backend4)
	default:
		mode := lb.Mode(s)
		add(mode, web4, lb.TCP, lb.Maglev, backend4)
		add(mode, web6, lb.TCP, lb.Maglev, backend6)
		if mode.Tunnels() {
			add(mode, crossed4, lb.TCP, lb.Maglev, backend6)
		}
	}
	if s != only(lb.FullNAT) && s != allModes && s != newFlows {
		state.Pool = datapath.Pool{}
	}
	return state
}

// options are what the balancer of a setup is made with, for so many known
// flows at most, and so many packets that are sent at once.
func (s setup) options(hook lb.Hook, most, packets uint32) datapath.Options {
	options := datapath.Options{
		Hook: hook,
		// Room for the new flows that are measured beside the known ones.
		FlowEntries: max(4*most, leastEntries),
		// Both families' known flows, about half full.
		FullNATFlows: max(2*most, leastEntries),
	}
	if s == newFlows {
		options.FullNATFlows = max(4*packets, leastEntries)
	}
	return options
}

// service is one of 25 backends.
func service(mode lb.Mode, vip netip.AddrPort, protocol lb.Protocol, scheduler lb.Scheduler, first netip.Addr) datapath.Service {
	s := datapath.Service{Service: lb.Service{
		Name: fmt.Sprintf("%s-%s-%s", mode, protocol, vip), VIP: vip.Addr(), Port: vip.Port(),
		Protocol: protocol, Mode: mode, Scheduler: scheduler,
	}}
	if mode == lb.DSCP {
		s.DSCP = 1
	}
	local := gateway4.Addr()
	if first.Is6() {
		local = gateway6.Addr()
	}
	for i, address := range run(first, backendCount) {
		s.Backends = append(s.Backends, lb.Backend{
			Name: fmt.Sprintf("web%02d", i+1), Address: address, Port: vip.Port(), Weight: 1})
		s.Paths = append(s.Paths, datapath.Path{
			MAC: net.HardwareAddr{2, 0, 0, 0, 1, byte(i + 1)}, Source: ownMAC, Local: local})
	}
	return s
}

// run returns n addresses from the first on.
func run(first netip.Addr, n int) []netip.Addr {
	var list []netip.Addr
	for address := first; len(list) < n; address = address.Next() {
		list = append(list, address)
	}
	return list
}
