// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"strings"
	"time"
)

// Attachment is the hook and driver mode really in use on an interface.
type Attachment struct {
	Interface string `json:"interface"`
	Hook      Hook   `json:"hook"`
	// Generic says that XDP runs after the driver made a socket buffer.
	Generic bool   `json:"generic"`
	Driver  string `json:"driver"`
	// Reason says why this hook, where the configuration left room.
	Reason string `json:"reason"`
	// Warning names packets that this attachment may lose; empty if none are known.
	Warning string `json:"warning,omitempty"`
}

// String returns "xdp (native)", "xdp (generic)" or "tc".
func (a Attachment) String() string {
	switch {
	case a.Hook != HookXDP:
		return string(a.Hook)
	case a.Generic:
		return "xdp (generic)"
	}
	return "xdp (native)"
}

// Counters are the data plane's counters since it was opened.
type Counters struct {
	// Outcomes lists every outcome, those of no packet too. Each packet is in
	// exactly one.
	Outcomes []OutcomeCount
	Backends map[BackendKey]BackendCount
	// Flows are the numbers of remembered flows.
	Flows    FlowCounts
	Services map[ServiceKey]ServiceCount
	// Local has the counts of this host's own sockets; nil where they get no backends.
	Local *LocalCounts
}

// LocalCounts are the counts of a control group's sockets that were opened to a VIP.
type LocalCounts struct {
	// Cgroup is the directory of the control group.
	Cgroup string
	// Sockets is the number of sockets that have a backend now.
	Sockets uint64
	// Warning names the kernel features that some of them lack; empty: none.
	Warning string
	// Events lists all that is counted, those that never were too.
	Events []EventCount
}

// EventCount is how often something happened to a socket.
type EventCount struct {
	Name, Help string
	Count      uint64
}

// OutcomeCount is how many packets ended in one way.
type OutcomeCount struct {
	Name, Help string
	Packets    uint64
}

// BackendCount has the counters of a backend.
type BackendCount struct {
	// Packets as on the wire: the segments of a GSO packet count one each.
	Packets uint64
	// Bytes of IP packets, without the Ethernet frame.
	Bytes uint64
	// Connections are new flows where flows are tracked; otherwise SYNs that
	// were sent on, retransmitted ones included.
	Connections uint64
	// ReturnedPackets and ReturnedBytes count replies, where the mode brings these through the balancer.
	ReturnedPackets, ReturnedBytes uint64
	// Answered are the SYNs that it has answered by SYN and ACK, Refused those by RST, and
	// Unreachable the ICMP errors "destination unreachable" of its own, where the mode brings them
	// through the balancer. Repeated ones are among them.
	Answered, Refused, Unreachable uint64
	// Active is how many remembered flows that have not ended it has now, where its
	// service tracks flows.
	Active uint32
	// Flows is how many entries name it, those that have ended too, as of the last
	// walk over the tables, some seconds ago.
	Flows uint64
	// PortsHeld is how many ports of full NAT's pool its flows keep, as of that walk: those
	// of proven flows that are not over. Others give theirs up to a new flow.
	PortsHeld uint32
}

// Plus returns the sum of both counts. Gauges, such as Active, have no sum, and stay those of c.
func (c BackendCount) Plus(o BackendCount) BackendCount {
	c.Packets += o.Packets
	c.Bytes += o.Bytes
	c.Connections += o.Connections
	c.ReturnedPackets += o.ReturnedPackets
	c.ReturnedBytes += o.ReturnedBytes
	c.Answered += o.Answered
	c.Refused += o.Refused
	c.Unreachable += o.Unreachable
	return c
}

// Minus likewise returns the difference of c and o.
func (c BackendCount) Minus(o BackendCount) BackendCount {
	c.Packets -= o.Packets
	c.Bytes -= o.Bytes
	c.Connections -= o.Connections
	c.ReturnedPackets -= o.ReturnedPackets
	c.ReturnedBytes -= o.ReturnedBytes
	c.Answered -= o.Answered
	c.Refused -= o.Refused
	c.Unreachable -= o.Unreachable
	return c
}

