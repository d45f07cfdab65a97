// SPDX-License-Identifier: Apache-2.0

// Package flowtable is the control plane's part of the data plane's tables of flows: their entries, the layouts of
// other builds, expiry, and the replies that lead to an entry. Its counterpart in C is bpf/balancer/flow.
//
// Packets read and write the tables at the same time, and neither side waits for the other. The package promises that
// a flow is released once, to the caller that ends it; that a copy into another table loses no flow that there is room
// for; and that counts of active flows which have drifted are put right within about a minute.
//
// It knows services and backends by the ids and indices of JanitorInput only, and neither configurations nor programs.
package flowtable
