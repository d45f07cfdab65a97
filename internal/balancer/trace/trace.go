// SPDX-License-Identifier: Apache-2.0

// Package trace has the types of a trace: the question about a packet, the filter for real packets, and the answer with
// the packet's outcome and its reasons. It builds and parses frames, and does no I/O.
package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Errors that callers may test for.
var (
	// ErrBadQuestion: there is no such packet.
	ErrBadQuestion = errors.New("no such packet")
	// ErrNoService: the packet is for no service.
	ErrNoService = errors.New("no such service")
	// ErrBusy: as many traces and captures run as may run at once.
	ErrBusy = errors.New("too many traces")
)

// Filter selects the real packets to report.
type Filter struct {
	// Source is the client's side and Destination the VIP's; a prefix of neither
	// family stands for any. Replies are matched as their client will see them,
	// the other way round.
	Source      netip.Prefix `json:"source,omitzero"`
	Destination netip.Prefix `json:"destination,omitzero"`
	// The ports of the same; 0 stands for any. A packet without ports (ICMP, a
	// later fragment) is matched by its addresses alone.
	SourcePort      uint16 `json:"source_port,omitempty"`
	DestinationPort uint16 `json:"destination_port,omitempty"`
	// Protocol is TCP or UDP, or 0 for any.
	Protocol lb.Protocol `json:"protocol,omitzero"`
	// Sample reports one packet in so many, at random; 0 is the same as 1.
	Sample uint32 `json:"sample,omitempty"`
}

// Check refuses a filter that no packet can match. Error: ErrBadQuestion.
func (f Filter) Check() error {
	if f.Source.IsValid() && f.Destination.IsValid() && f.Source.Addr().Is4() != f.Destination.Addr().Is4() {
		return fmt.Errorf("%w: %s and %s are of different families", ErrBadQuestion, f.Source, f.Destination)
	}
	if f.Protocol != 0 && f.Protocol != lb.TCP && f.Protocol != lb.UDP {
		return fmt.Errorf("%w: %s is followed only as far as it is tcp or udp", ErrBadQuestion, f.Protocol)
	}
	return nil
}

// Event is one line of a live trace.
type Event struct {
	// Started is the first event: from here on packets are reported.
	Started bool    `json:"started,omitempty"`
	Packet  *Packet `json:"packet,omitempty"`
	// Lost is the number of matching packets since the last event with a Lost that came faster than they could be
	// reported.
	Lost uint64 `json:"lost,omitempty"`
	// Error is the last event of a failed trace.
	Error string `json:"error,omitempty"`
}

// Packet is the outcome of a packet, and the reasons for it.
type Packet struct {
	// Time is the time of its outcome; zero for a made-up packet.
	Time time.Time `json:"time,omitzero"`
	Hook lb.Hook   `json:"hook"`
	// Interface is the one that it came in on.
	Interface string `json:"interface,omitempty"`
	// Came is the packet as it came in; nil where it could not be read.
	Came *Flow `json:"came,omitempty"`
	// Outcome is the name of the counter that the packet is in, and Help its meaning.
	Outcome string `json:"outcome"`
	Help    string `json:"help"`
	// Service is nil where none was found.
	Service *Service `json:"service,omitempty"`
	// Slot is the slot of the service's table that was read, one of Slots; nil where it was not read.
	Slot  *uint32 `json:"slot,omitempty"`
	Slots int     `json:"slots,omitempty"`
	// Reasons are the conditions that decided besides the configuration.
	Reasons []Reason `json:"reasons,omitempty"`
	// Backend is the backend that gets the packet, or from which a reply came.
	Backend *Backend `json:"backend,omitempty"`
	// Path is the path to the backend; nil for replies and where there is none.
	Path *Path `json:"path,omitempty"`
	// Leaves is the frame as it leaves, header by header from the outermost on, as
	// far as it was seen.
	Leaves []Layer `json:"leaves,omitempty"`
	// Changes are the fields that were rewritten; only for a made-up packet.
	Changes []Change `json:"changes,omitempty"`
}

// Has reports whether a reason is among the packet's.
func (p *Packet) Has(reason Reason) bool {
	for _, r := range p.Reasons {
		if r == reason {
			return true
		}
	}
	return false
}

// Flow has the fields of a packet's headers.
type Flow struct {
	Source          netip.Addr `json:"source"`
	SourcePort      uint16     `json:"source_port,omitempty"`
	Destination     netip.Addr `json:"destination"`
	DestinationPort uint16     `json:"destination_port,omitempty"`
	// Protocol is its name, or "protocol-47".
	Protocol string `json:"protocol"`
	// Flags are TCP's, by their names in lower case.
	Flags []string `json:"flags,omitempty"`
	// Length is the length of the IP packet, in bytes.
	Length uint32 `json:"length"`
}

// Service is the service that a packet was for.
type Service struct {
	Name      string       `json:"name"`
	VIP       netip.Addr   `json:"vip"`
	Port      uint16       `json:"port"`
	Protocol  lb.Protocol  `json:"protocol"`
	Mode      lb.Mode      `json:"mode"`
	Scheduler lb.Scheduler `json:"scheduler"`
	// BySource: only the client's address is hashed.
	BySource bool `json:"by_source,omitempty"`
}

// Backend is where a packet went, or came from.
type Backend struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
}

// Path is how packets reach a backend.
type Path struct {
	// Interface is the interface that they leave by; empty: the one on which they came.
	Interface string `json:"interface,omitempty"`
	// NextHop is the MAC address of the next hop, and Source our own there.
	NextHop string `json:"next_hop"`
	Source  string `json:"source"`
	// MTU is the size of the largest IP packet, in bytes.
	MTU uint16 `json:"mtu"`
}

// Reason is a condition that decided besides the configuration.
type Reason string

// The reasons.
const (
	// KnownFlow: the flow had an entry in a flow table.
	KnownFlow Reason = "known-flow"
	// NewFlow: the flow gets an entry.
	NewFlow Reason = "new-flow"
	// KnownFragment: an earlier fragment of the same datagram was seen.
	KnownFragment Reason = "known-fragment"
	// Quoted: it is an ICMP error, and the packet that it quotes decided.
	Quoted Reason = "quoted"
	// Reply: it comes from a backend and becomes the VIP's.
	Reply Reason = "reply"
	// FromBackend: it comes from a backend's port, but is no reply to a client of the
	// service, and stays as it is.
	FromBackend Reason = "from-backend"
	// PreviousOwner: the slot of the flow has changed hands, and the flow stays with the previous owner.
	PreviousOwner Reason = "former"
	// Hairpin: backends would answer the client directly, so full NAT serves it.
	Hairpin Reason = "hairpin"
)
