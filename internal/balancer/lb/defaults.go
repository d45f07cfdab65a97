// SPDX-License-Identifier: Apache-2.0

package lb

import "time"

// Defaults of a balancer, where neither a file nor a caller says.
const (
	// DefaultFlowLimit and DefaultUnprovenLimit are how many flows can be remembered: those
	// that are proven, and those that are not yet. Each takes 64 bytes of kernel memory.
	DefaultFlowLimit     = 1_000_000
	DefaultUnprovenLimit = 1 << 18
	// DefaultPinLimit is how many proven flows can be remembered where no service
	// tracks its flows: those of slots that change hands.
	DefaultPinLimit = 1 << 17
	// DefaultTCPWindow and DefaultUDPWindow are how long after the last change of backends
	// packets of flows that are not remembered are still sent where they went before. A
	// TCP connection that is silent for longer than that is rare; UDP has no connections to
	// break.
	DefaultTCPWindow = 15 * time.Minute
	DefaultUDPWindow = 30 * time.Second
	// DefaultTooBigRate is how many senders a CPU tells in a second that their packet
	// was too big.
	DefaultTooBigRate = 1000
	// RunPriority is where the program is among others that libxdp's dispatcher runs on an interface: the least runs
	// first. Filters have 10 (xdp-filter), and run before it; programs without a priority have 50, and get the packets
	// that it passes.
	RunPriority = 20
	// DefaultMTU is the MTU of Ethernet, in bytes.
	DefaultMTU = 1500
)

// MaxInterfaces is how many interfaces a balancer takes packets on: as many as the data plane has room for
// (MAX_INTERFACES in bpf/balancer/types/limits.h: internal/balancer/datapath does not compile where the two differ).
const MaxInterfaces = 16

// Timeouts are how long a remembered flow may be silent, by its state. 0 means the default.
type Timeouts struct {
	// Opening is for connections of which only a SYN was seen, and for those that came
	// into the middle of a change of the tables; First for UDP flows of one packet. These
	// prove nothing: anyone can make them up.
	Opening, First time.Duration
	// Established is for connections, UDP for flows of more than one packet.
	Established, UDP time.Duration
	// Fin is for connections that one side has ended, Closed for those that both have, or
	// that were reset or refused.
	Fin, Closed time.Duration
}

// DefaultTimeouts are the timeouts of RFC 5382 (REQ-5: two hours and four minutes, and four minutes where a connection
// is not open), of RFC 4787 (REQ-5: two minutes), and of Linux' TIME-WAIT; an unproven flow, which may be forged, is
// kept as long as a real client retransmits SYNs.
var DefaultTimeouts = Timeouts{
	Opening: 30 * time.Second, First: 30 * time.Second,
	Established: 7440 * time.Second, UDP: 2 * time.Minute,
	Fin: 4 * time.Minute, Closed: time.Minute,
}

// WithDefaults returns the timeouts with the default for each that is 0.
func (t Timeouts) WithDefaults() Timeouts {
	for _, f := range []struct{ have, standard *time.Duration }{
		{&t.Opening, &DefaultTimeouts.Opening}, {&t.First, &DefaultTimeouts.First},
		{&t.Established, &DefaultTimeouts.Established}, {&t.UDP, &DefaultTimeouts.UDP},
		{&t.Fin, &DefaultTimeouts.Fin}, {&t.Closed, &DefaultTimeouts.Closed},
	} {
		if *f.have == 0 {
			*f.have = *f.standard
		}
	}
	return t
}

// Defaults of a BGP speaker.
const (
	// DefaultBGPPort is IANA's.
	DefaultBGPPort = 179
	// DefaultHoldTime ends a session after a silence of so long. RFC 4271 suggests 90 s, for routers that
	// compute whole tables; a balancer that is gone must not attract packets for so long.
	DefaultHoldTime = 9 * time.Second
	// MinHoldTime is the least hold time that RFC 4271 permits (section 4.2).
	MinHoldTime = 3 * time.Second
	// DefaultBFDInterval and DefaultBFDMultiplier notice a dead router within a second, and BIRD and FRR bear them
	// without trouble.
	DefaultBFDInterval   = 300 * time.Millisecond
	DefaultBFDMultiplier = 3
	// DefaultRouteTable is the table of routes where a daemon of this host finds the VIPs: BGP's port.
	DefaultRouteTable = 179
	// DefaultDrainPause is long enough for routers to have chosen other ways.
	DefaultDrainPause = 10 * time.Second
)

// How routes in a table of the kernel are known as ours, to a daemon's filter too.
const (
	// RouteProtocol is their protocol (rtm_protocol), which neither <linux/rtnetlink.h> nor a known daemon has: the
	// letter J.
	RouteProtocol = 74
	// RouteMetric is their metric, DrainedRouteMetric that of VIPs of a balancer which is drained, and
	// BackupRouteMetric that of other balancers' addresses of full NAT.
	RouteMetric, DrainedRouteMetric, BackupRouteMetric = 100, 200, 300
)

// How a balancer shares its VIPs by VRRP where the configuration does not say: priority and interval as in RFC 9568
// sections 5.2.4 and 6.1, and announcements as is usual with keepalived (garp_master_refresh 60).
const (
	DefaultVRRPPriority         = 100
	DefaultVRRPInterval         = time.Second
	DefaultVRRPAnnounceInterval = time.Minute
)

// Defaults of the protocol between balancers.
const (
	// DefaultMembersPort is the port of the protocol's other users.
	DefaultMembersPort = 7946
	// MembersTolerance is for how long the tables of two balancers may differ before they warn: a change of the
	// configuration, or the verdict of health checks, does not come to all of them at once.
	MembersTolerance = 5 * time.Second
)

// DefaultOnDown returns the default of a protocol: a connection may outlive the fault that a check has met, and any
// backend can answer a datagram.
func DefaultOnDown(p Protocol) OnDown {
	if p == UDP {
		return MoveFlows
	}
	return KeepFlows
}
