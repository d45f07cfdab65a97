// SPDX-License-Identifier: Apache-2.0

// Package flowtable is the control plane's part of the data plane's tables of flows: their entries, the layouts of
// other builds, expiry, and the return entries, which find a flow by its replies. Its counterpart in C is
// bpf/balancer/flow.
//
// Packets read and write the tables at the same time, and neither side waits for the other. The package guarantees that
// a flow is released once, to the caller that ends it; that a copy into another table loses no flow for which there is
// room; and that it corrects wrong counts of active flows within about a minute.
//
// It knows services and backends by the ids and indices of JanitorInput only, and neither configurations nor programs.
package flowtable
