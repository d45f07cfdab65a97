// SPDX-License-Identifier: Apache-2.0

// Package objects contains the eBPF objects of the data plane, and the Go types and constants that bpf2go makes of
// their C types (structures have the C layout and the byte order that bpf/balancer/types gives for each field).
//
// All packages below datapath share it, and it knows none of them: it loads nothing into the kernel and decides
// nothing. `make generate` writes its files *_bpfel.go.
package objects
