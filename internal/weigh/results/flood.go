// SPDX-License-Identifier: Apache-2.0

package results

// The metrics of a flood's experiment. Each trial has a quiet phase and then a phase under the flood, with the same
// connections; QuietX and FloodX are the metrics of these phases.
const (
	QuietLatencyMsP50 = "quiet_latency_ms_p50"
	QuietLatencyMsP99 = "quiet_latency_ms_p99"
	QuietLatencyMsMax = "quiet_latency_ms_max"
	FloodLatencyMsP50 = "flood_latency_ms_p50"
	FloodLatencyMsP99 = "flood_latency_ms_p99"
	FloodLatencyMsMax = "flood_latency_ms_max"
	// FloodRatioP50 and FloodRatioP99 are the latency in the flood divided by the quiet latency.
	FloodRatioP50 = "flood_ratio_p50"
	FloodRatioP99 = "flood_ratio_p99"
	// QuietRequests and FloodRequests are the numbers of answered requests, FloodUnanswered the number of unanswered
	// ones, from the flood's beginning to the trial's end.
	QuietRequests   = "quiet_requests"
	FloodRequests   = "flood_requests"
	FloodUnanswered = "flood_unanswered"
	// Established is the number of connections that were open before the flood; the others are the numbers of those
	// that were lost in the whole trial, by cause.
	Established       = "established"
	EstablishedLost   = "established_lost"
	EstablishedReset  = "established_reset"
	EstablishedClosed = "established_closed"
	EstablishedSilent = "established_silent"
	EstablishedWrong  = "established_wrong"
	// QuietNewOpened and those below it count new connections, each with one request.
	QuietNewOpened       = "quiet_new_opened"
	QuietNewFailed       = "quiet_new_failed"
	FloodNewOpened       = "flood_new_opened"
	FloodNewFailed       = "flood_new_failed"
	QuietNewLatencyMsP99 = "quiet_new_latency_ms_p99"
	FloodNewLatencyMsP99 = "flood_new_latency_ms_p99"
	// FloodOfferedPerSecond is the rate of the flood's packets that reached the balancer's link, FloodHandledPerSecond
	// the rate of those that the balancer sent on or answered itself, and FloodAnsweredPerSecond the rate of the
	// SYN-ACKs that came back to the attacker.
	FloodOfferedPerSecond  = "flood_offered_per_second"
	FloodHandledPerSecond  = "flood_handled_per_second"
	FloodAnsweredPerSecond = "flood_answered_per_second"
	// QuietBalancerCPUCores and FloodBalancerCPUCores are the balancer's CPU use, in cores.
	QuietBalancerCPUCores = "quiet_balancer_cpu_cores"
	FloodBalancerCPUCores = "flood_balancer_cpu_cores"
	// QuietCoreIdle and FloodCoreIdle are the share of the connections' core that no process used, in cores: near 0,
	// something else disturbed the connections.
	QuietCoreIdle = "quiet_core_idle"
	FloodCoreIdle = "flood_core_idle"
	// RememberedBefore, RememberedDuring and RememberedAfter are the numbers of entries that the balancer kept for
	// flows: before the flood, at its end, and when the client had gone. The others are their bound, 0 if none is
	// known, and the memory, where the balancer reports it.
	RememberedBefore = "remembered_before"
	RememberedDuring = "remembered_during"
	RememberedAfter  = "remembered_after"
	RememberedLimit  = "remembered_limit"
	RememberedBytes  = "remembered_bytes"
)
