// SPDX-License-Identifier: Apache-2.0

// Package datapath loads, feeds and attaches the eBPF programs that forward packets, and reads their counters. It is
// the only room that uses cilium/ebpf for balancing.
//
// A configuration becomes a generation: programs, and the memory that they go by. A change is written into that memory
// while packets read it, each service in one step: a new value is complete before a packet can find it, and the old one
// stays until no packet can be reading it. Only where that is not enough (another mode, another interface, no room) a
// new generation is built beside the old one, verified by the kernel, and swapped for it in one step. Either way a
// packet sees a service as it was or as it is, whole. Counters and flows are shared by all generations, and transitions
// outlive them.
package datapath
