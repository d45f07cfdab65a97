// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// VRRP is the state of the election of the balancer that holds the VIPs.
type VRRP struct {
	ID        uint8  `json:"id"`
	Interface string `json:"interface"`
	// State is the state by RFC 9568 section 6.4.
	State string `json:"state" enum:"initialize,backup,active"`
	// Since is when it began, and Why the cause.
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
	// Priority is the priority announced now: the configuration's, less the decrement of each service without a backend
	// that serves.
	Priority           uint8   `json:"priority"`
	ConfiguredPriority uint8   `json:"configured_priority"`
	IntervalSeconds    float64 `json:"interval_seconds"`
	Preempt            bool    `json:"preempt"`
	// Peer is the sender of the last advertisement; absent: none came.
	Peer *VRRPPeer `json:"peer,omitempty"`
	// Both: the peer and this balancer hold the VIPs at once.
	Both bool `json:"both"`
	// Foreign are other virtual routers of the segment with the same id, which have none of the VIPs.
	Foreign []VRRPForeign `json:"foreign,omitempty"`
	// Changes counts changes of the state, Sent and Received advertisements, Rejected invalid packets, Ignored
	// advertisements of other virtual routers with the same id, Conflicts how often two balancers were active at once,
	// and Announcements the repeated announcements of the VIPs to the neighbours, without those at a takeover.
	Changes       uint64 `json:"changes"`
	Sent          uint64 `json:"sent"`
	Received      uint64 `json:"received"`
	Rejected      uint64 `json:"rejected"`
	Ignored       uint64 `json:"ignored"`
	Conflicts     uint64 `json:"conflicts"`
	Announcements uint64 `json:"announcements"`
	// Reason is the reason why the last packet was rejected.
	Reason string `json:"reason,omitempty"`
	// Problem is the reason why this balancer cannot take part, or names the fault in packets that it receives.
	Problem string `json:"problem,omitempty"`
	// Drained is the drain by which this balancer leaves the VIPs to others; absent where it takes part.
	Drained *VRRPDrained `json:"drained,omitempty"`
}

// VRRPPeer is another balancer of the segment.
type VRRPPeer struct {
	Address netip.Addr `json:"address"`
	// Priority and IntervalSeconds are those of its last advertisement, at Heard; with priority 0 it resigns.
	Priority        uint8     `json:"priority"`
	IntervalSeconds float64   `json:"interval_seconds"`
	Heard           time.Time `json:"heard"`
}

// VRRPForeign is a host that advertises this balancer's id with none of its VIPs.
type VRRPForeign struct {
	Address  netip.Addr   `json:"address"`
	VIPs     []netip.Addr `json:"vips"`
	Priority uint8        `json:"priority"`
	Heard    time.Time    `json:"heard"`
	// Reason names the fault and the remedy, in a sentence.
	Reason string `json:"reason"`
}

// VRRPDrained is a drain of a balancer, with its client and time.
type VRRPDrained struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// Election configures how a balancer takes part.
type Election struct {
	VRRP lb.VRRP
	// Interface and Priority are the ones in force. Out says why the balancer takes no part now; empty: it takes part.
	Interface string
	Priority  uint8
	VIPs      []netip.Addr
	Out       string
}

// Sharing is the state of the protocols, BGP and VRRP, by which balancers share the VIPs.
type Sharing struct {
	BGP
	// VRRP is nil if the VIPs are not shared by it.
	VRRP *VRRP `json:"vrrp,omitempty"`
}
