// SPDX-License-Identifier: Apache-2.0

// Package bgp has the protocol between a balancer and its BGP speaker, and the balancer's end of it: it starts the
// speaker's process or finds a running one, sends it the routes to announce, and reads the state of its peers. The
// speaker is a process of its own, so that the restart of a balancer closes no session, and it decides nothing. It is
// in the package speaker, which this package reaches only over the socket.
package bgp

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Protocol is the version of the protocol on the socket. Balancers of all versions can ask for the state and shut the
// speaker down; a speaker of another version is replaced.
const Protocol = 2

// The paths that a speaker answers on its unix socket by HTTP.
const (
	statePath   = "/v1/state"
	desiredPath = "/v1/wanted"
	endPath     = "/v1/end"
)

// RoutesJournal is the file that says which routes of VIPs the speaker on a socket has put into tables of the host. It
// outlives a speaker that has died.
func RoutesJournal(socket string) string { return socket + ".routes" }

// Desired is the desired state of a speaker, as a whole.
type Desired struct {
	BGP lb.BGP `json:"bgp"`
	// VIPs are the addresses announced, each as a route of one address.
	VIPs []netip.Addr `json:"vips"`
	// Draining has them announced as the last choice (RFC 8326).
	Draining bool `json:"draining"`
	// Pool are this balancer's addresses of full NAT, announced like VIPs but never as the last choice, and Backup
	// those of others, announced for when their balancer is gone.
	Pool   []netip.Addr `json:"pool,omitempty"`
	Backup []netip.Addr `json:"backup,omitempty"`
	// OrphanTimeout is how long the speaker announces without a request of a balancer; 0 is for ever.
	OrphanTimeout time.Duration `json:"orphan"`
}

// State is the state of a speaker, with its process and its peers.
type State struct {
	Protocol int `json:"protocol"`
	// Build is the program that it runs, and PID and Start its process: Start is in clock ticks since
	// boot, as in /proc/PID/stat, by which a process is known from a later one of the same PID.
	Build string `json:"build"`
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	// Number changes with the state.
	Number uint64 `json:"number"`
	// Configured is false until the speaker has received its desired state.
	Configured bool         `json:"told"`
	VIPs       []netip.Addr `json:"vips"`
	// Orphaned: no balancer has made a request for OrphanTimeout, and the VIPs are withdrawn.
	Orphaned bool          `json:"orphaned"`
	Peers    []ops.BGPPeer `json:"peers"`
	// Faults are files of the speaker that cannot be written, a sentence each.
	Faults []string `json:"faults,omitempty"`
}

// ShutdownMode is how a speaker shuts down.
type ShutdownMode string

// The ways to shut down.
const (
	// Stop withdraws all routes first, and then says goodbye (Cease).
	Stop ShutdownMode = "stop"
	// Restart sends no notification: routers keep the routes until the next speaker has sent its own, or the restart
	// time is over.
	Restart ShutdownMode = "restart"
)

// shutdownRequest is the body of a request to shut down.
type shutdownRequest struct {
	Mode ShutdownMode `json:"how"`
}
