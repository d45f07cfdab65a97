// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
)

// setup is a configuration that a balancer is measured with. Each setup has its own balancer: the balancer's program
// leaves out modes that are not configured.
type setup struct {
	// name is the name of the setup in the results.
	name string
	// mode and scheduler are those of the setup's services, if all services have the same.
	mode      lb.Mode
	scheduler lb.Scheduler
	// captured is the name, in captured, of the filter of a capture that runs during the measurement; "" means no
	// capture.
	captured string
}

var (
	// oneService has one L2DSR service only.
	oneService = setup{name: "one service"}
	// allModes has a service of each mode.
	allModes = setup{name: "all modes"}
	// allSchedulers has an L2DSR service of each scheduler.
	allSchedulers = setup{name: "all schedulers"}
	// newFlows is for new flows of full NAT: its table is empty.
	newFlows = setup{name: "new flows"}
	// pinning and pinned have just got more backends. In pinned, the flows that would have moved are known.
	pinning = setup{name: "pinning"}
	pinned  = setup{name: "pinned"}
)

// singleMode returns the setup with services of one mode, and schedulers that store no flows.
func singleMode(mode lb.Mode) setup { return setup{name: string(mode), mode: mode} }

// remembering returns the setup with one service that stores its flows.
func remembering(mode lb.Mode, scheduler lb.Scheduler) setup {
	return setup{name: string(mode) + " " + string(scheduler), mode: mode, scheduler: scheduler}
}

// Addresses of the measured services.
var (
	client4  = harness.Client4
	client6  = harness.Client6
	web4     = vip4(1)
	web6     = vip6(1)
	dns4     = netip.AddrPortFrom(web4.Addr(), 53)
	foreign4 = vip4(3)
	crossed4 = vip4(4)
	backend4 = netip.MustParseAddr("198.19.1.1")
	backend6 = netip.MustParseAddr("2001:2:0:2::1")
	gateway4 = netip.PrefixFrom(harness.Local4, 24)
	gateway6 = netip.PrefixFrom(harness.Local6, 64)
	pooled4  = netip.MustParseAddr("198.19.2.1")
	pooled6  = netip.MustParseAddr("2001:2:0:3::1")
	clients4 = netip.MustParsePrefix("198.18.0.0/16")
	clients6 = netip.MustParsePrefix("2001:2::/64")
)

const (
	webPort      = 80
	firstPort    = uint16(1024)
	backendCount = 25
	// fewerBackends is the number of backends before the others are added.
	fewerBackends = 13
	// pooledCount is the number of pool addresses: most of their ports stay free when a million flows are known.
	pooledCount = 8
	// minEntries is the minimum size of a flow table.
	minEntries = 1 << 16
)

// vip4 and vip6 return the addresses of the services.
func vip4(n byte) netip.AddrPort { return netip.AddrPortFrom(harness.VIP4(n), webPort) }
func vip6(n byte) netip.AddrPort { return netip.AddrPortFrom(harness.VIP6(n), webPort) }

// vipOf returns the VIP of the service with the given scheduler.
func vipOf(scheduler lb.Scheduler) netip.AddrPort {
	if scheduler == lb.Maglev {
		return web4
	}
	return vip4(16 + byte(slices.Index(lb.Schedulers, scheduler)))
}

// state returns the balancer's state in a setup.
func (s setup) state() lb.State {
	b := &builder{}
	s.captured = ""
	switch s {
	case oneService:
		b.add(lb.L2DSR, web4, lb.TCP, backend4, backendCount)
	case pinning, pinned:
		b.add(lb.L2DSR, web4, lb.TCP, backend4, backendCount)
	case allModes:
		for i, mode := range lb.PacketModes {
			b.add(mode, vip4(byte(i+1)), lb.TCP, backend4, backendCount)
			b.add(mode, vip6(byte(i+1)), lb.TCP, backend6, backendCount)
		}
		b.pool()
	case allSchedulers:
		for _, scheduler := range lb.Schedulers {
			b.schedule(lb.L2DSR, scheduler)
		}
	case newFlows:
		b.add(lb.FullNAT, web4, lb.TCP, backend4, backendCount)
		b.pool()
	default:
		if s.scheduler != "" {
			b.schedule(s.mode, s.scheduler)
		} else {
			b.onlyMode(s.mode)
		}
	}
	return b.State
}

