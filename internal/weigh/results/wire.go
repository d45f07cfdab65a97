// SPDX-License-Identifier: Apache-2.0

package results

// The metrics of packet-level loads, each of one offered rate. The main one is
// ConnectionsPerSecond (set up), SessionsPerSecond (set up, served and closed),
// QueriesPerSecond (answered) or PacketsPerSecond (arrived).
const (
	SessionsPerSecond = "sessions_per_second"
	QueriesPerSecond  = "queries_per_second"
	// OfferedPerSecond is the rate that was asked of the tester, or, where it was to
	// send as much as it can, that at which it began; BegunPerSecond is always the latter.
	OfferedPerSecond = "offered_per_second"
	BegunPerSecond   = "begun_per_second"
	// WireBegun are connections (queries, packets) that were begun, WireEstablished those
	// whose handshake was completed (that were answered), WireCompleted those that were
	// closed by both sides, or proven to be alive. WireAccepted are those that servers
	// accepted: through a proxy fewer than were established with itself.
	WireBegun       = "begun"
	WireAccepted    = "accepted"
	WireEstablished = "established"
	WireCompleted   = "completed"
	// FailedNoAnswer and those behind it count the connections of Failed by cause.
	FailedNoAnswer     = "failed_no_answer"
	FailedReset        = "failed_reset"
	FailedWrongBackend = "failed_wrong_backend"
	FailedChecksum     = "failed_checksum"
	FailedUnsent       = "failed_unsent"
	// FailedPercent is Failed by WireBegun.
	FailedPercent = "failed_percent"
	// Retransmitted are packets that the tester sent again; the others are packets that
	// are in no result: late, twice, of or for no known connection, broken.
	Retransmitted     = "retransmitted"
	StrangeLate       = "strange_late"
	StrangeDuplicate  = "strange_duplicate"
	StrangeStranger   = "strange_stranger"
	StrangeChecksum   = "strange_checksum"
	StrangeMalformed  = "strange_malformed"
	StrangeOtherFlows = "strange_wrong_backend"
	StrangeUnknown    = "strange_unacknowledgeable"
	// SetupLatencyMsP50 and its like are from the first SYN to its SYN-ACK, ResponseLatencyMsP50 and its like from a
	// request to the first byte of its answer.
	SetupLatencyMsP50    = "setup_latency_ms_p50"
	SetupLatencyMsP99    = "setup_latency_ms_p99"
	SetupLatencyMsMax    = "setup_latency_ms_max"
	ResponseLatencyMsP50 = "response_latency_ms_p50"
	ResponseLatencyMsP99 = "response_latency_ms_p99"
	ResponseLatencyMsMax = "response_latency_ms_max"
	// WireSent and WireReceived are packets of all ports of the tester, both sides; LostToServers and LostToClients are
	// those lost between them, each way.
	WireSent      = "packets_sent"
	WireReceived  = "packets_received"
	LostToServers = "packets_lost_to_servers"
	LostToClients = "packets_lost_to_clients"
	// TesterKeptUp is 1 where the tester itself offered the rate that was asked of it, and 0 where it did not;
	// TesterBehindMs is how late it was at worst.
	TesterKeptUp   = "tester_kept_up"
	TesterBehindMs = "tester_behind_ms_max"
	// CeilingPerSecond is the tester's own rate under the same load without a balancer.
	CeilingPerSecond = "ceiling_per_second"
	// UnevennessPercent is the greatest difference of a server's connections from an equal
	// share, in per cent of that.
	UnevennessPercent = "unevenness_percent"
	// BalancerCPUUsPerConnection is the balancer's CPU time, its kernel's work on packets included, for each connection
	// (session, query, packet).
	BalancerCPUUsPerConnection = "balancer_cpu_us_per_connection"
	// FloodSentPerSecond are the SYNs of a flood beside the load, FloodArrivedPerSecond
	// those of them that came to servers.
	FloodSentPerSecond    = "flood_sent_per_second"
	FloodArrivedPerSecond = "flood_arrived_per_second"
	// RememberedMax is how much the balancer kept for flows at most; RememberedBytes is the
	// memory for it, where the balancer tells it, and MachineBytes by how much the
	// machine's available memory fell meanwhile.
	RememberedMax = "remembered_max"
	MachineBytes  = "machine_memory_bytes"
)
