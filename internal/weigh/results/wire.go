// SPDX-License-Identifier: Apache-2.0

package results

// The metrics of packet-level loads, each of one offered rate. The main one is
// ConnectionsPerSecond (set up), SessionsPerSecond (set up, served and closed),
// QueriesPerSecond (answered) or PacketsPerSecond (arrived).
const (
	SessionsPerSecond = "sessions_per_second"
	QueriesPerSecond  = "queries_per_second"
	// OfferedPerSecond is the rate that the tester was asked for, or, where it was to send as much as possible, the
	// rate at which it began; BegunPerSecond is always the latter.
	OfferedPerSecond = "offered_per_second"
	BegunPerSecond   = "begun_per_second"
	// WireBegun is the number of connections (queries, packets) that were begun, WireEstablished the number of those
	// whose handshake was completed (that were answered), and WireCompleted the number of those that both sides closed,
	// or that were proven to be alive. WireAccepted is the number that servers accepted: through a proxy, fewer than
	// the proxy established with clients.
	WireBegun       = "begun"
	WireAccepted    = "accepted"
	WireEstablished = "established"
	WireCompleted   = "completed"
	// FailedNoAnswer and those below it count the connections of Failed by cause.
	FailedNoAnswer     = "failed_no_answer"
	FailedReset        = "failed_reset"
	FailedWrongBackend = "failed_wrong_backend"
	FailedChecksum     = "failed_checksum"
	FailedUnsent       = "failed_unsent"
	// FailedPercent is Failed divided by WireBegun.
	FailedPercent = "failed_percent"
	// Retransmitted is the number of packets that the tester sent again. The others count packets that are in no
	// result: late, twice, of or for no known connection, broken.
	Retransmitted               = "retransmitted"
	UnexpectedLate              = "strange_late"
	UnexpectedDuplicate         = "strange_duplicate"
	UnexpectedUnknownPeer       = "strange_stranger"
	UnexpectedChecksum          = "strange_checksum"
	UnexpectedMalformed         = "strange_malformed"
	UnexpectedOtherFlows        = "strange_wrong_backend"
	UnexpectedUnacknowledgeable = "strange_unacknowledgeable"
	// SetupLatencyMsP50 and its like are the times from the first SYN to its SYN-ACK, ResponseLatencyMsP50 and its like
	// the times from a request to the first byte of its answer.
	SetupLatencyMsP50    = "setup_latency_ms_p50"
	SetupLatencyMsP99    = "setup_latency_ms_p99"
	SetupLatencyMsMax    = "setup_latency_ms_max"
	ResponseLatencyMsP50 = "response_latency_ms_p50"
	ResponseLatencyMsP99 = "response_latency_ms_p99"
	ResponseLatencyMsMax = "response_latency_ms_max"
	// WireSent and WireReceived are the packets of all ports of the tester, on both sides; LostToServers and
	// LostToClients are the packets lost between them, in each direction.
	WireSent      = "packets_sent"
	WireReceived  = "packets_received"
	LostToServers = "packets_lost_to_servers"
	LostToClients = "packets_lost_to_clients"
	// TesterKeptUp is 1 where the tester itself offered the rate that it was asked for, and 0 where it did not;
	// TesterBehindMs is its greatest delay.
	TesterKeptUp   = "tester_kept_up"
	TesterBehindMs = "tester_behind_ms_max"
	// CeilingPerSecond is the tester's own rate under the same load without a balancer.
	CeilingPerSecond = "ceiling_per_second"
	// UnevennessPercent is the greatest difference of a server's connections from an equal share, in per cent of that
	// share.
	UnevennessPercent = "unevenness_percent"
	// BalancerCPUUsPerConnection is the balancer's CPU time, its kernel's work on packets included, for each connection
	// (session, query, packet).
	BalancerCPUUsPerConnection = "balancer_cpu_us_per_connection"
	// FloodSentPerSecond is the rate of the SYNs of a flood beside the load, FloodArrivedPerSecond the rate of those
	// that reached servers.
	FloodSentPerSecond    = "flood_sent_per_second"
	FloodArrivedPerSecond = "flood_arrived_per_second"
	// RememberedMax is the greatest number of entries that the balancer kept for flows; RememberedBytes is the memory
	// for them, where the balancer reports it, and MachineBytes by how much the machine's available memory fell during
	// the load.
	RememberedMax = "remembered_max"
	MachineBytes  = "machine_memory_bytes"
)
