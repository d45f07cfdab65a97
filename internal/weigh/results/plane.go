// SPDX-License-Identifier: Apache-2.0

package results

// Metrics of how flows are distributed among backends.
const (
	// ChiSquared is Pearson's statistic of the flows a backend got against its
	// share, and PValue how likely chance alone gives one as large.
	ChiSquared       = "chi_squared"
	DegreesOfFreedom = "degrees_of_freedom"
	PValue           = "p_value"
	// DeviationPercentMax is the greatest difference of a backend's flows from its
	// share of them, in per cent of that share.
	DeviationPercentMax = "deviation_percent_max"
	// TableDeviationPercentMax is that of the slots of a hash table; the other two are
	// of the flows against the shares that the table gives.
	TableDeviationPercentMax = "table_deviation_percent_max"
	TableChiSquared          = "table_chi_squared"
	TablePValue              = "table_p_value"
	// FlowsElsewhere is how many flows backends have that should have none.
	FlowsElsewhere = "flows_elsewhere"
)

// Metrics of remembered flows.
const (
	FlowsSent       = "flows_sent"
	FlowsRemembered = "flows_remembered"
	// FlowsWithoutRoom is how many flows should have been remembered, and were not.
	FlowsWithoutRoom = "flows_without_room"
	// BytesPerFlow is kernel memory (memlock) of the tables by flows remembered; AvailableBytesPerFlow is the decrease
	// of the machine's MemAvailable, the same way.
	BytesPerFlow          = "bytes_per_flow"
	AvailableBytesPerFlow = "available_bytes_per_flow"
	TableBytes            = "table_bytes"
	// GrownBytes is by how much the kernel's memory for us grew while flows came.
	GrownBytes = "grown_bytes"
)

// Metrics of how the size of a configuration is borne.
const (
	ParseSeconds = "parse_seconds"
	LoadSeconds  = "load_seconds"
	MemlockBytes = "memlock_bytes"
	// UpdateMsP50 and its like are the time until a change of one backend is in the data plane.
	UpdateMsP50 = "update_ms_p50"
	UpdateMsP99 = "update_ms_p99"
	UpdateMsMax = "update_ms_max"
	Updates     = "updates"
)
