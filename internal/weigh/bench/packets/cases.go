// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/bench/packets/object"
)

// defaultFlowCounts: one flow, which every cache holds; as many flows as a busy server has; a million.
var defaultFlowCounts = []uint32{1, 1 << 14, 1 << 20}

// flowKind is the state of a case's flows in the balancer.
type flowKind string

const (
	// known flows have been seen before, or the balancer need not have seen them.
	known flowKind = "known"
	// fresh packets each open a new flow.
	fresh flowKind = "new"
	// foreign packets belong to no service.
	foreign flowKind = "foreign"
)

// change is the effect of a change of the backends on a case's flows.
type change string

const (
	// stay: the flow's slot still has its backend.
	stay change = "unmoved"
	// pin: the slot has another backend, and the flow is known.
	pin change = "pinned"
	// move: the slot has another backend, and the flow must be stored.
	move change = "unpinned"
)

// benchCase is a case: a program under a stream of packets.
type benchCase struct {
	// subject is the name of a baseline, or jeoul-MODE-HOOK.
	subject string
	hook    lb.Hook
	// mode is empty for a baseline.
	mode      lb.Mode
	setup     setup
	scheduler lb.Scheduler
	kind      flowKind
	// change is empty if the backends do not change.
	change   change
	protocol lb.Protocol
	flows    uint32
	frame    harness.Frame
	// outer is the family of a tunnel's outer packets.
	outer family
	// compared means that the case compares setups.
	compared bool
	// tag means that frames have a VLAN tag.
	tag bool
	// prime are frames that are sent through all flows before measuring, one after another.
	prime []harness.Frame
	// object is the case of an object's setup, if the subject is not jeoul's.
	object *object.Case
	// request, if set, is sent through all flows, which are known, before measuring. The balancer's translation of it
	// determines the addresses and ports of frame, which is a reply.
	request *harness.Frame
}

// family is an IP version, as results spell it.
type family string

const (
	ipv4 family = "ipv4"
	ipv6 family = "ipv6"
)

// baseline reports whether the case is measured for comparison only.
func (m benchCase) baseline() bool { return m.mode == "" }

// tracked reports whether the balancer stores the flows of the packets.
func (m benchCase) tracked() bool {
	return m.scheduler.Remembers() || m.mode == lb.FullNAT || m.change == pin || m.change == move
}

// createsFlows reports whether the packets use up room in a table.
func (m benchCase) createsFlows() bool { return m.tracked() && m.kind == fresh }

func (m benchCase) family() family {
	if m.frame.IPv6 {
		return ipv6
	}
	return ipv4
}

// reply reports whether the packets come from a backend.
func (m benchCase) reply() bool { return m.frame.ToClient }

func (m benchCase) params() map[string]any {
	p := map[string]any{"hook": string(m.hook), "flows": m.flows}
	if m.object != nil {
		p["packets"], p["protocol"], p["family"] = m.object.Name, m.protocol.String(), string(m.family())
		return p
	}
	if m.baseline() {
		return p
	}
	p["scheduler"] = string(m.scheduler)
	p["packets"] = string(m.kind)
	p["protocol"] = m.protocol.String()
	p["family"] = string(m.family())
	if m.change != "" {
		p["change"] = string(m.change)
	}
	if m.mode.Tunnels() {
		p["outer"] = string(m.outer)
	}
	if m.mode.Translates() {
		p["direction"] = "request"
		if m.reply() {
			p["direction"] = "reply"
		}
	}
	if m.tag {
		p["tag"] = "vlan"
	}
	if m.compared {
		p["configured"] = m.setup.name
	}
	if m.setup.captured != "" {
		p["captured"] = m.setup.captured
	}
	return p
}

// String describes the case for readers, and for Options.Only.
func (m benchCase) String() string {
	words := []string{m.subject}
	params := m.params()
	for _, name := range slices.Sorted(maps.Keys(params)) {
		words = append(words, fmt.Sprintf("%s=%v", name, params[name]))
	}
	return strings.Join(words, " ")
}

// request returns a packet of a stream. The harness replaces the client's address and port.
func request(client netip.Addr, vip netip.AddrPort, protocol lb.Protocol, tcpFlags byte) harness.Frame {
	return harness.NewFrame(netip.AddrPortFrom(client, 0), vip, protocol, tcpFlags)
}

func ack4(vip netip.AddrPort) harness.Frame { return request(client4, vip, lb.TCP, packet.FlagACK) }
func ack6(vip netip.AddrPort) harness.Frame { return request(client6, vip, lb.TCP, packet.FlagACK) }
func syn4(vip netip.AddrPort) harness.Frame { return request(client4, vip, lb.TCP, packet.FlagSYN) }
func syn6(vip netip.AddrPort) harness.Frame { return request(client6, vip, lb.TCP, packet.FlagSYN) }

func reply(backend, client netip.Addr) harness.Frame {
	return harness.NewFrame(netip.AddrPortFrom(backend, webPort), netip.AddrPortFrom(client, 0), lb.TCP,
		packet.FlagACK).Reply()
}

