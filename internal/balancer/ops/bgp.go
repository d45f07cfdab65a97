// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// BGP is the state of BGP: the VIPs that are announced, and the sessions with routers.
type BGP struct {
	// Speaker is "local" if a routing daemon of this host speaks to the routers; it reads the VIPs from Table. Then ASN
	// and RouterID are absent, and there are no Peers. Absent: the balancer's own process speaks.
	Speaker  lb.Speaker `json:"speaker,omitempty"`
	Table    uint32     `json:"table,omitempty"`
	ASN      uint32     `json:"asn,omitempty"`
	RouterID netip.Addr `json:"router_id,omitzero"`
	// SpeakerPID is the process that speaks to the routers, or keeps the VIPs in the table; 0: there is none now.
	SpeakerPID int `json:"speaker_pid"`
	// Problem is the reason why the announced routes may differ from the desired ones; empty if they do not.
	Problem string `json:"problem,omitempty"`
	// Drained is the drain by which this balancer is out of every anycast; absent where there is none.
	Drained *BalancerDrained `json:"drained,omitempty"`
	VIPs    []AnnouncedVIP   `json:"vips"`
	// Pool are the addresses of full NAT that are announced; absent where the pool is not divided among members.
	Pool  []AnnouncedAddress `json:"pool,omitempty"`
	Peers []BGPPeer          `json:"peers"`
}

// AnnouncedAddress is an address of full NAT that is announced to routers.
type AnnouncedAddress struct {
	Address netip.Addr `json:"address"`
	// Backup: it is another member's, and packets come here only while that member does not announce it.
	Backup bool `json:"backup"`
}

// BalancerDrained is the drain of a balancer, to which routers are to send nothing.
type BalancerDrained struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Withdrawn is the time of the withdrawal of the VIPs: until then they are announced as the last choice.
	Withdrawn time.Time `json:"withdrawn"`
}

// AnnouncedVIP is a VIP, and whether it is announced to routers.
type AnnouncedVIP struct {
	VIP       netip.Addr `json:"vip"`
	Announced bool       `json:"announced"`
	// Reason is the reason why it is not announced.
	Reason string `json:"reason,omitempty"`
}

// BGPPeer is the session with a router, in the speaker's report and in the balancer's status.
type BGPPeer struct {
	// Address has the interface of a link-local one behind a per cent sign.
	Address string `json:"address"`
	ASN     uint32 `json:"asn"`
	// State is the session's state (RFC 4271 section 8.2.2), such as "established".
	State string `json:"state"`
	// Since is when the session was established, or when the last one ended; absent: there was none.
	Since time.Time `json:"since,omitzero"`
	// Sessions counts those that were established since the speaker was started.
	Sessions uint64 `json:"sessions"`
	// Reason is the reason why there is no session.
	Reason string `json:"reason,omitempty"`
	// RouterID, HoldSeconds and Restarts describe the session: the router's identifier, the hold time, and whether the
	// router keeps routes while the speaker restarts.
	RouterID    string  `json:"router_id,omitempty"`
	HoldSeconds float64 `json:"hold_seconds,omitempty"`
	Restarts    bool    `json:"restarts"`
	// Received are the routes that the router announces; none is used.
	Received uint64 `json:"received"`
	// BFD is the BFD session with the router; absent if there is none.
	BFD *BFD `json:"bfd,omitempty"`
}

// BFD is a BFD session with a router (RFC 5880).
type BFD struct {
	// State is "up", "init", "down" or "admin-down", since Since; RemoteState is the router's.
	State       string    `json:"state"`
	Since       time.Time `json:"since"`
	RemoteState string    `json:"remote_state"`
	// Diagnostic is the reason for which this end last went down, and RemoteDiagnostic the router's (section 4.1).
	Diagnostic       string `json:"diagnostic"`
	RemoteDiagnostic string `json:"remote_diagnostic"`
	// IntervalSeconds is the interval of packets, and DetectionSeconds the detection time; both as negotiated.
	IntervalSeconds  float64 `json:"interval_seconds"`
	DetectionSeconds float64 `json:"detection_seconds"`
	// Ups and Failures count how often the session came up and failed since the speaker was started.
	Ups      uint64 `json:"ups"`
	Failures uint64 `json:"failures"`
	// Sent, Received and Refused count packets, and Late those that this host sent too late.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	Refused  uint64 `json:"refused"`
	Late     uint64 `json:"late"`
	// Problem is the reason why it is not up, if that is known. BGP goes on without it.
	Problem string `json:"problem,omitempty"`
}

// Up reports whether the session is up.
func (b BFD) Up() bool { return b.State == "up" }

// BGPEstablished is the state of a session over which routes are announced (RFC 4271 section 8.2.2).
const BGPEstablished = "established"

// Established reports whether the session over which VIPs are announced to the router is established.
func (p BGPPeer) Established() bool { return p.State == BGPEstablished }

// Routes are the routes to announce.
type Routes struct {
	BGP  lb.BGP
	VIPs []netip.Addr
	// Draining has them announced as the last choice.
	Draining bool
	// Pool are this balancer's addresses of full NAT, if they are announced, and Backup other members', announced in
	// case their balancer fails. They are not drained.
	Pool, Backup []netip.Addr
	// Orphan is how long they stay after the daemon has died; 0 is for ever.
	Orphan time.Duration
}
