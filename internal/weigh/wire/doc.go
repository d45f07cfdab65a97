// SPDX-License-Identifier: Apache-2.0

// Package wire is a packet-level tester: client ports and server ports that speak TCP, UDP and DNS in eBPF, without
// sockets, so that neither limits the balancer between them.
//
// A sender makes frames inside the kernel (BPF_PROG_TEST_RUN with live frames) and redirects them out of the client
// ports; XDP programs on the ports answer packets by rewriting them in place. A client port identifies a connection by
// its number, which follows from the address and the port of a packet. Server ports keep no state: the state of a
// connection is in its sequence numbers.
//
// A Tester is built for one arrangement of ports (Spec) and runs one load after the other (Load), in steps of one
// offered rate each (Step).
package wire
