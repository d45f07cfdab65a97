// SPDX-License-Identifier: Apache-2.0

package results

// The metrics of a flood's experiment. Each trial has a quiet phase and then one
// under the flood, with the same connections; QuietX and FloodX are of those.
const (
	QuietLatencyMsP50 = "quiet_latency_ms_p50"
	QuietLatencyMsP99 = "quiet_latency_ms_p99"
	QuietLatencyMsMax = "quiet_latency_ms_max"
	FloodLatencyMsP50 = "flood_latency_ms_p50"
	FloodLatencyMsP99 = "flood_latency_ms_p99"
	FloodLatencyMsMax = "flood_latency_ms_max"
	// FloodRatioP50 and P99 are the flood's latency divided by the quiet one's.
	FloodRatioP50 = "flood_ratio_p50"
	FloodRatioP99 = "flood_ratio_p99"
	// QuietRequests and FloodRequests were answered, FloodUnanswered were not,
	// from the flood's beginning to the trial's end.
	QuietRequests   = "quiet_requests"
	FloodRequests   = "flood_requests"
	FloodUnanswered = "flood_unanswered"
	// Established is how many connections were open before the flood, the others how many of them were lost in the
	// whole trial, by cause.
	Established       = "established"
	EstablishedLost   = "established_lost"
	EstablishedReset  = "established_reset"
	EstablishedClosed = "established_closed"
	EstablishedSilent = "established_silent"
	EstablishedWrong  = "established_wrong"
	// QuietNewOpened and those behind it are of new connections, each with one request.
	QuietNewOpened       = "quiet_new_opened"
	QuietNewFailed       = "quiet_new_failed"
	FloodNewOpened       = "flood_new_opened"
	FloodNewFailed       = "flood_new_failed"
	QuietNewLatencyMsP99 = "quiet_new_latency_ms_p99"
	FloodNewLatencyMsP99 = "flood_new_latency_ms_p99"
	// FloodOfferedPerSecond are the flood's packets that reached the balancer's link,
	// FloodHandledPerSecond those that the balancer sent on or answered itself,
	// FloodAnsweredPerSecond the SYN-ACKs that came back to the attacker.
	FloodOfferedPerSecond  = "flood_offered_per_second"
	FloodHandledPerSecond  = "flood_handled_per_second"
	FloodAnsweredPerSecond = "flood_answered_per_second"
	// QuietBalancerCPUCores and FloodBalancerCPUCores are the balancer's, in cores.
	QuietBalancerCPUCores = "quiet_balancer_cpu_cores"
	FloodBalancerCPUCores = "flood_balancer_cpu_cores"
	// QuietCoreIdle and FloodCoreIdle are how much of the core that has the connections
	// no process used, in cores: near 0 something else disturbed them.
	QuietCoreIdle = "quiet_core_idle"
	FloodCoreIdle = "flood_core_idle"
	// RememberedBefore and its like are how much the balancer kept for flows: before the flood, at its end, and when
	// the client had gone; the bound, 0 if there is none that can be told; and the memory, where the balancer tells it.
	RememberedBefore = "remembered_before"
	RememberedDuring = "remembered_during"
	RememberedAfter  = "remembered_after"
	RememberedLimit  = "remembered_limit"
	RememberedBytes  = "remembered_bytes"
)
