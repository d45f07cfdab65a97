// SPDX-License-Identifier: Apache-2.0

// Package ops has the status of a running balancer as an operator sees it, and the operations that can be asked of it:
// the control plane fills and does it, the API carries it as JSON, and the command line, the doctor and the bench read
// it.
package ops

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Status is a balancer at one moment.
type Status struct {
	// At is when it was taken, by the balancer's clock; all other times are by the clock as it was set then.
	At time.Time `json:"at,omitzero"`
	// Version is the version of the program.
	Version string `json:"version"`
	PID     int    `json:"pid"`
	// Started is when the daemon started.
	Started time.Time `json:"started"`
	Config  string    `json:"config"`
	// Interface is the first, which carries the VIPs, and Hook its hook.
	Interface  string      `json:"interface"`
	Hook       Hook        `json:"hook"`
	Interfaces []Interface `json:"interfaces"`
	// TableSize is the configured default for services without a table size of their own; absent where there is none:
	// then the number of backends decides.
	TableSize uint32 `json:"table_size,omitempty"`
	// Generation counts the states that the data plane was given, from 1.
	Generation uint64 `json:"generation"`
	// Problems are the faults that need a person's attention now, a line each.
	Problems []string  `json:"problems"`
	Services []Service `json:"services"`
	// Outcomes say where each packet ended; every outcome is listed.
	Outcomes []Outcome `json:"outcomes"`
	// Flows are all that is remembered, where a service may remember any.
	Flows *Flows `json:"flows,omitempty"`
	// Memory is the kernel memory that is taken.
	Memory *Memory `json:"memory,omitempty"`
	// Local has the counts of sockets of clients on the balancer's own host; absent where they are not served.
	Local *Local `json:"local,omitempty"`
	// Proxy is the process behind the services of mode proxy; absent where there is none.
	Proxy *ProxyEngine `json:"proxy,omitempty"`
	// BGP is the state of BGP; absent where no VIP is announced to routers.
	BGP *BGP `json:"bgp,omitempty"`
	// VRRP is how balancers of the segment agree on which of them holds the VIPs; absent where they are this
	// balancer's alone.
	VRRP *VRRP `json:"vrrp,omitempty"`
	// Members are the other balancers that share the VIPs; absent where none is configured.
	Members *Members `json:"members,omitempty"`
	// Feeds are the sources of configuration that programs keep.
	Feeds []Feed `json:"feeds,omitempty"`
	// Operations are the differences from the configuration that operations have made.
	Operations Operations `json:"operations"`
	// Unwritten are the files that cannot be written now: decisions go on without, and they are written again
	// until there is room. WriteFailures counts attempts that failed since the start.
	Unwritten     []Unwritten `json:"unwritten,omitempty"`
	WriteFailures uint64      `json:"write_failures"`
}

// Taken is when the status was taken, by the balancer's clock; when it came, of a balancer that does not say.
func (s *Status) Taken(came time.Time) time.Time {
	if s.At.IsZero() {
		return came
	}
	return s.At
}

// Unwritten is a file that only a restart needs, and that cannot be written.
type Unwritten struct {
	// A description of the file's content.
	What string `json:"what"`
	Path string `json:"path"`
	// Since is when writing it failed first, and Error why it did last.
	Since time.Time `json:"since"`
	Error string    `json:"error"`
	// Kept: the kernel keeps the content meanwhile, so that a restart of the process has it, and one of the
	// machine does not.
	Kept bool `json:"kept"`
}

// Local has the counts of a control group's sockets that were opened to a VIP.
type Local struct {
	// Cgroup is the directory of the control group.
	Cgroup string `json:"cgroup"`
	// Sockets have a backend now, until they are closed.
	Sockets uint64 `json:"sockets"`
	// Warning names the kernel features that some of them lack.
	Warning string `json:"warning,omitempty"`
	// Events count the outcomes of these sockets; every kind of event is listed.
	Events []LocalEvent `json:"events"`
}

// LocalEvent is how often something happened to a socket.
type LocalEvent struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
	Help  string `json:"help"`
}

// Flows is the state of the tables of flows.
type Flows struct {
	// Proven is the number of flows whose client has shown that it is there, by more than its first packet; Unproven
	// that of the others, which live apart.
	Proven        uint64 `json:"proven"`
	ProvenLimit   uint64 `json:"proven_limit"`
	Unproven      uint64 `json:"unproven"`
	UnprovenLimit uint64 `json:"unproven_limit"`
	// Bytes is the kernel memory of the tables, full or empty.
	Bytes uint64 `json:"bytes"`
}

