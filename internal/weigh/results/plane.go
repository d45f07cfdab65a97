// SPDX-License-Identifier: Apache-2.0

package results

// Metrics of the distribution of flows among backends.
const (
	// ChiSquared is Pearson's statistic of the flows that each backend got against its share, and PValue the
	// probability that chance alone gives one as large.
	ChiSquared       = "chi_squared"
	DegreesOfFreedom = "degrees_of_freedom"
	PValue           = "p_value"
	// DeviationPercentMax is the greatest difference of a backend's flows from its
	// share of them, in per cent of that share.
	DeviationPercentMax = "deviation_percent_max"
	// TableDeviationPercentMax is that of the slots of a hash table; the other two are those of the flows against the
	// shares that the table gives.
	TableDeviationPercentMax = "table_deviation_percent_max"
	TableChiSquared          = "table_chi_squared"
	TablePValue              = "table_p_value"
	// FlowsElsewhere is the number of flows of backends that should have none.
	FlowsElsewhere = "flows_elsewhere"
)

// Metrics of remembered flows.
const (
	FlowsSent       = "flows_sent"
	FlowsRemembered = "flows_remembered"
	// FlowsWithoutRoom is the number of flows that should have been remembered, and were not.
	FlowsWithoutRoom = "flows_without_room"
	// BytesPerFlow is the kernel memory (memlock) of the tables divided by the flows remembered; AvailableBytesPerFlow
	// is the decrease of the machine's MemAvailable, divided in the same way.
	BytesPerFlow          = "bytes_per_flow"
	AvailableBytesPerFlow = "available_bytes_per_flow"
	TableBytes            = "table_bytes"
	// GrownBytes is by how much the kernel's memory for the balancer grew while flows came.
	GrownBytes = "grown_bytes"
)

// Metrics of the cost of a configuration's size.
const (
	ParseSeconds = "parse_seconds"
	LoadSeconds  = "load_seconds"
	MemlockBytes = "memlock_bytes"
	// UpdateMsP50 and the two below it are the time until a change of one backend is in the data plane.
	UpdateMsP50 = "update_ms_p50"
	UpdateMsP99 = "update_ms_p99"
	UpdateMsMax = "update_ms_max"
	Updates     = "updates"
)
