// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"net/netip"
	"time"
)

// FlowState is how far a remembered flow has come, by the packets that pass the balancer.
type FlowState string

// The states of a flow.
const (
	// FlowOpening: only a SYN was seen.
	FlowOpening FlowState = "opening"
	// FlowSeen: a packet in the middle of a connection was.
	FlowSeen FlowState = "seen"
	// FlowFirst: one datagram was.
	FlowFirst FlowState = "first"
	// FlowEstablished: the client has acknowledged something.
	FlowEstablished FlowState = "established"
	// FlowContested: so it has, and a SYN of another connection came from the same port.
	FlowContested FlowState = "contested"
	// FlowUDP: more than one datagram was seen.
	FlowUDP FlowState = "udp"
	// FlowClientFIN and FlowBackendFIN: one end has sent FIN.
	FlowClientFIN  FlowState = "client-fin"
	FlowBackendFIN FlowState = "backend-fin"
	// FlowClosed: both have, or one has sent RST.
	FlowClosed FlowState = "closed"
	// FlowRefused: the backend has answered the SYN by RST.
	FlowRefused FlowState = "refused"
	// FlowTimeWait: both have sent FIN, the backend first.
	FlowTimeWait FlowState = "time-wait"
)

// FlowStates are all of them, in the order in which a flow comes by them.
var FlowStates = []FlowState{FlowOpening, FlowSeen, FlowFirst, FlowEstablished, FlowContested, FlowUDP, FlowClientFIN,
	FlowBackendFIN, FlowClosed,
	FlowRefused, FlowTimeWait}

// Flow is a flow that the data plane remembers.
type Flow struct {
	Backend BackendKey
	// Client is the address and port of the host that began it.
	Client netip.AddrPort
	// Source is the address and port from which full NAT sends its packets; zero in other modes.
	Source netip.AddrPort
	State  FlowState
	// Proven: its client has sent a packet that a forger of source addresses could not.
	Proven bool
	// Silent is the time since its last packet, give or take a second.
	Silent time.Duration
	// SYN is the sequence number of the last SYN that its backend was sent (RFC 9293, section 3.4.1); 0
	// where none was, and in full NAT.
	SYN uint32
}