// Memory is planned from the configuration, in bytes: it does not depend on how many
// flows there are.
type Memory struct {
	Total uint64 `json:"total"`
	// Proven, Unproven and Returns are the tables of flows, the last for replies in
	// full NAT.
	Proven   uint64 `json:"proven"`
	Unproven uint64 `json:"unproven"`
	Returns  uint64 `json:"returns"`
	// Configuration is for services, their tables and their backends.
	Configuration uint64 `json:"configuration"`
	Counters      uint64 `json:"counters"`
	// Ways is for the routes that replies take, which are kept for a fraction of a second.
	Ways uint64 `json:"ways"`
	// Fragments is for datagrams that come in pieces.
	Fragments uint64 `json:"fragments"`
	// Checks is for health checks by the VIP.
	Checks uint64 `json:"checks,omitempty"`
}

// Interface is an interface that packets arrive on and leave by.
type Interface struct {
	Name string `json:"name"`
	// Up says that it is switched on and has a carrier.
	Up   bool   `json:"up"`
	MAC  string `json:"mac"`
	Hook Hook   `json:"hook"`
	// XDPLost are frames that were counted as sent and then lost by the driver, since
	// the start, as far as it counts them.
	XDPLost uint64 `json:"xdp_lost,omitempty"`
}

// Hook is the place in the kernel where packets are taken.
type Hook struct {
	Name lb.Hook `json:"name"`
	// Generic says that XDP runs after the driver made a socket buffer.
	Generic bool   `json:"generic"`
	Driver  string `json:"driver"`
	// Reason says why this hook, where the configuration left room.
	Reason string `json:"reason"`
	// Warning names packets that this attachment may lose.
	Warning string `json:"warning,omitempty"`
}

// Service is a service and its backends.
type Service struct {
	Name string `json:"name"`
	// Owner is the source of configuration that has the service: "file", or the name of a fragment.
	Owner string `json:"owner"`
	// Object is the object of a cluster that the service is for, NAMESPACE/NAME; absent where it is for none, or where
	// its name does not tell.
	Object   string      `json:"object,omitempty"`
	VIP      netip.Addr  `json:"vip"`
	Port     uint16      `json:"port"`
	Protocol lb.Protocol `json:"protocol"`
	Mode     lb.Mode     `json:"mode"`
	// DSCP is the code point that stands for the VIP in mode dscp; 0 in others.
	DSCP uint8 `json:"dscp,omitempty"`
	// MSS is the most that a SYN may announce, in bytes; 0: whatever it does.
	MSS       uint16       `json:"mss,omitempty"`
	Scheduler lb.Scheduler `json:"scheduler"`
	// Hash names the fields of a packet that are hashed.
	Hash lb.Hash `json:"hash"`
	// TableSize is the number of slots of the hash table.
	TableSize uint32 `json:"table_size"`
	// TableDigest is 16 hexadecimal digits, which are equal on two balancers exactly when they send new flows of
	// the service to the same backends; absent in mode proxy.
	TableDigest string `json:"table_digest,omitempty"`
	// Tracked says that every flow is remembered; otherwise only those that a
	// change of backends would move.
	Tracked bool `json:"tracked"`
	// Persistence is absent where there is none.
	Persistence *Persistence `json:"persistence,omitempty"`
	Limits      *Limits      `json:"limits,omitempty"`
	// Active are the flows that have not ended, where they are tracked, and Flows
	// all that are remembered, ended ones until they are forgotten.
	Active uint32 `json:"active"`
	Flows  uint64 `json:"flows"`
	// Serving says which backends take new flows.
	Serving Serving `json:"serving"`
	// Checks are the checks of each backend, and Require how many of several must pass; absent where there is no check.
	Checks  []Check `json:"checks,omitempty"`
	Require string  `json:"require,omitempty"`
	// OnDown is the policy for flows of a backend that fails; absent where there is no check.
	OnDown lb.OnDown `json:"on_down,omitempty"`
	// Outliers is how backends are judged by their answers to clients; absent where they are not.
	Outliers *Outliers `json:"outliers,omitempty"`
	// SlowStartSeconds is how long a backend's share grows that begins to serve; 0: it does not.
	SlowStartSeconds float64 `json:"slow_start_seconds,omitempty"`
	// Withdrawn: the VIP is not on the interface, for no backend of its services serves.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Hairpin is how clients are served whose backends would answer them directly; absent where there
	// are none, or they are served as others are.
	Hairpin *Hairpin `json:"hairpin,omitempty"`
	// Proxy has the settings and counters of mode proxy; absent in other modes.
	Proxy *ProxiedService `json:"proxy,omitempty"`
	// Transition is the one under way, if there is one.
	Transition *Transition `json:"transition,omitempty"`
	Backends   []Backend   `json:"backends"`
	// Discovered are the origins of backends that the configuration does not name.
	Discovered []Discovered `json:"discovered,omitempty"`
}

