// SPDX-License-Identifier: Apache-2.0

// Package evidence holds the readings and answers of an examination of a host, and small queries on them. It reads
// nothing itself.
package evidence

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/bpfhost"
	"github.com/jeoul/jeoul/internal/host/drops"
)

// Evidence is everything that was observed: two readings of counters, and the drops, announcements and answers in
// between. Findings follow from it alone.
type Evidence struct {
	Seconds float64 `json:"seconds"`
	Before  Reading `json:"before"`
	After   Reading `json:"after"`
	// Drops are the drops in this host's network namespace. Traced is true if the kernel's tracepoints were read.
	Drops  []drops.Drop `json:"drops,omitempty"`
	Traced bool         `json:"traced"`
	// Machine is true in the machine's initial namespace, where the kernel's machine-wide counters are this host's.
	Machine bool   `json:"machine"`
	Wire    Wire   `json:"wire"`
	Flows   Flows  `json:"flows"`
	Paths   []Path `json:"paths,omitempty"`
	// Lacks are the kernel features that programs of a balancer or an agent need and this kernel lacks.
	Lacks []bpfhost.MissingFeature `json:"lacks,omitempty"`
}

// Reading has all counters at one moment. A part that could not be read is nil.
type Reading struct {
	// Protocols are the counters of /proc/net/snmp, netstat and snmp6, by their names in nstat(8), such as
	// "TcpExtListenDrops".
	Protocols  map[string]uint64 `json:"protocols,omitempty"`
	CPUs       []CPU             `json:"cpus,omitempty"`
	Links      []Link            `json:"links,omitempty"`
	Neighbours []Neighbour       `json:"neighbours,omitempty"`
	// TableFulls counts neighbours that did not fit in the neighbour table, on the whole machine.
	TableFulls uint64      `json:"neighbour_table_fulls,omitempty"`
	Conntrack  *Conntrack  `json:"conntrack,omitempty"`
	Sockets    *Sockets    `json:"sockets,omitempty"`
	Balancer   *ops.Status `json:"balancer,omitempty"`
	// hopNames are the names of the balancer's next hops; nil: not collected yet.
	hopNames map[netip.Addr]string
}

// Wire has the answers to harmless probes on the segment, and the unsolicited announcements of other hosts.
type Wire struct {
	// Claims are the resolved addresses, with the MAC addresses that claimed them by ARP or NDP.
	Claims []Claim `json:"claims,omitempty"`
	// Echoes report which backends have which VIP.
	Echoes []Echo `json:"echoes,omitempty"`
	// Provoked counts answers to the probes with a VIP as their source. The kernel of the balancer drops them
	// (IP_LOCAL_SOURCE), because it has that address itself.
	Provoked uint64 `json:"provoked,omitempty"`
}

// Claim is a resolved address, and the hosts that claimed it.
type Claim struct {
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface"`
	// VIP is true if the address is a VIP.
	VIP bool `json:"vip,omitempty"`
	// Known is the MAC address in the neighbour table; empty if it has none in use.
	Known string `json:"known,omitempty"`
	// MACs are the MAC addresses of other hosts that claimed the address. Ours is true if this host did.
	MACs []string `json:"macs,omitempty"`
	Ours bool     `json:"ours,omitempty"`
}

// Echo reports whether a backend answers pings to its own address and to a VIP, both sent to its MAC address. If Port
// is not 0, the backend is a cluster node, and the probe for the VIP was a connection to the VIP and port instead.
type Echo struct {
	Backend string     `json:"backend"`
	Address netip.Addr `json:"address"`
	VIP     netip.Addr `json:"vip"`
	Port    uint16     `json:"port,omitempty"`
	Own     bool       `json:"own_answered"`
	Has     bool       `json:"vip_answered"`
}

// CPU is the work of one core since the machine started, for the whole machine.
type CPU struct {
	Index int `json:"index"`
	// Processed, Dropped and Squeezed are from /proc/net/softnet_stat: packets processed, packets dropped because the
	// backlog queue was full, and how often processing stopped with packets left. The kernel counts them in 32 bits.
	Processed uint32 `json:"processed"`
	Dropped   uint32 `json:"dropped"`
	Squeezed  uint32 `json:"squeezed"`
	// Softirq and Total are in seconds. The kernel processes packets in softirqs.
	Softirq float64 `json:"softirq"`
	Total   float64 `json:"total"`
}

// Conntrack is the connection tracking table of this network namespace.
type Conntrack struct {
	Entries uint64 `json:"entries"`
	// Limit is machine-wide, and applies to each namespace separately.
	Limit uint64 `json:"limit"`
	// Drop counts packets that were dropped for lack of room or memory. EarlyDrop counts connections that were evicted
	// to make room. InsertFailed counts packets whose connection lost a race with another one.
	Drop         uint64 `json:"drop"`
	EarlyDrop    uint64 `json:"early_drop"`
	InsertFailed uint64 `json:"insert_failed"`
}

