// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/lb"
)

// defaultFlowCounts: one flow, which every cache holds; as many as a busy
// server has; a million.
var defaultFlowCounts = []uint32{1, 1 << 14, 1 << 20}

// flowKind says what the packets of a case are to the balancer.
type flowKind string

const (
	// known flows have been seen, or need not be.
	known flowKind = "known"
	// fresh packets each open a flow that was never seen.
	fresh flowKind = "new"
	// foreign packets are for no service.
	foreign flowKind = "foreign"
)

// measured is a figure to be measured: a program under a stream of packets.
type measured struct {
	// subject is empty, macswap or jeoul-MODE-HOOK.
	subject   string
	hook      lb.Hook
	scheduler lb.Scheduler
	kind      flowKind
	protocol  lb.Protocol
	ipv6      bool
	flows     uint32
	frame     frame
	// prime, where set, is sent once through all flows before measuring.
	prime *frame
}

// baseline says whether the case is measured for comparison only.
func (m measured) baseline() bool { return m.scheduler == "" }

func (m measured) family() string {
	if m.ipv6 {
		return "ipv6"
	}
	return "ipv4"
}

func (m measured) params() map[string]any {
	p := map[string]any{"hook": string(m.hook), "flows": m.flows}
	if !m.baseline() {
		p["scheduler"] = string(m.scheduler)
		p["packets"] = string(m.kind)
		p["protocol"] = m.protocol.String()
		p["family"] = m.family()
	}
	return p
}

func (m measured) String() string {
	return fmt.Sprintf("%s %v", m.subject, m.params())
}

// Where the measured services are: the range reserved for benchmarks (RFC 2544
// section C.2.2, RFC 5180 section 8). No packet leaves the machine.
var (
	ownMAC   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	client4  = netip.MustParseAddr("198.18.0.0")
	client6  = netip.MustParseAddr("2001:2::")
	maglev4  = netip.MustParseAddr("198.19.0.1")
	maglev6  = netip.MustParseAddr("2001:2:0:1::1")
	rr4      = netip.MustParseAddr("198.19.0.2")
	foreign4 = netip.MustParseAddr("198.19.0.3")
)

const (
	webPort      = 80
	dnsPort      = 53
	backendCount = 25
)

// state is what the balancer forwards while it is measured.
func state() datapath.State {
	return datapath.State{Services: []datapath.Service{
		service(maglev4, webPort, lb.TCP, lb.Maglev),
		service(maglev4, dnsPort, lb.UDP, lb.Maglev),
		service(maglev6, webPort, lb.TCP, lb.Maglev),
		service(rr4, webPort, lb.TCP, lb.RoundRobin),
	}}
}

func service(vip netip.Addr, port uint16, protocol lb.Protocol, scheduler lb.Scheduler) datapath.Service {
	s := datapath.Service{Service: lb.Service{
		Name: fmt.Sprintf("%s-%s-%d", scheduler, protocol, port), VIP: vip, Port: port,
		Protocol: protocol, Mode: lb.L2DSR, Scheduler: scheduler,
	}}
	first := netip.MustParseAddr("198.19.1.1")
	if vip.Is6() {
		first = netip.MustParseAddr("2001:2:0:2::1")
	}
	for i, address := 0, first; i < backendCount; i, address = i+1, address.Next() {
		s.Backends = append(s.Backends, lb.Backend{
			Name: fmt.Sprintf("web%02d", i+1), Address: address, Port: port, Weight: 1})
		s.Paths = append(s.Paths, datapath.Path{MAC: net.HardwareAddr{2, 0, 0, 0, 1, byte(i + 1)}, Source: ownMAC})
	}
	return s
}

// cases lists what is measured in one hook, for each number of flows.
func cases(hook lb.Hook, flowCounts []uint32) []measured {
	var list []measured
	jeoul := "jeoul-" + string(lb.L2DSR) + "-" + string(hook)
	ack4 := newFrame(ownMAC, client4, maglev4, lb.TCP, webPort, tcpACK)
	for _, flows := range flowCounts {
		add := func(m measured) {
			m.hook, m.flows = hook, flows
			list = append(list, m)
		}
		add(measured{subject: subjectEmpty, frame: ack4})
		add(measured{subject: subjectMACSwap, frame: ack4})
		maglev := measured{subject: jeoul, scheduler: lb.Maglev, kind: known, protocol: lb.TCP, frame: ack4}
		add(maglev)
		syn := maglev
		syn.kind, syn.frame = fresh, newFrame(ownMAC, client4, maglev4, lb.TCP, webPort, tcpSYN)
		add(syn)
		udp := maglev
		udp.protocol, udp.frame = lb.UDP, newFrame(ownMAC, client4, maglev4, lb.UDP, dnsPort, 0)
		add(udp)
		six := maglev
		six.ipv6, six.frame = true, newFrame(ownMAC, client6, maglev6, lb.TCP, webPort, tcpACK)
		add(six)
		other := maglev
		other.kind, other.frame = foreign, newFrame(ownMAC, client4, foreign4, lb.TCP, webPort, tcpACK)
		add(other)
		open := newFrame(ownMAC, client4, rr4, lb.TCP, webPort, tcpSYN)
		add(measured{subject: jeoul, scheduler: lb.RoundRobin, kind: known, protocol: lb.TCP, prime: &open,
			frame: newFrame(ownMAC, client4, rr4, lb.TCP, webPort, tcpACK)})
		if flows == flowCounts[len(flowCounts)-1] {
			add(measured{subject: jeoul, scheduler: lb.RoundRobin, kind: fresh, protocol: lb.TCP, frame: open})
		}
	}
	return byStream(list)
}

// byStream puts the cases that differ only in their number of flows next to each
// other: they are compared, and a shared machine changes its speed in seconds.
func byStream(list []measured) []measured {
	order := map[string]int{}
	stream := func(m measured) string {
		return fmt.Sprint(m.subject, m.scheduler, m.kind, m.protocol, m.ipv6)
	}
	for _, m := range list {
		if _, seen := order[stream(m)]; !seen {
			order[stream(m)] = len(order)
		}
	}
	slices.SortStableFunc(list, func(a, b measured) int { return order[stream(a)] - order[stream(b)] })
	return list
}
