// SPDX-License-Identifier: Apache-2.0

// Package ops has the status of a running balancer for operators, and its operations: the control plane fills the
// status and executes the operations, the API has them as JSON, and the command line, the doctor and the bench use
// them.
package ops

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Status is a balancer at one moment.
type Status struct {
	// At is the time of the status, by the balancer's clock; all other times are by the clock as it was set then.
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
	// Flows is the state of the flow tables; absent if no service has any.
	Flows *Flows `json:"flows,omitempty"`
	// Memory is the kernel memory in use.
	Memory *Memory `json:"memory,omitempty"`
	// Local has the counts of sockets of clients on the balancer's own host; absent where they are not served.
	Local *Local `json:"local,omitempty"`
	// Proxy is the process behind the services of mode proxy; absent where there is none.
	Proxy *ProxyEngine `json:"proxy,omitempty"`
	// BGP is the state of BGP; absent where no VIP is announced to routers.
	BGP *BGP `json:"bgp,omitempty"`
	// VRRP is the state of VRRP; absent if the VIPs are not shared by it.
	VRRP *VRRP `json:"vrrp,omitempty"`
	// Members are the other balancers that share the VIPs; absent where none is configured.
	Members *Members `json:"members,omitempty"`
	// Feeds are the sources of configuration that programs keep.
	Feeds []Feed `json:"feeds,omitempty"`
	// Operations are the differences from the configuration that operations have made.
	Operations Operations `json:"operations"`
	// Unwritten are the files that cannot be written now; writing is retried. WriteFailures counts the failed attempts
	// since the start.
	Unwritten     []Unwritten `json:"unwritten,omitempty"`
	WriteFailures uint64      `json:"write_failures"`
}

// Taken returns the time of the status, by the balancer's clock; if the balancer sends none, the time at which it came.
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
	// Since is the time of the first failure, and Error the last one.
	Since time.Time `json:"since"`
	Error string    `json:"error"`
	// Kept: the kernel keeps the content, so that it outlives a restart of the process, but not of the machine.
	Kept bool `json:"kept"`
}

// Local has the counts of a control group's sockets that were opened to a VIP.
type Local struct {
	// Cgroup is the directory of the control group.
	Cgroup string `json:"cgroup"`
	// Sockets is the number of open sockets with a backend.
	Sockets uint64 `json:"sockets"`
	// Warning names the kernel features that some of them lack.
	Warning string `json:"warning,omitempty"`
	// Events count the outcomes of these sockets; every kind of event is listed.
	Events []LocalEvent `json:"events"`
}

// LocalEvent is the count of a kind of event of sockets.
type LocalEvent struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
	Help  string `json:"help"`
}

// Flows is the state of the tables of flows.
type Flows struct {
	// Proven is the number of proven flows, whose clients have sent more than a first packet; Unproven that of the
	// others, which have a table of their own.
	Proven        uint64 `json:"proven"`
	ProvenLimit   uint64 `json:"proven_limit"`
	Unproven      uint64 `json:"unproven"`
	UnprovenLimit uint64 `json:"unproven_limit"`
	// Bytes is the kernel memory of the tables, which does not depend on the number of flows.
	Bytes uint64 `json:"bytes"`
}

// Memory is the memory that the configuration takes, in bytes: it does not depend on the number of flows.
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
	// RouteCache is for the cache of the routes of replies, which are kept for a fraction of a second.
	RouteCache uint64 `json:"ways"`
	// Fragments is for fragmented datagrams.
	Fragments uint64 `json:"fragments"`
	// Checks is for health checks of the VIP.
	Checks uint64 `json:"checks,omitempty"`
}

// Interface is an interface that packets arrive on and leave by.
type Interface struct {
	Name string `json:"name"`
	// Up: it is up and has a carrier.
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
	// Generic: XDP runs after the driver has made a socket buffer.
	Generic bool   `json:"generic"`
	Driver  string `json:"driver"`
	// Reason is the reason why this hook was selected, if the configuration leaves the choice.
	Reason string `json:"reason"`
	// Warning names packets that this attachment may lose.
	Warning string `json:"warning,omitempty"`
}