// Link is an interface and its counters.
type Link struct {
	Name      string         `json:"name"`
	Index     int            `json:"index"`
	Up        bool           `json:"up"`
	MTU       int            `json:"mtu"`
	MAC       string         `json:"mac"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// XDP is true if an XDP program is attached.
	XDP bool `json:"xdp,omitempty"`
	// Watched is true if the interface's counters were requested.
	Watched    bool   `json:"watched,omitempty"`
	RxPackets  uint64 `json:"rx_packets,omitempty"`
	RxDropped  uint64 `json:"rx_dropped,omitempty"`
	RxMissed   uint64 `json:"rx_missed,omitempty"`
	RxErrors   uint64 `json:"rx_errors,omitempty"`
	TxPackets  uint64 `json:"tx_packets,omitempty"`
	TxDropped  uint64 `json:"tx_dropped,omitempty"`
	TxErrors   uint64 `json:"tx_errors,omitempty"`
	QdiscDrops uint64 `json:"qdisc_drops,omitempty"`
	QdiscSent  uint64 `json:"qdisc_sent,omitempty"`
	// Driver has the driver's own counters that are not 0, as `ethtool -S` shows them.
	Driver map[string]uint64 `json:"driver,omitempty"`
}

// Neighbour is an entry of the kernel's neighbour table (ARP, NDP).
type Neighbour struct {
	Address   netip.Addr `json:"address"`
	Interface int        `json:"interface"`
	// State is the kernel's name of the state, such as "FAILED".
	State string `json:"state"`
	MAC   string `json:"mac,omitempty"`
	// Since is the time in that state, in seconds.
	Since float64 `json:"since"`
	// Gateway is true if a route uses the neighbour as its gateway.
	Gateway bool `json:"gateway,omitempty"`
}

// Sockets has the counts of TCP sockets.
type Sockets struct {
	// Listeners are the listening sockets whose queue is not empty.
	Listeners []Listener `json:"listeners,omitempty"`
	Ports     PortRange  `json:"ports"`
	// Established counts established connections.
	Established int `json:"established"`
	// Destinations are the destinations with the most connections from this host.
	Destinations []Destination `json:"destinations,omitempty"`
	// Hanging are connections that retransmit again and again.
	Hanging []Hanging `json:"hanging,omitempty"`
}

// Listener is a listening socket: the number of connections that wait to be accepted, and their maximum.
type Listener struct {
	Address netip.AddrPort `json:"address"`
	Queue   uint32         `json:"queue"`
	Limit   uint32         `json:"limit"`
}

// PortRange is the range from which the kernel selects local ports.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
	// Reserved is the number of ports in the range that the kernel may not select.
	Reserved int `json:"reserved,omitempty"`
	// Reuse is true if ports in TIME-WAIT may be reused.
	Reuse bool `json:"reuse,omitempty"`
}

// Destination is a destination of connections, and the number of local ports in use for it.
type Destination struct {
	From     netip.Addr     `json:"from"`
	To       netip.AddrPort `json:"to"`
	Ports    int            `json:"ports"`
	TimeWait int            `json:"time_wait,omitempty"`
}

// Hanging is a connection whose peer does not acknowledge data.
type Hanging struct {
	Local netip.AddrPort `json:"local"`
	Peer  netip.AddrPort `json:"peer"`
	// Timeouts is the number of timeouts since data was last acknowledged.
	Timeouts uint8 `json:"timeouts"`
	// MSS and PathMTU are in bytes. Acknowledged and Received are in bytes of payload.
	MSS          uint32 `json:"mss"`
	PathMTU      uint32 `json:"path_mtu"`
	Acknowledged uint64 `json:"acknowledged"`
	Received     uint64 `json:"received"`
}

// Flows describes the behaviour of backends, derived from the packets of clients that passed the balancer.
type Flows struct {
	Packets int `json:"packets"`
	// Lost counts packets that came too fast to be reported.
	Lost uint64 `json:"lost,omitempty"`
	// Seconds is the time during which packets were followed.
	Seconds  float64         `json:"seconds"`
	Backends []BackendTiming `json:"backends,omitempty"`
}

// BackendTiming describes the connections to a backend as the balancer sees them.
type BackendTiming struct {
	// Name is SERVICE/BACKEND.
	Name    string     `json:"name"`
	Service string     `json:"service"`
	Address netip.Addr `json:"address"`
	// Opened counts connections whose first SYN was seen. Answered counts those whose client continued. Silent counts
	// those whose client retransmitted or waited for long.
	Opened   int `json:"opened"`
	Answered int `json:"answered"`
	Silent   int `json:"silent"`
	// Repeats is the largest number of retransmissions of a SYN.
	Repeats int `json:"repeats,omitempty"`
	// Responses is the number of response times, and MedianMs their median in milliseconds. A response time lasts from
	// a client's request to its acknowledgement of the answer. It includes the round trip to the client, which is the
	// same for all backends.
	Responses int     `json:"responses"`
	MedianMs  float64 `json:"median_ms"`
}

// Path is the result of pings to an address with the don't-fragment bit.
type Path struct {
	Address netip.Addr `json:"address"`
	// Size is the largest packet that should pass, in bytes of the IP packet.
	Size int `json:"size"`
	// Small and Large report whether a small packet and one of Size were answered.
	Small bool `json:"small_answered"`
	Large bool `json:"large_answered"`
	// Told is true if a router reported the packet as too big (path MTU discovery works).
	Told bool `json:"told,omitempty"`
	// Passes is the largest tried size that was answered.
	Passes int `json:"passes,omitempty"`
}