// cases returns the cases of one hook, for each number of flows. The cases of a stream stand next to each other,
// because they are compared, and a shared machine changes its speed within seconds.
func cases(hook lb.Hook, flowCounts []uint32) []benchCase {
	c := &caseList{hook: hook, counts: flowCounts}
	c.baselines()
	c.l2dsr()
	c.schedulers(lb.L2DSR)
	c.transition()
	c.configured()
	c.captured()
	c.tunnels()
	c.rewriting()
	c.schedulers(lb.NAT)
	c.fullNAT()
	return c.list
}

// caseList collects cases.
type caseList struct {
	hook   lb.Hook
	counts []uint32
	list   []benchCase
}

// add adds a case for each number of flows, and sets the fields that all cases have in common.
func (c *caseList) add(m benchCase, counts ...uint32) {
	m.hook = c.hook
	if m.mode != "" {
		m.subject = fmt.Sprintf("jeoul-%s-%s", m.mode, c.hook)
	}
	if m.setup == (setup{}) && m.mode != "" {
		m.setup = singleMode(m.mode)
	}
	if m.protocol == 0 {
		m.protocol = lb.TCP
	}
	for _, m.flows = range counts {
		c.list = append(c.list, m)
	}
}

// known adds a case with packets of known flows, which need no entry in a table.
func (c *caseList) known(m benchCase) {
	m.scheduler, m.kind = lb.Maglev, known
	c.add(m, c.counts...)
}

func (c *caseList) fewest() uint32 { return c.counts[0] }
func (c *caseList) most() uint32   { return c.counts[len(c.counts)-1] }

// pairs adds cases with packets of known flows, each next to one with new flows, which the balancer need not store. The
// two are compared.
func (c *caseList) pairs(m benchCase, open harness.Frame, counts []uint32) {
	for _, count := range counts {
		m.kind = known
		c.add(m, count)
		if slices.Contains(c.fewestAndMost(), count) {
			opens := m
			opens.kind, opens.frame = fresh, open
			c.add(opens, count)
		}
	}
}

// fewestAndMost returns the lowest and the highest number of flows.
func (c *caseList) fewestAndMost() []uint32 { return slices.Compact([]uint32{c.fewest(), c.most()}) }

func (c *caseList) baselines() {
	c.add(benchCase{subject: harness.Empty, frame: ack4(web4)}, c.counts...)
	c.add(benchCase{subject: harness.MACSwap, frame: ack4(web4)}, c.counts...)
	c.add(benchCase{subject: harness.Adjust, frame: ack4(web4)}, c.counts...)
	c.add(benchCase{subject: harness.Line, frame: ack4(web4)}, c.counts...)
}

func (c *caseList) l2dsr() {
	c.pairs(benchCase{mode: lb.L2DSR, scheduler: lb.Maglev, frame: ack4(web4)}, syn4(web4), c.counts)
	c.known(benchCase{mode: lb.L2DSR, frame: ack6(web6)})
	c.known(benchCase{mode: lb.L2DSR, frame: ack4(web4).Tagged(c.hook), tag: true})
	maglev := benchCase{mode: lb.L2DSR, scheduler: lb.Maglev}
	udp, other := maglev, maglev
	udp.kind, udp.protocol, udp.frame = known, lb.UDP, request(client4, dns4, lb.UDP, 0)
	c.add(udp, c.fewestAndMost()...)
	other.kind, other.frame = foreign, ack4(foreign4)
	c.add(other, c.fewestAndMost()...)
}

// schedulers adds cases of known and new flows with each scheduler but Maglev, which is measured with the mode.
func (c *caseList) schedulers(mode lb.Mode) {
	for _, scheduler := range lb.Schedulers {
		m := benchCase{mode: mode, scheduler: scheduler, kind: known, frame: ack4(vipOf(scheduler))}
		open := syn4(vipOf(scheduler))
		switch {
		case scheduler == lb.Maglev:
		case scheduler.Remembers():
			c.remembered(m)
		default:
			c.pairs(m, open, c.fewestAndMost())
		}
	}
}

// remembered adds cases with packets of known flows that the balancer stores, and of new flows.
func (c *caseList) remembered(m benchCase) {
	open := syn4(vipOf(m.scheduler))
	m.setup = remembering(m.mode, m.scheduler)
	m.prime = []harness.Frame{open, m.frame}
	c.add(m, c.fewestAndMost()...)
	// The cost of a new flow does not depend on the other flows.
	m.kind, m.prime, m.frame = fresh, nil, open
	c.add(m, c.most())
}

// transition adds cases with packets just after backends were added.
func (c *caseList) transition() {
	m := benchCase{mode: lb.L2DSR, scheduler: lb.Maglev, kind: known, frame: ack4(web4), setup: pinned, change: stay}
	c.add(m, c.fewestAndMost()...)
	m.change = pin
	// The first packet stores the flow, the second proves it.
	m.prime = []harness.Frame{m.frame, m.frame}
	c.add(m, c.fewestAndMost()...)
	c.add(benchCase{mode: lb.L2DSR, scheduler: lb.Maglev, kind: fresh, frame: ack4(web4), setup: pinning, change: move},
		c.most())
}

