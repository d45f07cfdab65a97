// SPDX-License-Identifier: Apache-2.0

// Package flowtable is the control plane's part of the tables in which the data plane remembers flows: what an entry
// is, how another build lays it out, when it expires, and which replies lead to it. Its counterpart in C is
// bpf/balancer/flow.
//
// Packets read and write the tables at the same time, and neither side waits for the other. The package promises that
// a flow is released once, to the caller that ends it; that a copy into another table loses no flow that there is room
// for; and that counts of active flows which have drifted are put right within about a minute.
//
// It knows services and backends by their indices only, as JanitorInput says them, and neither configurations nor
// programs.
package flowtable
