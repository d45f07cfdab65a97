// SPDX-License-Identifier: Apache-2.0

package results

// The metrics of a change experiment, each of one event. A connection is one that
// was held open from before the event, unless it is called new.
const (
	// Connections is how many connections were held when the event began.
	Connections = "connections"
	// Broken is how many connections to backends that stayed broke, in whatever way; the others count them by cause: by
	// a TCP reset, by an orderly end, without an answer within the client's timeout, or because another server
	// answered, or wrongly.
	Broken       = "broken"
	BrokenReset  = "broken_reset"
	BrokenClosed = "broken_closed"
	BrokenSilent = "broken_silent"
	BrokenMoved  = "broken_moved"
	BrokenWrong  = "broken_wrong"
	// BrokenYoung counts those of Broken that were younger than a second when packets moved between balancers, or
	// opened later; BrokenOlder are those that were older. Both are missing in events without a change of balancers.
	// Those beyond some hundred of each client are in neither.
	BrokenYoung = "broken_young"
	BrokenOlder = "broken_older"
	// Ended are connections to the backend that left which ended: that is expected.
	Ended = "ended"
	// NewConnections is how many were opened meanwhile and answered, NewFailed those that were not, NewToLeft those
	// that a backend answered which takes no new ones, begun after the change was done.
	NewConnections = "new_connections"
	NewFailed      = "new_failed"
	NewToLeft      = "new_to_left"
	// UDPQueries and UDPUnanswered are of all UDP queries; UDPMoved are answers to
	// a UDP flow by another backend than before, which had stayed, UDPMovedOfLeft
	// the same where it had left.
	UDPQueries     = "udp_queries"
	UDPUnanswered  = "udp_unanswered"
	UDPMoved       = "udp_moved"
	UDPMovedOfLeft = "udp_moved_of_left"
	// ReusedConnections is how many connections from local ports that are used again and again were answered,
	// ReusedFailed those that were not, and ReusedTaken those that could not be tried, because the port was not free
	// yet. LostSYNs are their SYNs after which the client's kernel had to send another, or that none answered.
	ReusedConnections = "reused_connections"
	ReusedFailed      = "reused_failed"
	ReusedTaken       = "reused_taken"
	LostSYNs          = "lost_syns"
	// SilentSeconds is how long a backend's host was silent. NoticedSeconds is the time from then until the balancer
	// showed that it knew, missing where it never did, and BackSeconds that until it showed that the host was back.
	// Losses until it was noticed are Before, later ones After; without notice all are Before.
	SilentSeconds       = "silent_seconds"
	NoticedSeconds      = "noticed_seconds"
	BackSeconds         = "back_seconds"
	LostSYNsBefore      = "lost_syns_before"
	LostSYNsAfter       = "lost_syns_after"
	ReusedFailedBefore  = "reused_failed_before"
	ReusedFailedAfter   = "reused_failed_after"
	UDPUnansweredBefore = "udp_unanswered_before"
	UDPUnansweredAfter  = "udp_unanswered_after"
	// FaultSeconds is how long a backend's service was gone, or hung; NoticedSeconds and
	// BackSeconds are then of that. InFlight are new connections that failed and had begun
	// before it, NewFailedBefore those begun until the balancer showed that it knew, and
	// NewFailedAfter those begun later; LastFailedSeconds is from the fault to the beginning of
	// the last, missing where none failed.
	FaultSeconds      = "fault_seconds"
	InFlight          = "in_flight_failed"
	NewFailedBefore   = "new_failed_before"
	NewFailedAfter    = "new_failed_after"
	LastFailedSeconds = "last_failed_seconds"
	// ResetByDrained are connections that a drained backend reset, CameAgain those that
	// came again from the same port and were answered, AgainToDrained those of them that
	// the drained backend answered.
	ResetByDrained = "reset_by_drained"
	CameAgain      = "came_again"
	AgainToDrained = "again_to_drained"
	// NumberedSent are numbered datagrams that were sent meanwhile, NumberedMissing those whose
	// number came to no server, NumberedTwice those whose number came again. Of those missing,
	// NumberedBefore did not come to the switch's port to the balancer, NumberedBalancer came to it
	// and did not come back by it, and NumberedBehind came back: only the second can be the
	// balancer's loss, or that of its cable.
	NumberedSent      = "numbered_sent"
	NumberedMissing   = "numbered_missing"
	NumberedBefore    = "numbered_missing_before"
	NumberedBalancer  = "numbered_missing_balancer"
	NumberedBehind    = "numbered_missing_behind"
	NumberedTwice     = "numbered_twice"
	NumberedPerSecond = "numbered_per_second"
	// BackendResets are TCP resets that backends sent: packets came to one that
	// did not know the connection, or a client had given one up.
	BackendResets = "backend_resets"
	// Applied is how many changes the event consists of, and the times how long one took
	// until the subject reported, or showed, that it was done.
	Applied       = "applied_changes"
	AppliedMsMean = "applied_ms_mean"
	AppliedMsMax  = "applied_ms_max"
	// TrackedFlowsBefore and its like are the flows that the balancer remembers one by one: before the event, at most
	// in it, and at its end; TrackedTableBytes is the memory of the tables for them, full or empty.
	TrackedFlowsBefore = "tracked_flows_before"
	TrackedFlowsMax    = "tracked_flows_max"
	TrackedFlowsAfter  = "tracked_flows_after"
	TrackedTableBytes  = "tracked_table_bytes"
	// FlowsTried are local ports from which a connection was opened before the
	// event and another after it. Of those, FlowsMovedPercent were answered by
	// another backend, FlowsOfLeftPercent had the one that left, and
	// FlowsMovedBeyondPercent moved although theirs had stayed.
	FlowsTried              = "flows_tried"
	FlowsMovedPercent       = "flows_moved_percent"
	FlowsOfLeftPercent      = "flows_of_left_percent"
	FlowsMovedBeyondPercent = "flows_moved_beyond_percent"
	// BalancerProcesses are the balancer's at the end of the event, and
	// BalancerMemoryBytes their resident memory.
	BalancerProcesses   = "balancer_processes"
	BalancerMemoryBytes = "balancer_memory_bytes"
)