// Service is a service and its backends.
type Service struct {
	Name string `json:"name"`
	// Owner is the source of configuration that has the service: "file", or the name of a fragment.
	Owner string `json:"owner"`
	// Object is the object of a cluster that the service is for, NAMESPACE/NAME; absent if there is none, or the
	// service's name does not contain it.
	Object   string      `json:"object,omitempty"`
	VIP      netip.Addr  `json:"vip"`
	Port     uint16      `json:"port"`
	Protocol lb.Protocol `json:"protocol"`
	Mode     lb.Mode     `json:"mode"`
	// DSCP is the code point of the VIP in mode dscp; 0 in others.
	DSCP uint8 `json:"dscp,omitempty"`
	// MSS is the largest MSS that a SYN may announce, in bytes; 0: any.
	MSS       uint16       `json:"mss,omitempty"`
	Scheduler lb.Scheduler `json:"scheduler"`
	// Hash names the fields of a packet that are hashed.
	Hash lb.Hash `json:"hash"`
	// TableSize is the number of slots of the hash table.
	TableSize uint32 `json:"table_size"`
	// TableDigest has 16 hexadecimal digits. Those of two balancers are equal exactly if they send new flows of the
	// service to the same backends; absent in mode proxy.
	TableDigest string `json:"table_digest,omitempty"`
	// Tracked: every flow is remembered; otherwise only flows that a change of backends would move.
	Tracked bool `json:"tracked"`
	// Persistence is absent where there is none.
	Persistence *Persistence `json:"persistence,omitempty"`
	Limits      *Limits      `json:"limits,omitempty"`
	// Active is the number of flows that have not ended, if they are tracked, and Flows that of all remembered flows,
	// including ended ones until they expire.
	Active uint32 `json:"active"`
	Flows  uint64 `json:"flows"`
	// Serving says which backends take new flows.
	Serving Serving `json:"serving"`
	// Checks are the checks of each backend, and Require the number that must pass; absent if there is no check.
	Checks  []Check `json:"checks,omitempty"`
	Require string  `json:"require,omitempty"`
	// OnDown is the policy for flows of a backend that fails; absent where there is no check.
	OnDown lb.OnDown `json:"on_down,omitempty"`
	// Outliers are the rules for ejecting backends by their answers to clients; absent if there are none.
	Outliers *Outliers `json:"outliers,omitempty"`
	// SlowStartSeconds is the duration of a slow start; 0: there is none.
	SlowStartSeconds float64 `json:"slow_start_seconds,omitempty"`
	// Withdrawn: the VIP is not on the interface, because no backend of its services serves.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Hairpin is the treatment of clients whom backends would answer directly; absent if there are none, or they need
	// none.
	Hairpin *Hairpin `json:"hairpin,omitempty"`
	// Proxy has the settings and counters of mode proxy; absent in other modes.
	Proxy *ProxiedService `json:"proxy,omitempty"`
	// Transition is the one under way, if there is one.
	Transition *Transition `json:"transition,omitempty"`
	Backends   []Backend   `json:"backends"`
	// Discovered are the origins of backends that the configuration does not name.
	Discovered []Discovered `json:"discovered,omitempty"`
}

// Hairpin is full NAT for clients whom backends would answer directly, because they share a link or are the same host:
// so the answers come back through the balancer.
type Hairpin struct {
	// Clients are the networks of such clients.
	Clients []netip.Prefix `json:"clients"`
	// From are the source addresses that the backends see, and FirstPort to LastPort the ports; 0 if there are none,
	// and the clients are refused.
	From      []netip.Addr `json:"from,omitempty"`
	FirstPort uint16       `json:"first_port"`
	LastPort  uint16       `json:"last_port"`
	// Active is the number of their flows that have not ended.
	Active uint32 `json:"active"`
}

// SlowStart is the progress of a backend's slow start.
type SlowStart struct {
	// Percent is the present share of its weight.
	Percent uint16 `json:"percent"`
	// Until is the end of the slow start.
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
	// EjectedPercent is the largest share of the backends that may be ejected at a time.
	EjectedPercent uint8 `json:"ejected_percent"`
}

// Ejection is a time in which a backend takes no new flows because of its answers to clients.
type Ejection struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Times is the number of ejections, less one for each interval without failures since.
	Times uint32 `json:"times"`
	// Reason is the reason why the backend was ejected.
	Reason string `json:"reason"`
}

// Persistence sends a client's flows to one backend.
type Persistence struct {
	TimeoutSeconds float64 `json:"timeout_seconds"`
	// Prefix is the number of bits of the address that identify a client.
	Prefix uint8 `json:"prefix"`
	// Group names the services that send a client to one host; empty where there is none.
	Group string `json:"group,omitempty"`
}

// Limits bound the new flows of a service; 0: no bound.
type Limits struct {
	// Rate is in new flows a second, and Burst the number that may exceed it at once.
	Rate  uint32 `json:"rate,omitempty"`
	Burst uint32 `json:"burst,omitempty"`
	// Connections bounds the active flows.
	Connections uint32 `json:"connections,omitempty"`
	// Refuse is the treatment of the others.
	Refuse lb.Refusal `json:"refuse,omitempty"`
}

// Transition is the time after a change of backends in which flows of moved slots are remembered.
type Transition struct {
	Since time.Time `json:"since"`
	// Until is when the base is dropped; zero: it was, and only remembered flows are still looked up.
	Until time.Time `json:"until,omitzero"`
	// MovedSlots of Slots have another backend than before, or have had since; all of them while there is no backend
	// for new flows.
	MovedSlots int `json:"moved_slots"`
	Slots      int `json:"slots"`
	// Base: the base still exists.
	Base bool `json:"base"`
}

