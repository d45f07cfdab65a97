// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"math"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/sizing"
)

// loadClass is the load of the suites that is closest to the answers.
type loadClass struct {
	// name is the load's name in the suites, against the subject that the mode is compared with.
	name, against string
	// bytes is the length of a reply.
	bytes float64
}

// bulkBytes is the size from which the bytes of a transfer, and not its request, determine the cost.
const bulkBytes = 1 << 20

// load returns the load that is closest to the answers.
func (d *decision) load() loadClass { return loadOf(d.Answers) }

func loadOf(a Answers) loadClass {
	const file = 5120 // the web suites' file
	short := a.Lifetime == Short
	switch {
	case a.Speaks.datagrams():
		return loadClass{"full", "iptables-nth", 100}
	case a.Speaks == HTTPS && (short || a.Layer7):
		return loadClass{"https", "haproxy-http", file}
	case a.Speaks == HTTPS:
		return loadClass{"https-kept", "haproxy-http", file}
	case a.Speaks == HTTP && short:
		return loadClass{"ab", "haproxy-http", file}
	case a.Speaks == HTTP:
		return loadClass{"wrk", "haproxy-http", file}
	case a.Bytes >= bulkBytes:
		return loadClass{"bulk", "haproxy-tcp", a.Bytes}
	case short:
		return loadClass{"crr", "haproxy-tcp", 1}
	}
	return loadClass{"rr", "haproxy-tcp", 1}
}

// subjects are the subjects that represent the mode, the most similar first.
func (d *decision) subjects() []string {
	if d.Mode == lb.ModeProxy {
		return []string{"jeoul-proxy", loadOf(d.Answers).against}
	}
	return []string{fmt.Sprintf("jeoul-%s-%s", d.Mode, lb.HookTC), fmt.Sprintf("jeoul-%s-%s", d.Mode, lb.HookXDP)}
}

// measured returns the point of the mode under a load, or nil: with the advised scheduler, if there is one.
func (d *decision) measured(load string) *evidencePoint {
	return ownFirst(d.evidence, func(e *Evidence) *evidencePoint { return d.measuredIn(e, load) })
}

func (d *decision) measuredIn(e *Evidence, load string) *evidencePoint {
	var any *evidencePoint
	for _, subject := range d.subjects() {
		at := e.most(load, subject, d.Scheduler)
		if at == nil {
			continue
		}
		if d.Mode == lb.ModeProxy || at.point.Params["scheduler"] == string(d.Scheduler) {
			return at
		}
		if any == nil {
			any = at
		}
	}
	return any
}

// The sizes of packets and headers, in bytes, by which a load's packets are counted.
const (
	segmentBytes  = 1448 // of a full TCP segment with timestamps, on Ethernet
	overheadBytes = 90   // Ethernet, IPv4, TCP with timestamps, and the gap between frames
	requestBytes  = 200  // a request with its headers
	replyHeaders  = 250
)

// perConnection is the number of requests that a long connection is assumed to carry, the value of nginx's
// keepalive_requests.
const perConnection = 1000

// traffic are the packets of a request.
type traffic struct {
	// requestPackets is the number of packets from clients to the balancer, replyPackets the number from backends,
	// first the number that begin a flow.
	requestPackets, replyPackets, first float64
}

// trafficOf counts the packets of a request: every second segment is acknowledged (RFC 1122, section 4.2.3.2).
func trafficOf(a Answers) traffic {
	segments := math.Max(math.Ceil((a.Bytes+replyHeaders)/segmentBytes), 1)
	if a.Speaks.datagrams() {
		t := traffic{requestPackets: 1, replyPackets: segments, first: 1}
		if a.Lifetime == Long {
			t.first = 1.0 / perConnection
		}
		return t
	}
	t := traffic{requestPackets: 1 + math.Ceil(segments/2), replyPackets: segments, first: 1.0 / perConnection}
	// SYN, ACK, FIN and the ACK of the other FIN; SYN-ACK, FIN with an ACK.
	setup := traffic{requestPackets: 4, replyPackets: 2}
	if a.Speaks == HTTPS {
		setup.requestPackets, setup.replyPackets = setup.requestPackets+2, setup.replyPackets+3
	}
	if a.Lifetime == Short {
		t.first = 1
	}
	t.requestPackets += setup.requestPackets * t.first
	t.replyPackets += setup.replyPackets * t.first
	return t
}

