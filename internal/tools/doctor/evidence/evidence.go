// SPDX-License-Identifier: Apache-2.0

// Package evidence holds the readings and answers of a look at a host, and small questions about them. It reads nothing
// itself.
package evidence

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/bpfhost"
	"github.com/jeoul/jeoul/internal/host/drops"
)

// Evidence is all that was seen: two readings of counters, and the drops, announcements and answers in between.
// Findings follow from it alone.
type Evidence struct {
	Seconds float64 `json:"seconds"`
	Before  Reading `json:"before"`
	After   Reading `json:"after"`
	// Drops are the drops in this host's network namespace; Traced says that the kernel's tracepoints were read.
	Drops  []drops.Drop `json:"drops,omitempty"`
	Traced bool         `json:"traced"`
	// Machine: this is the machine's initial namespace, so that the kernel's machine-wide counters are this host's.
	Machine bool   `json:"machine"`
	Wire    Wire   `json:"wire"`
	Flows   Flows  `json:"flows"`
	Paths   []Path `json:"paths,omitempty"`
	// Lacks are the features of the kernel that programs of a balancer, or of an agent, need, and that it lacks.
	Lacks []bpfhost.MissingFeature `json:"lacks,omitempty"`
}

// Reading is everything that is counted, at one moment. A part that could not be read is nil.
type Reading struct {
	// Protocols are the counters of /proc/net/snmp, netstat and snmp6, by the names
	// that nstat(8) gives them: "TcpExtListenDrops".
	Protocols  map[string]uint64 `json:"protocols,omitempty"`
	CPUs       []CPU             `json:"cpus,omitempty"`
	Links      []Link            `json:"links,omitempty"`
	Neighbours []Neighbour       `json:"neighbours,omitempty"`
	// TableFulls counts neighbours for which there was no room, on the whole machine.
	TableFulls uint64      `json:"neighbour_table_fulls,omitempty"`
	Conntrack  *Conntrack  `json:"conntrack,omitempty"`
	Sockets    *Sockets    `json:"sockets,omitempty"`
	Balancer   *ops.Status `json:"balancer,omitempty"`
}

// Wire has the answers on the segment to questions that do no harm, and the announcements that others made unasked.
type Wire struct {
	// Claims are the MAC addresses that an address was claimed for, by ARP or NDP.
	Claims []Claim `json:"claims,omitempty"`
	// Echoes say which backends have which VIP.
	Echoes []Echo `json:"echoes,omitempty"`
	// Provoked are answers that bore a VIP for their sender: the kernel of the balancer,
	// whose address that is, drops them (IP_LOCAL_SOURCE).
	Provoked uint64 `json:"provoked,omitempty"`
}

// Claim is a resolved address, and the hosts that claimed it.
type Claim struct {
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface"`
	// VIP: the address is a VIP.
	VIP bool `json:"vip,omitempty"`
	// Known is the neighbour table's MAC address; empty if it has none that is used.
	Known string `json:"known,omitempty"`
	// MACs are the MAC addresses of other hosts that claimed it; Ours: this host did.
	MACs []string `json:"macs,omitempty"`
	Ours bool     `json:"ours,omitempty"`
}

// Echo is whether a backend answers pings to its own address and to a VIP, both sent
// to its MAC address. Where Port is not 0, the backend is a node of a cluster, and was asked for a connection to the
// VIP and port instead.
type Echo struct {
	Backend string     `json:"backend"`
	Address netip.Addr `json:"address"`
	VIP     netip.Addr `json:"vip"`
	Port    uint16     `json:"port,omitempty"`
	Own     bool       `json:"own_answered"`
	Has     bool       `json:"vip_answered"`
}

// CPU is the work of one core since the machine was started; of the whole machine.
type CPU struct {
	Index int `json:"index"`
	// Processed, Dropped and Squeezed are of /proc/net/softnet_stat: packets taken,
	// packets for which its queue had no room, and how often it stopped with packets
	// left. The kernel counts them in 32 bits.
	Processed uint32 `json:"processed"`
	Dropped   uint32 `json:"dropped"`
	Squeezed  uint32 `json:"squeezed"`
	// Softirq and Total are seconds; the kernel's packet work is in the first.
	Softirq float64 `json:"softirq"`
	Total   float64 `json:"total"`
}