// Backend is a backend, its observed state, and its counters since it was configured.
type Backend struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	// Weight is the weight in force; ConfiguredWeight is present if the configuration has another.
	Weight           uint16          `json:"weight"`
	ConfiguredWeight *uint16         `json:"configured_weight,omitempty"`
	State            lb.BackendState `json:"state"`
	// Drain is the operation that drained it.
	Drain *Drained `json:"drain,omitempty"`
	// Forced is the operation by which it takes new flows whatever its health checks and ejections say.
	Forced *Forced `json:"forced,omitempty"`
	// Neighbour is the state of the next hop's neighbour entry (ARP, NDP).
	Neighbour string `json:"neighbour"`
	// Reason is the reason why the backend gets no packets, as in "does not answer ARP requests"; empty if it does.
	Reason string `json:"reason,omitempty"`
	// Since is the time since which there is a Reason; absent for a moment at first.
	Since time.Time `json:"since,omitzero"`
	// Interface is the interface that packets leave by, and NextHop the router or the backend itself. Empty without a
	// route.
	Interface string     `json:"interface,omitempty"`
	NextHop   netip.Addr `json:"next_hop,omitzero"`
	// MAC is the next hop's; empty while unknown.
	MAC string `json:"mac"`
	// MTU is the size of the largest IP packet on the way there, in bytes, headers
	// that the mode adds included; 0 without a route.
	MTU int `json:"mtu,omitempty"`
	// Narrow: a router on the path has reported the MTU, for the balancer's own tunnel packets.
	Narrow  bool   `json:"narrow,omitempty"`
	Packets uint64 `json:"packets"`
	// Bytes are the bytes of IP packets as they came, without the Ethernet frame.
	Bytes uint64 `json:"bytes"`
	// ReturnedPackets and ReturnedBytes count replies that came back through the balancer, in the modes nat and
	// fullnat; in mode proxy the content's bytes.
	ReturnedPackets uint64 `json:"returned_packets,omitempty"`
	ReturnedBytes   uint64 `json:"returned_bytes,omitempty"`
	// Answered is the number of SYNs that it answered with SYN and ACK, Refused of those with RST, and Unreachable of
	// its ICMP errors "destination unreachable", in those modes.
	Answered    uint64 `json:"answered,omitempty"`
	Refused     uint64 `json:"refused,omitempty"`
	Unreachable uint64 `json:"unreachable,omitempty"`
	// Connections is the number of new flows; if no flows are tracked, of forwarded SYNs.
	Connections uint64 `json:"connections"`
	// Active is the number of flows that have not ended, if they are tracked; at Upper it is full (0: never), until
	// there are fewer than Lower (0: than Upper).
	Active uint32 `json:"active"`
	Upper  uint32 `json:"upper,omitempty"`
	Lower  uint32 `json:"lower,omitempty"`
	// Flows is the number of remembered flows to it, including ended ones until they expire; at most some seconds old.
	Flows uint64 `json:"flows"`
	// Proxied has counters that only the proxy keeps, in mode proxy; absent in others. Connections and Active are those
	// that it has opened to the backend, Bytes went there, and ReturnedBytes came from there.
	Proxied *Proxied `json:"proxied,omitempty"`
	// Ports is the use of full NAT's pool for this backend; absent in other modes.
	Ports *Ports `json:"ports,omitempty"`
	// Backup: it takes new flows only while no other backend does.
	Backup bool `json:"backup,omitempty"`
	// Origin is where it was found; absent where the configuration names it.
	Origin lb.Origin `json:"origin,omitempty"`
	// SlowStart is absent where the backend has all of its weight.
	SlowStart *SlowStart `json:"slow_start,omitempty"`
	// Ejection is absent if the backend is not ejected. Spared is the reason for which a failing backend is not; empty:
	// it does not fail.
	Ejection *Ejection `json:"ejection,omitempty"`
	Spared   string    `json:"spared,omitempty"`
	// Health is the result of the checks; absent where there is none.
	Health *Health `json:"health,omitempty"`
}

// Ports are a backend's source ports in full NAT's pool. Each open flow holds one; services
// with the same backend, port and protocol share them, and each shows the sum.
type Ports struct {
	// Held is the number of ports that no new flow can get, at most some seconds old: those of proven flows that have
	// not ended.
	Held uint64 `json:"held"`
	// Limit is the number of ports: the pool's addresses of the backend's family, times its ports.
	Limit uint64 `json:"limit"`
	// Scarce: Held has reached 80 % of Limit, and has not been below 70 % since.
	Scarce bool `json:"scarce"`
}

// Outcome is the number of packets with an outcome.
type Outcome struct {
	Name    string `json:"name"`
	Packets uint64 `json:"packets"`
	Help    string `json:"help"`
	// Remedy is the remedy; absent if no packet is lost.
	Remedy string `json:"remedy,omitempty"`
}
