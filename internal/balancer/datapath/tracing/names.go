// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// Names has the names for the numbers of a generation's records.
type Names struct {
	hook     lb.Hook
	outcomes []string
	ports    []attach.Port
	// services by id, and backends by index.
	services map[uint32]*lb.RoutedService
	backends map[uint32]member
	// slots are the sizes of the services' tables, by id.
	slots map[uint32]int
}

// member is a backend of a service, and the generation of its index.
type member struct {
	service    *lb.RoutedService
	at         int
	generation uint16
}

// traceNone is TRACE_NONE: no number.
const traceNone = 0xffffffff

// NewNames returns the names for the configuration in a register, for programs at the hook of the ports.
func NewNames(hook lb.Hook, ports []attach.Port, r *generation.Register) *Names {
	w := &Names{hook: hook, ports: ports, slots: map[uint32]int{}, services: map[uint32]*lb.RoutedService{},
		backends: map[uint32]member{}}
	// An error would have occurred before, when the counters were created.
	w.outcomes, _ = sharedmaps.OutcomeNames()
	for _, record := range r.Records {
		w.services[record.ID], w.slots[record.ID] = &record.Service, len(record.View.Table.Slots)
		for at, place := range record.Places {
			w.backends[place.Index] = member{&record.Service, at, place.Generation}
		}
	}
	return w
}

// Packet translates a record.
func (w *Names) Packet(r *traced.XdpTraceRecord) *trace.Packet {
	p := &trace.Packet{
		Hook:      w.hook,
		Interface: w.port(r.Interface),
		Came:      cameOf(r),
		Outcome:   fmt.Sprintf("outcome-%d", r.Outcome),
		Help:      sharedmaps.OutcomeHelp[objects.XDPOutcome(r.Outcome)],
		Reasons:   reasonsOf(r.Reason),
	}
	if int(r.Outcome) < len(w.outcomes) {
		p.Outcome = w.outcomes[r.Outcome]
	}
	// A dropped packet does not leave.
	if !strings.HasPrefix(p.Outcome, "dropped_") {
		p.Leaves = trace.Describe(r.Head[:min(r.HeadLength, uint32(len(r.Head)))])
	}
	if service := w.services[r.Service]; service != nil {
		p.Service = &trace.Service{Name: service.Name, VIP: service.VIP, Port: service.Port, Protocol: service.Protocol,
			Mode: service.Mode, Scheduler: service.Scheduler, BySource: service.BySource()}
		if r.Slot != traceNone {
			p.Slot, p.Slots = &r.Slot, w.slots[r.Service]
		}
	}
	w.addBackend(p, r)
	return p
}

// addBackend adds the backend, unless its index has another owner by now.
func (w *Names) addBackend(p *trace.Packet, r *traced.XdpTraceRecord) {
	m, ok := w.backends[r.Backend]
	if !ok || uint32(m.generation) != uint32(r.BackendGeneration) {
		return
	}
	backend := m.service.Backends[m.at]
	p.Backend = &trace.Backend{Name: backend.Name, Address: backend.Address, Port: backend.Port}
	if p.Service == nil {
		// A reply's service is that of its backend.
		s := m.service
		p.Service = &trace.Service{Name: s.Name, VIP: s.VIP, Port: s.Port, Protocol: s.Protocol, Mode: s.Mode,
			Scheduler: s.Scheduler, BySource: s.BySource()}
	}
	if p.Has(trace.Reply) || p.Has(trace.FromBackend) || !m.service.Up(m.at) {
		return
	}
	path := m.service.Paths[m.at]
	p.Path = &trace.Path{NextHop: path.MAC.String(), Source: path.Source.String(), MTU: path.LargestPacket()}
	if path.Interface != 0 {
		p.Path.Interface = w.port(uint32(path.Interface))
	}
}

// port returns the name of an interface; "" for a detached data plane.
func (w *Names) port(index uint32) string {
	for _, p := range w.ports {
		if uint32(p.Index) == index {
			return p.Name
		}
	}
	if nic, err := net.InterfaceByIndex(int(index)); err == nil {
		return nic.Name
	}
	return fmt.Sprintf("interface-%d", index)
}

// cameOf returns the incoming packet, nil if it could not be parsed.
func cameOf(r *traced.XdpTraceRecord) *trace.Flow {
	p := &r.Received
	if p.Family == 0 {
		return nil
	}
	return &trace.Flow{
		Source: mapmem.ToAddress(p.Source, p.Family), SourcePort: mapmem.NetworkOrder(p.SourcePort),
		Destination: mapmem.ToAddress(p.Destination, p.Family), DestinationPort: mapmem.NetworkOrder(p.DestinationPort),
		Protocol: protocolName(p.Protocol), Flags: trace.FlagNames(r.TcpFlags), Length: r.Length,
	}
}

func protocolName(number uint8) string {
	switch number {
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "icmpv6"
	}
	return lb.Protocol(number).String()
}

// reasonNames are the reasons by their bits, in the order of a trace.
var reasonNames = []struct {
	bit  traced.XdpTraceReason
	name trace.Reason
}{
	{traced.XdpTraceReasonTRACE_QUOTED, trace.Quoted},
	{traced.XdpTraceReasonTRACE_REPLY, trace.Reply},
	{traced.XdpTraceReasonTRACE_FROM_BACKEND, trace.FromBackend},
	{traced.XdpTraceReasonTRACE_KNOWN_FRAGMENT, trace.KnownFragment},
	{traced.XdpTraceReasonTRACE_KNOWN_FLOW, trace.KnownFlow},
	{traced.XdpTraceReasonTRACE_NEW_FLOW, trace.NewFlow},
	{traced.XdpTraceReasonTRACE_PREVIOUS, trace.PreviousOwner},
	{traced.XdpTraceReasonTRACE_HAIRPIN, trace.Hairpin},
}

func reasonsOf(bits uint8) []trace.Reason {
	var reasons []trace.Reason
	for _, reason := range reasonNames {
		if bits&uint8(reason.bit) != 0 {
			reasons = append(reasons, reason.name)
		}
	}
	return reasons
}