// Hairpin is how clients are served whose backends would answer them directly, since they are on one link,
// or are one and the same host: through full NAT, so that the answers come back through the balancer.
type Hairpin struct {
	// Clients are the networks of such clients.
	Clients []netip.Prefix `json:"clients"`
	// From are the addresses that the backends see instead of theirs, and FirstPort to LastPort the
	// ports; 0 where there are none, and the clients are refused.
	From      []netip.Addr `json:"from,omitempty"`
	FirstPort uint16       `json:"first_port"`
	LastPort  uint16       `json:"last_port"`
	// Active are their flows that have not ended.
	Active uint32 `json:"active"`
}

// SlowStart is how far a backend has come that began to serve a while ago.
type SlowStart struct {
	// Percent is the share of its weight that it gets now.
	Percent uint16 `json:"percent"`
	// Until is when it gets all of it.
	Until time.Time `json:"until"`
}

// Outliers are the rules by which a service ejects backends.
type Outliers struct {
	// FailuresPercent is the share of failures that ejects a backend, of at least Connections new
	// connections, or datagrams, in an interval.
	FailuresPercent uint8   `json:"failures_percent"`
	Connections     uint32  `json:"connections"`
	IntervalSeconds float64 `json:"interval_seconds"`
	// PauseSeconds is how long it is ejected at first.
	PauseSeconds        float64 `json:"pause_seconds"`
	LongestPauseSeconds float64 `json:"longest_pause_seconds"`
	// EjectedPercent is the share of the backends that may be ejected at a time.
	EjectedPercent uint8 `json:"ejected_percent"`
}

// Ejection is a time in which a backend takes no new flow, for its answers to clients.
type Ejection struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Times is how often it was ejected, less one for each interval that it has served well since.
	Times uint32 `json:"times"`
	// Reason says why, of the backend.
	Reason string `json:"reason"`
}

// Persistence keeps a client on one backend.
type Persistence struct {
	TimeoutSeconds float64 `json:"timeout_seconds"`
	// Prefix is how many bits of the address make a client.
	Prefix uint8 `json:"prefix"`
	// Group names the services that send a client to one host; empty where there is none.
	Group string `json:"group,omitempty"`
}

// Limits bound the new flows of a service; 0: they do not.
type Limits struct {
	// Rate is in new flows a second, Burst how many may come before their time.
	Rate  uint32 `json:"rate,omitempty"`
	Burst uint32 `json:"burst,omitempty"`
	// Connections is how many may be active.
	Connections uint32 `json:"connections,omitempty"`
	// Refuse is the treatment of the others.
	Refuse lb.Refusal `json:"refuse,omitempty"`
}

// Transition is the rest of a change of backends that is not over.
type Transition struct {
	Since time.Time `json:"since"`
	// Until is when the table before is forgotten; zero where it was already, and
	// only flows that are remembered are still looked up.
	Until time.Time `json:"until,omitzero"`
	// MovedSlots of Slots lead, or have led since, to another backend than before; all of
	// them while there is no backend for new flows.
	MovedSlots int `json:"moved_slots"`
	Slots      int `json:"slots"`
	// Base says that the table before is still there.
	Base bool `json:"base"`
}