// configured adds cases with the same packets under different configurations: further services must cost them nothing.
func (c *caseList) configured() {
	for _, s := range []setup{oneService, allModes, allSchedulers} {
		c.add(benchCase{mode: lb.L2DSR, scheduler: lb.Maglev, kind: known, setup: s, compared: true, frame: ack4(web4)},
			c.fewestAndMost()...)
	}
}

// captured adds cases with the same packets while others are captured: requests of l2dsr beside those of one service,
// and both directions of nat.
func (c *caseList) captured() {
	for _, name := range slices.Sorted(maps.Keys(captured)) {
		one, nat := oneService, singleMode(lb.NAT)
		one.captured, nat.captured = name, name
		c.add(benchCase{mode: lb.L2DSR, scheduler: lb.Maglev, kind: known, setup: one, compared: true,
			frame: ack4(web4)}, c.fewest())
		c.add(benchCase{mode: lb.NAT, scheduler: lb.Maglev, kind: known, setup: nat, frame: ack4(web4)}, c.fewest())
		c.add(benchCase{mode: lb.NAT, scheduler: lb.Maglev, kind: known, setup: nat, frame: reply(backend4, client4)},
			c.fewest())
	}
}

func (c *caseList) tunnels() {
	for _, mode := range []lb.Mode{lb.IPIP, lb.GUE} {
		c.known(benchCase{mode: mode, outer: ipv4, frame: ack4(web4)})
		c.known(benchCase{mode: mode, outer: ipv6, frame: ack6(web6)})
		c.add(benchCase{mode: mode, scheduler: lb.Maglev, kind: known, outer: ipv4, protocol: lb.UDP,
			frame: request(client4, dns4, lb.UDP, 0)}, c.fewestAndMost()...)
		c.remembered(benchCase{mode: mode, scheduler: lb.RoundRobin, kind: known, outer: ipv4,
			frame: ack4(vipOf(lb.RoundRobin))})
	}
	c.known(benchCase{mode: lb.IPIP, outer: ipv6, frame: ack4(crossed4)})
}

func (c *caseList) rewriting() {
	c.known(benchCase{mode: lb.DSCP, frame: ack4(web4)})
	c.known(benchCase{mode: lb.DSCP, frame: ack6(web6)})
	c.pairs(benchCase{mode: lb.NAT, scheduler: lb.Maglev, frame: ack4(web4)}, syn4(web4), c.counts)
	c.known(benchCase{mode: lb.NAT, frame: ack6(web6)})
	c.known(benchCase{mode: lb.NAT, frame: reply(backend4, client4)})
	c.known(benchCase{mode: lb.NAT, frame: reply(backend6, client6)})
}

// fullNAT adds the cases of full NAT. It leaves out a million flows of IPv6: they would fill a table of the same size
// again, and show nothing new.
func (c *caseList) fullNAT() {
	open4, open6 := syn4(web4), syn6(web6)
	m := benchCase{mode: lb.FullNAT, scheduler: lb.Maglev, kind: known, prime: []harness.Frame{open4, ack4(web4)},
		frame: ack4(web4)}
	c.add(m, c.counts...)
	back := m
	back.prime, back.request, back.frame = nil, &m.frame, reply(backend4, pooled4)
	c.add(back, c.counts...)
	six := m
	six.prime, six.frame = []harness.Frame{open6, ack6(web6)}, ack6(web6)
	few := c.counts[:max(1, len(c.counts)-1)]
	c.add(six, few...)
	back = six
	back.prime, back.request, back.frame = nil, &six.frame, reply(backend6, pooled6)
	c.add(back, few...)
	c.add(benchCase{mode: lb.FullNAT, scheduler: lb.Maglev, kind: fresh, setup: newFlows, frame: open4}, c.most())
}

// Options set how much is measured.
type Options struct {
	// Repeats is the number of figures for each case, and Rounds the number of measurements for each figure. The
	// fastest measurement counts, because other programs on a machine, and on the processor that it shares, can only
	// slow a packet down. The cases of a round follow each other.
	Repeats, Rounds int
	// Packets is the number of packets for each measurement.
	Packets uint32
	// Hooks are the measured hooks: XDP, TC or both.
	Hooks []lb.Hook
	// Only, if set, selects the cases whose lines in the output of --list it matches; the empty program is always
	// measured.
	Only *regexp.Regexp
	// Object, if set, is an object that is measured beside jeoul, in the hook of its setup. Only that hook is measured
	// then.
	Object *Object
	// Progress is called after each round, if set; round and rounds count the rounds of all repeats.
	Progress func(round, rounds int)
	// flowCounts are powers of two, ascending; nil means defaultFlowCounts.
	flowCounts []uint32
}

// Object is a subject other than jeoul: an eBPF object, and its setup.
type Object struct {
	File  string
	Setup *object.Setup
}
