// SPDX-License-Identifier: Apache-2.0

// Package wire is a packet-level tester: client ports and server ports that speak TCP, UDP and DNS in eBPF, without
// sockets, so that neither limits the balancer between them.
//
// A sender makes frames inside the kernel (BPF_PROG_TEST_RUN with live frames) and redirects them out of the client
// ports; XDP programs on the ports answer packets by rewriting them in place. A client port knows its connections by
// their number, which address and port of a packet give; server ports remember nothing: the state of a connection is in
// its sequence numbers.
//
// A Tester is made for one arrangement of ports (Spec) and runs one load after the
// other (Load), in steps of one offered rate each (Step).
package wire