// size returns the machines that the load needs, or nil if the evidence has no cost of a request.
func (d *decision) size() (*sizing.Need, error) {
	a, t := d.Answers, trafficOf(d.Answers)
	packets := t.requestPackets
	bits := a.Requests * 8 * (t.requestPackets*overheadBytes + requestBytes)
	if d.Mode == lb.NAT || d.Mode == lb.FullNAT || d.Mode == lb.ModeProxy {
		packets += t.replyPackets
		// Bits from backends go out to clients, on the other half of the link.
		bits = math.Max(bits, a.Requests*8*(t.replyPackets*overheadBytes+a.Bytes+replyHeaders))
	}
	ns, known := d.cost(t)
	if !known {
		return nil, nil
	}
	machine := sizing.Machine{Cores: a.Cores, Usage: a.Usage, LinkBits: a.Link, BesideNs: ns / packets}
	if a.Open > 0 && d.Mode != lb.ModeProxy && (d.Scheduler.Remembers() || d.Mode == lb.FullNAT) {
		machine.FlowLimit = lb.DefaultFlowLimit
	}
	need, err := sizing.NeedOf(sizing.Load{PacketsPerSecond: a.Requests * packets,
		NewPerSecond: a.Requests * t.first, BitsPerSecond: bits, Flows: a.Open}, machine, 1)
	if err != nil {
		return nil, fmt.Errorf("sizing: %w", err)
	}
	return &need, nil
}

// cost returns the number of nanoseconds of a core that a request takes, and states its grounds.
func (d *decision) cost(t traffic) (float64, bool) {
	like := d.load()
	perByte, bytes := d.perByte()
	if like.name == "bulk" && bytes != nil {
		d.say("balancers", "", []*Figure{bytes}, "a transfer of %s bytes takes %.3g ms of a core",
			number(d.Answers.Bytes), d.Answers.Bytes*perByte/1e6)
		return d.Answers.Bytes * perByte, true
	}
	at := d.measured(like.name)
	if at == nil {
		return d.packetCosts(t)
	}
	if _, ok := at.point.Metrics[results.BalancerCPUUsPerRequest]; !ok {
		return d.packetCosts(t)
	}
	figure := at.figure(results.BalancerCPUUsPerRequest)
	ns := figure.Median * 1e3
	figures := []*Figure{&figure}
	if more := d.Answers.Bytes - like.bytes; more > 0 && bytes != nil {
		ns += more * perByte
		figures = append(figures, bytes)
	}
	d.say("balancers", "", figures, "a request takes %s µs of a core of the balancer, its kernel included",
		number(ns/1e3))
	return ns, true
}

// perByte returns the CPU time of a byte, in nanoseconds, from the bulk transfers of the evidence.
func (d *decision) perByte() (float64, *Figure) {
	subjects := d.subjects()
	if d.Mode == lb.ModeProxy {
		subjects = append(subjects, "haproxy-tcp")
	}
	at := ownFirst(d.evidence, func(e *Evidence) *evidencePoint {
		for _, subject := range subjects {
			if at := e.most("bulk", subject, d.Scheduler); at != nil {
				return at
			}
		}
		return nil
	})
	if at == nil {
		return 0, nil
	}
	figure := at.figure(results.BalancerCPUMsPerGigabyte)
	return figure.Median * 1e6 / 1e9, &figure
}

// packetCosts returns the cost of a request from the cost of its packets, where there is no run of the mode under the
// load.
func (d *decision) packetCosts(t traffic) (float64, bool) {
	known := d.evidence.packetCost(d.Mode, d.Scheduler, "known", "request")
	first := d.evidence.packetCost(d.Mode, d.Scheduler, "new", "request")
	if known == nil || first == nil {
		return 0, false
	}
	figures := []*Figure{known, first}
	ns := (t.requestPackets-t.first)*(known.Median+sizing.UsualBesideNs) + t.first*(first.Median+sizing.UsualBesideNs)
	if d.Mode.Translates() {
		back := d.evidence.packetCost(d.Mode, d.Scheduler, "known", "reply")
		if back == nil {
			return 0, false
		}
		figures = append(figures, back)
		ns += t.replyPackets * (back.Median + sizing.UsualBesideNs)
	}
	figures = slices.DeleteFunc(figures, func(f *Figure) bool { return f == nil })
	d.say("balancers", fmt.Sprintf("driver and kernel add %d ns to a packet", sizing.UsualBesideNs), figures,
		"no run of mode %s under %s is in the evidence; by its packets (%.3g there, %.3g back) a request takes %s µs of a core",
		d.Mode, d.load().name, t.requestPackets, t.replyPackets, number(ns/1e3))
	return ns, true
}