// Backend is a backend, its observed state, and its counters since it was configured.
type Backend struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	// Weight is the one in force; ConfiguredWeight is there where the configuration
	// has another.
	Weight           uint16          `json:"weight"`
	ConfiguredWeight *uint16         `json:"configured_weight,omitempty"`
	State            lb.BackendState `json:"state"`
	// Drain says who drained it and until when, where it was an operation.
	Drain *Drained `json:"drain,omitempty"`
	// Forced is the operation by which it takes new flows whatever its health checks and ejections say.
	Forced *Forced `json:"forced,omitempty"`
	// Neighbour is the state of the next hop's neighbour entry (ARP, NDP).
	Neighbour string `json:"neighbour"`
	// Reason says why it gets no packets, of the backend, as in "does not answer
	// ARP requests"; empty if it can.
	Reason string `json:"reason,omitempty"`
	// Since is since when there is a Reason; absent for a moment after one has come.
	Since time.Time `json:"since,omitzero"`
	// Interface is the one that packets leave by, and NextHop who gets them: a
	// router or the backend itself. Empty without a route.
	Interface string     `json:"interface,omitempty"`
	NextHop   netip.Addr `json:"next_hop,omitzero"`
	// MAC is the next hop's; empty while unknown.
	MAC string `json:"mac"`
	// MTU is the size of the largest IP packet on the way there, in bytes, headers
	// that the mode adds included; 0 without a route.
	MTU int `json:"mtu,omitempty"`
	// Narrow says that a router on the path has reported the MTU, for the balancer's own tunnel packets.
	Narrow  bool   `json:"narrow,omitempty"`
	Packets uint64 `json:"packets"`
	// Bytes are the bytes of IP packets as they came, without the Ethernet frame.
	Bytes uint64 `json:"bytes"`
	// ReturnedPackets and ReturnedBytes count replies that came back through the balancer, in the modes nat and
	// fullnat; in mode proxy the content's bytes.
	ReturnedPackets uint64 `json:"returned_packets,omitempty"`
	ReturnedBytes   uint64 `json:"returned_bytes,omitempty"`
	// Answered are the SYNs that it has answered by SYN and ACK, Refused those by RST, and
	// Unreachable the ICMP errors "destination unreachable" of its own, in those modes.
	Answered    uint64 `json:"answered,omitempty"`
	Refused     uint64 `json:"refused,omitempty"`
	Unreachable uint64 `json:"unreachable,omitempty"`
	// Connections are new flows; where no flows are tracked, SYNs sent on.
	Connections uint64 `json:"connections"`
	// Active are flows that have not ended, where they are tracked; Upper is at how
	// many it is full (0: never), until there are fewer than Lower (0: than Upper).
	Active uint32 `json:"active"`
	Upper  uint32 `json:"upper,omitempty"`
	Lower  uint32 `json:"lower,omitempty"`
	// Flows is the number of remembered flows to it, ended ones until they are forgotten; looked through some seconds
	// ago at most.
	Flows uint64 `json:"flows"`
	// Proxied has counters that only the proxy keeps, in mode proxy; absent in others. Connections and Active are those
	// that it has opened to the backend, Bytes went there, and ReturnedBytes came from there.
	Proxied *Proxied `json:"proxied,omitempty"`
	// Ports is how far full NAT's pool is used up for this backend; absent in other modes.
	Ports *Ports `json:"ports,omitempty"`
	// Backup: it is to take new flows only while no other does.
	Backup bool `json:"backup,omitempty"`
	// Origin is where it was found; absent where the configuration names it.
	Origin lb.Origin `json:"origin,omitempty"`
	// SlowStart is absent where the backend has all of its weight.
	SlowStart *SlowStart `json:"slow_start,omitempty"`
	// Ejection is absent where the backend is not ejected. Spared is why one that fails is not;
	// empty: it does not fail.
	Ejection *Ejection `json:"ejection,omitempty"`
	Spared   string    `json:"spared,omitempty"`
	// Health is the result of the checks; absent where there is none.
	Health *Health `json:"health,omitempty"`
}

// Ports are a backend's source ports in full NAT's pool. Each open flow holds one; services
// with the same backend, port and protocol share them, and each shows the sum.
type Ports struct {
	// Held is the number of ports that no new flow can get, as of the last count, some seconds ago: those of flows that
	// are proven and not over.
	Held uint64 `json:"held"`
	// Limit is how many there are: the pool's addresses of the backend's family, times
	// its ports.
	Limit uint64 `json:"limit"`
	// Scarce says that Held has reached 80 % of Limit, and has not been below 70 % since.
	Scarce bool `json:"scarce"`
}

// Outcome is how many packets ended in one way.
type Outcome struct {
	Name    string `json:"name"`
	Packets uint64 `json:"packets"`
	Help    string `json:"help"`
	// Remedy is the cure; absent where no packet is lost by it.
	Remedy string `json:"remedy,omitempty"`
}