// FlowCounts is how many flows are remembered, as of the last walk over their tables,
// some seconds ago, and for how many the tables are made. So many find room for certain
// (but for one in 100,000); under a flood up to 1.6 times as many do.
type FlowCounts struct {
	Proven, Unproven           uint64
	ProvenLimit, UnprovenLimit uint64
	// Bytes is the kernel memory of their tables, whatever is in them.
	Bytes uint64
}

// ServiceCount has the gauges of a service.
type ServiceCount struct {
	// Active is how many remembered flows have not ended, where it tracks them.
	Active uint32
	// Flows is how many entries are its own, as of the last walk.
	Flows uint64
	// Hairpins is how many of the active are of near clients; see Hairpin.
	Hairpins uint32
	// TableDigest is equal on two balancers exactly when they send new flows of the service to the same backends;
	// 0 where it is not known, as in mode proxy.
	TableDigest uint64
	// Transition is nil where the service's tables are at rest.
	Transition *TransitionProgress
}

// TransitionProgress is a change of a service's tables that is not over: flows of slots that
// have changed hands are kept where they are.
type TransitionProgress struct {
	// Since is when it began. Until is when flows that are not remembered are no longer
	// sent where they went before; then the transition waits for the flows that are remembered.
	Since, Until time.Time
	// MovedSlots of all Slots lead, or have led since, to another backend than before:
	// their flows are looked up. Without a backend all of them do, of the last table.
	MovedSlots, Slots int
	// Base: Until has not come yet.
	Base bool
}

// MemoryPlan is the kernel memory that a configuration takes, in bytes. It is taken when the configuration is applied:
// none is taken or given back as flows come and go.
type MemoryPlan struct {
	// ProvenLimit and UnprovenLimit are how many flows can be remembered.
	ProvenLimit, UnprovenLimit uint32
	// Proven and Unproven are for the tables of flows, Returns for the one that finds
	// full NAT's by their replies, if there are any.
	Proven, Unproven, Returns uint64
	// Configuration is for services, their tables and backends, with room for changes.
	Configuration uint64
	// Counters is for the counters of services and backends, RouteCache for the routes of replies, if there are any,
	// and Fragments for the datagrams that come in pieces.
	Counters, RouteCache, Fragments uint64
	// Checks is for health checks by the VIP, if there are any: the answers that they may have, and
	// the directory of the backends that can be asked. The rows of those that are asked come as they are.
	Checks uint64
}

// Total is all of it.
func (p MemoryPlan) Total() uint64 {
	return p.Proven + p.Unproven + p.Returns + p.Configuration + p.Counters + p.RouteCache + p.Fragments + p.Checks
}

// String says it to a person, on one line.
func (p MemoryPlan) String() string {
	return fmt.Sprintf("%s of kernel memory: %s", Mebibytes(p.Total()), p.Parts())
}

// Parts lists the parts of the memory, for a person.
func (p MemoryPlan) Parts() string {
	var parts []string
	for _, part := range []struct {
		name  string
		bytes uint64
	}{
		{fmt.Sprintf("%d proven flows", p.ProvenLimit), p.Proven},
		{fmt.Sprintf("%d unproven flows", p.UnprovenLimit), p.Unproven},
		{"full NAT's replies", p.Returns},
		{"configuration", p.Configuration}, {"counters", p.Counters}, {"routes of replies", p.RouteCache},
		{"fragments", p.Fragments},
		{"health checks", p.Checks},
	} {
		if part.bytes > 0 {
			parts = append(parts, part.name+" "+Mebibytes(part.bytes))
		}
	}
	return strings.Join(parts, ", ")
}

// Mebibytes writes an amount of bytes with one digit after the point.
func Mebibytes(bytes uint64) string {
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