// Conntrack is the kernel's table of connections, of this network namespace.
type Conntrack struct {
	Entries uint64 `json:"entries"`
	// Limit is the whole machine's, and holds for each namespace by itself.
	Limit uint64 `json:"limit"`
	// Drop are packets for which there was no room or no memory, EarlyDrop
	// connections that were forgotten to make some, InsertFailed those that another
	// was quicker than.
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
	// XDP: a program is attached.
	XDP bool `json:"xdp,omitempty"`
	// Watched: its counters were requested.
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
	// Driver are the driver's own counters, as `ethtool -S` shows them, but for zeros.
	Driver map[string]uint64 `json:"driver,omitempty"`
}

// Neighbour is an entry of the kernel's neighbour table (ARP, NDP).
type Neighbour struct {
	Address   netip.Addr `json:"address"`
	Interface int        `json:"interface"`
	// State is a state of the kernel's, such as "FAILED".
	State string `json:"state"`
	MAC   string `json:"mac,omitempty"`
	// Since is how long it has been in that state, in seconds.
	Since float64 `json:"since"`
	// Gateway: a route leads by it.
	Gateway bool `json:"gateway,omitempty"`
}

// Sockets are counts of TCP's sockets.
type Sockets struct {
	// Listeners are the listening sockets whose queue is not empty.
	Listeners []Listener `json:"listeners,omitempty"`
	Ports     PortRange  `json:"ports"`
	// Established counts established connections.
	Established int `json:"established"`
	// Destinations are the destinations with the most connections from this host.
	Destinations []Destination `json:"destinations,omitempty"`
	// Hanging are connections whose data is sent again and again.
	Hanging []Hanging `json:"hanging,omitempty"`
}

// Listener is a listening socket: how many connections wait to be accepted, of how
// many that may.
type Listener struct {
	Address netip.AddrPort `json:"address"`
	Queue   uint32         `json:"queue"`
	Limit   uint32         `json:"limit"`
}

// PortRange is the range of local ports that the kernel chooses from.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
	// Reserved is how many ports in it the kernel may not choose.
	Reserved int `json:"reserved,omitempty"`
	// Reuse: ports in TIME-WAIT may be reused.
	Reuse bool `json:"reuse,omitempty"`
}

// Destination is where connections go, and the local ports that are taken for it.
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
	// Timeouts is the number of timeouts since data was acknowledged last.
	Timeouts uint8 `json:"timeouts"`
	// MSS and PathMTU are in bytes; Acknowledged and Received bytes of payload.
	MSS          uint32 `json:"mss"`
	PathMTU      uint32 `json:"path_mtu"`
	Acknowledged uint64 `json:"acknowledged"`
	Received     uint64 `json:"received"`
}

// Flows is the behaviour of backends by the packets of clients, as they passed the balancer.
type Flows struct {
	Packets int `json:"packets"`
	// Lost came too fast to be reported.
	Lost uint64 `json:"lost,omitempty"`
	// Seconds is how long packets were followed.
	Seconds  float64         `json:"seconds"`
	Backends []BackendTiming `json:"backends,omitempty"`
}

// BackendTiming is the behaviour of connections to a backend, seen from the balancer.
type BackendTiming struct {
	// Name is SERVICE/BACKEND.
	Name    string     `json:"name"`
	Service string     `json:"service"`
	Address netip.Addr `json:"address"`
	// Opened are connections whose first SYN was seen, Answered those of them whose client continued, and Silent those
	// whose client retransmitted or waited for long.
	Opened   int `json:"opened"`
	Answered int `json:"answered"`
	Silent   int `json:"silent"`
	// Repeats is the largest number of retransmissions of a SYN.
	Repeats int `json:"repeats,omitempty"`
	// Responses are from a client's request to its acknowledgement of the answer, in milliseconds: their number and
	// median. The client's way there and back is part of them, the same for all backends.
	Responses int     `json:"responses"`
	MedianMs  float64 `json:"median_ms"`
}

// Path is the result of pings to an address that may not be fragmented.
type Path struct {
	Address netip.Addr `json:"address"`
	// Size is that of the largest packet that should pass, in bytes of the IP packet.
	Size int `json:"size"`
	// Small and Large report whether a small one and one of that size were answered.
	Small bool `json:"small_answered"`
	Large bool `json:"large_answered"`
	// Told: a router reported it too big (path MTU discovery works).
	Told bool `json:"told,omitempty"`
	// Passes is the largest of the sizes tried that was answered.
	Passes int `json:"passes,omitempty"`
}
