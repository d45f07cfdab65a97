// SPDX-License-Identifier: Apache-2.0

package results

// NotPossible begins the note of an event that the subject does not support. Any other invalid event has failed.
const NotPossible = "not possible with this subject"

// The metrics of a change experiment, each of one event. A connection is one that was open before the event, unless it
// is called new.
const (
	// Connections is the number of connections that were held when the event began.
	Connections = "connections"
	// Broken is the number of connections to backends that stayed that broke, in whatever way. The others count them by
	// cause: by a TCP reset, by an orderly end, without an answer within the client's timeout, or because another
	// server answered, or wrongly.
	Broken       = "broken"
	BrokenReset  = "broken_reset"
	BrokenClosed = "broken_closed"
	BrokenSilent = "broken_silent"
	BrokenMoved  = "broken_moved"
	BrokenWrong  = "broken_wrong"
	// BrokenYoung counts the connections of Broken that were younger than a second when packets moved between
	// balancers, or opened later; BrokenOlder counts the older ones. Both are missing in events without a change of
	// balancers.
	BrokenYoung = "broken_young"
	BrokenOlder = "broken_older"
	// Ended is the number of connections to the backend that left which ended: that is expected.
	Ended = "ended"
	// NewConnections is the number of connections that were opened during the event and answered, NewFailed the number
	// of those that were not answered, and NewToLeft the number of those that were begun after the change was done and
	// answered by a backend that takes no new connections.
	NewConnections = "new_connections"
	NewFailed      = "new_failed"
	NewToLeft      = "new_to_left"
	// UDPQueries and UDPUnanswered count all UDP queries. UDPMoved counts answers to a UDP flow by another backend than
	// before, if that had stayed; UDPMovedOfLeft counts them if it had left.
	UDPQueries     = "udp_queries"
	UDPUnanswered  = "udp_unanswered"
	UDPMoved       = "udp_moved"
	UDPMovedOfLeft = "udp_moved_of_left"
	// ReusedConnections is the number of answered connections from local ports that are used again and again,
	// ReusedFailed the number of those that were not answered, and ReusedTaken the number of those that could not be
	// tried, because the port was not free yet. LostSYNs counts their SYNs after which the client's kernel had to send
	// another, or that were not answered.
	ReusedConnections = "reused_connections"
	ReusedFailed      = "reused_failed"
	ReusedTaken       = "reused_taken"
	LostSYNs          = "lost_syns"
	// SilentSeconds is how long a backend's host was silent. NoticedSeconds is the time from then until the balancer
	// showed that it had noticed, missing where it never did, and BackSeconds the time until it showed that the host
	// was back. Losses until it was noticed are Before, later ones After; without notice all are Before.
	SilentSeconds       = "silent_seconds"
	NoticedSeconds      = "noticed_seconds"
	BackSeconds         = "back_seconds"
	LostSYNsBefore      = "lost_syns_before"
	LostSYNsAfter       = "lost_syns_after"
	ReusedFailedBefore  = "reused_failed_before"
	ReusedFailedAfter   = "reused_failed_after"
	UDPUnansweredBefore = "udp_unanswered_before"
	UDPUnansweredAfter  = "udp_unanswered_after"
	// FaultSeconds is how long a backend's service was gone, or hung; NoticedSeconds and BackSeconds then refer to
	// that. InFlight counts new connections that failed and had begun before the fault, NewFailedBefore those begun
	// until the balancer showed that it had noticed, and NewFailedAfter those begun later. LastFailedSeconds is the
	// time from the fault to the beginning of the last, missing where none failed.
	FaultSeconds      = "fault_seconds"
	InFlight          = "in_flight_failed"
	NewFailedBefore   = "new_failed_before"
	NewFailedAfter    = "new_failed_after"
	LastFailedSeconds = "last_failed_seconds"
	// ResetByDrained is the number of connections that a drained backend reset, CameAgain the number of those that were
	// opened again from the same port and answered, and AgainToDrained the number of the latter that the drained
	// backend answered.
	ResetByDrained = "reset_by_drained"
	CameAgain      = "came_again"
	AgainToDrained = "again_to_drained"
	// NumberedSent is the number of numbered datagrams that were sent during the event, NumberedMissing the number of
	// those that no server received, and NumberedTwice the number of those that were received again. Of the missing
	// ones, NumberedBefore did not reach the switch's port to the balancer, NumberedBalancer reached it and did not
	// come back through it, and NumberedBehind came back: only those of NumberedBalancer can be lost by the balancer,
	// or by its cable.
	NumberedSent      = "numbered_sent"
	NumberedMissing   = "numbered_missing"
	NumberedBefore    = "numbered_missing_before"
	NumberedBalancer  = "numbered_missing_balancer"
	NumberedBehind    = "numbered_missing_behind"
	NumberedTwice     = "numbered_twice"
	NumberedPerSecond = "numbered_per_second"
	// BackendResets is the number of TCP resets that backends sent: a backend received packets of a connection that it
	// did not know, or a client had given a connection up.
	BackendResets = "backend_resets"
	// Applied is the number of changes of the event, and the times are how long a change took until the subject
	// reported, or showed, that it was done.
	Applied       = "applied_changes"
	AppliedMsMean = "applied_ms_mean"
	AppliedMsMax  = "applied_ms_max"
	// TrackedFlowsBefore and the two below it are the numbers of flows that the balancer remembers one by one: before
	// the event, the maximum during it, and at its end. TrackedTableBytes is the memory of the tables for them, full or
	// empty.
	TrackedFlowsBefore = "tracked_flows_before"
	TrackedFlowsMax    = "tracked_flows_max"
	TrackedFlowsAfter  = "tracked_flows_after"
	TrackedTableBytes  = "tracked_table_bytes"
	// FlowsTried is the number of local ports from which a connection was opened before the event and another after it.
	// Of those, FlowsMovedPercent were answered by another backend, FlowsOfLeftPercent had the backend that left, and
	// FlowsMovedBeyondPercent moved although their backend had stayed.
	FlowsTried              = "flows_tried"
	FlowsMovedPercent       = "flows_moved_percent"
	FlowsOfLeftPercent      = "flows_of_left_percent"
	FlowsMovedBeyondPercent = "flows_moved_beyond_percent"
	// BalancerProcesses is the number of the balancer's processes at the end of the event, and BalancerMemoryBytes
	// their resident memory.
	BalancerProcesses   = "balancer_processes"
	BalancerMemoryBytes = "balancer_memory_bytes"
)