// before returns the balancer's previous state in a setup that has just changed.
func (s setup) before() lb.State {
	b := &builder{}
	b.add(lb.L2DSR, web4, lb.TCP, backend4, fewerBackends)
	return b.State
}

// changed reports whether the balancer has just changed from another state.
func (s setup) changed() bool { return s == pinning || s == pinned }

// builder collects services.
type builder struct{ lb.State }

// add adds a service with Maglev.
func (b *builder) add(mode lb.Mode, vip netip.AddrPort, protocol lb.Protocol, first netip.Addr, backends int) {
	s := lb.Service{VIP: vip.Addr(), Port: vip.Port(), Protocol: protocol, Mode: mode, Scheduler: lb.Maglev}
	if mode == lb.DSCP {
		s.DSCP = 1
	}
	b.Services = append(b.Services, harness.Service(s, first, backends))
}

// schedule adds a service with a scheduler, and with backends of its own: the source of a reply identifies its service.
// The weights differ if the scheduler uses them.
func (b *builder) schedule(mode lb.Mode, scheduler lb.Scheduler) {
	vip := vipOf(scheduler)
	s := lb.Service{VIP: vip.Addr(), Port: vip.Port(), Protocol: lb.TCP, Mode: mode, Scheduler: scheduler}
	words := backend4.As4()
	words[2] = vip.Addr().As4()[3]
	var weights []uint16
	if scheduler == lb.WeightedRoundRobin || scheduler == lb.WeightedLeastConnections {
		weights = []uint16{1, 2, 4}
	}
	b.Services = append(b.Services, harness.Service(s, netip.AddrFrom4(words), backendCount, weights...))
}

func (b *builder) onlyMode(mode lb.Mode) {
	b.add(mode, web4, lb.TCP, backend4, backendCount)
	b.add(mode, web6, lb.TCP, backend6, backendCount)
	switch {
	case mode.Tunnels():
		b.add(mode, crossed4, lb.TCP, backend6, backendCount)
		b.add(mode, dns4, lb.UDP, backend4, backendCount)
	case mode == lb.FullNAT:
		b.pool()
	case mode == lb.L2DSR:
		b.add(mode, dns4, lb.UDP, backend4, backendCount)
	}
	if !slices.Contains(scheduledModes, mode) {
		return
	}
	for _, scheduler := range lb.Schedulers {
		if scheduler != lb.Maglev && !scheduler.Remembers() {
			b.schedule(mode, scheduler)
		}
	}
}

func (b *builder) pool() {
	b.Pool = lb.Pool{
		Addresses: append(harness.Addresses(pooled4, pooledCount), harness.Addresses(pooled6, pooledCount)...),
		FirstPort: firstPort, LastPort: 65535,
	}
}

// room returns the capacity of a setup's balancer, for the maximum number of known flows and the number of packets that
// are sent at once.
func (s setup) room(most, packets uint32) harness.Room {
	room := harness.Room{
		// All known flows of one service.
		Flows: max(most, minEntries),
		// Twice: those that prime makes known at a time, and those that a measurement opens.
		Unproven: max(2*primed, 3*packets),
	}
	if s == singleMode(lb.FullNAT) {
		// The flows of both families.
		room.Flows *= 2
	}
	return room
}

// scheduledModes are the modes in which every scheduler is measured.
var scheduledModes = []lb.Mode{lb.L2DSR, lb.NAT}

// primed is the number of flows that are made known at a time. Flows are unproven until their second packet, and the
// table of unproven flows is smaller. A smaller number would take longer: the kernel waits for an RCU grace period
// before and after each run in XDP.
const primed = 1 << 17
