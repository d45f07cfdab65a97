// SPDX-License-Identifier: Apache-2.0

// Package datapath loads, feeds and attaches the eBPF programs that forward
// packets, and reads what they counted. It is the only room that uses
// cilium/ebpf for balancing.
//
// A configuration becomes a generation: a program loaded with maps of its
// own. A change builds a new generation aside, lets the kernel verify it, and
// swaps the attached program for it in one step; a packet sees the old
// generation or the new one, whole. Counters and flows are shared by all
// generations.
package datapath
