// SPDX-License-Identifier: Apache-2.0

// Package bgp is what a balancer and its BGP speaker say to each other, and the balancer's half of that: it
// starts the speaker's process, finds one that runs, tells it what to announce, and hears how its peers are.
// The speaker decides nothing; it is a process of its own, so that a balancer that restarts closes no
// session. It is in the package speaker, and nothing here reaches it but over its socket.
package bgp

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Protocol is the version of what is spoken on the socket. Balancers of all versions can ask for State, and
// End; a speaker that speaks another one is replaced.
const Protocol = 1

// The paths that a speaker answers on its unix socket by HTTP.
const (
	statePath  = "/v1/state"
	wantedPath = "/v1/wanted"
	endPath    = "/v1/end"
)

// RoutesJournal is the file that says which routes of VIPs the speaker on a socket has put into tables of the host. It outlives a speaker
// that has died.
func RoutesJournal(socket string) string { return socket + ".routes" }

// Wanted is all that a speaker is to do.
type Wanted struct {
	BGP lb.BGP `json:"bgp"`
	// VIPs are what is announced, each as a route of one address.
	VIPs []netip.Addr `json:"vips"`
	// Draining has them announced as the last choice (RFC 8326).
	Draining bool `json:"draining"`
	// Pool are this balancer's addresses of full NAT, announced like VIPs but never as the last choice, and Backup those of others,
	// announced for when their balancer is gone.
	Pool   []netip.Addr `json:"pool,omitempty"`
	Backup []netip.Addr `json:"backup,omitempty"`
	// Orphan is how long the speaker goes on without hearing of a balancer; 0 is for ever.
	Orphan time.Duration `json:"orphan"`
}

// State is what a speaker is, and how its peers are.
type State struct {
	Protocol int `json:"protocol"`
	// Build is the program that it runs, and PID and Start its process: Start is in clock ticks since
	// boot, as in /proc/PID/stat, by which a process is known from a later one of the same PID.
	Build string `json:"build"`
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	// Number is another one whenever the state is.
	Number uint64 `json:"number"`
	// Told is false until the speaker has heard what is wanted.
	Told bool         `json:"told"`
	VIPs []netip.Addr `json:"vips"`
	// Orphaned: it has heard of no balancer for too long, and has withdrawn the VIPs.
	Orphaned bool   `json:"orphaned"`
	Peers    []Peer `json:"peers"`
	// Faults are files of the speaker that cannot be written, a sentence each.
	Faults []string `json:"faults,omitempty"`
}

// Peer is how a peer is.
type Peer struct {
	// Name is its address, with the link of one that is link-local.
	Name string `json:"name"`
	ASN  uint32 `json:"asn"`
	// State is that of RFC 4271's state machine, in lower case.
	State string `json:"state"`
	// Since is when the session was established, or ended last; zero: it never was.
	Since time.Time `json:"since,omitzero"`
	// Sessions counts those that were established.
	Sessions uint64 `json:"sessions"`
	// Reason says why there is none, or why the last one ended.
	Reason string `json:"reason,omitempty"`
	// RouterID is the router's, HoldTime what was agreed on, in seconds, and Restarts whether the router
	// keeps routes while this speaker restarts; of the present session.
	RouterID string  `json:"router_id,omitempty"`
	HoldTime float64 `json:"hold_time,omitempty"`
	Restarts bool    `json:"restarts,omitempty"`
	// Received are the routes that the router announces; none is used.
	Received uint64 `json:"received"`
	// BFD is how the way to the router is; absent where it is not watched.
	BFD *BFD `json:"bfd,omitempty"`
}

// BFD is how a session of BFD is (RFC 5880).
type BFD struct {
	// State is "up", "init", "down" or "admin-down", since Since; RemoteState is the router's.
	State       string    `json:"state"`
	Since       time.Time `json:"since"`
	RemoteState string    `json:"remote_state"`
	// Diagnostic says why this end went down last, and RemoteDiagnostic why the router's did.
	Diagnostic       string `json:"diagnostic"`
	RemoteDiagnostic string `json:"remote_diagnostic"`
	// Interval is how often packets are sent, and Detection after what silence the router is lost; as was agreed on, in seconds.
	Interval  float64 `json:"interval"`
	Detection float64 `json:"detection"`
	// Ups and Failures count how often the session came up, and how often the router was lost then.
	Ups      uint64 `json:"ups"`
	Failures uint64 `json:"failures"`
	// Sent, Received and Refused count packets; Late are those that this host sent too late.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	Refused  uint64 `json:"refused"`
	Late     uint64 `json:"late"`
	// Problem says why it is not up, where that is known.
	Problem string `json:"problem,omitempty"`
}

// Established is the state of a session over which routes are announced.
const Established = "established"

// Ending is how a speaker ends.
type Ending string

// The ways.
const (
	// Stop withdraws all routes first, and then says goodbye (Cease).
	Stop Ending = "stop"
	// Restart says nothing: routers keep the routes until the next speaker has spoken to them, or the
	// time for that is over.
	Restart Ending = "restart"
)

type end struct {
	How Ending `json:"how"`
}
