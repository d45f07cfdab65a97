// SPDX-License-Identifier: Apache-2.0

// Package datapath loads, configures and attaches the eBPF programs that forward packets, and reads their counters. It
// and its subpackages are the only ones that use cilium/ebpf for balancing.
//
// A configuration becomes a generation: programs, and the memory that they read. A change is written into that memory
// while packets are processed, each service atomically: a new value is complete before a packet can find it, and the
// old one stays until no packet can be reading it. Only where that is not enough (another mode, another interface, no
// room) a new generation is built beside the old one, verified by the kernel, and replaces it atomically. Either way a
// packet sees a service as it was before the change or as it is after it, never a mixture. Counters and flows are
// shared by all generations, and transitions outlive them.
package datapath
