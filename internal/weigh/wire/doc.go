// SPDX-License-Identifier: Apache-2.0

// Package wire is a packet-level tester: client ports and server ports that speak
// TCP, UDP and DNS in eBPF, without sockets, so that neither is the limit of what
// is between them.
//
// A sender makes frames inside the kernel (BPF_PROG_TEST_RUN with live frames) and
// redirects them out of the client ports; XDP programs on the ports answer what
// arrives by rewriting it in place. A client port knows its connections by their
// number, which address and port of a packet give; server ports remember nothing: what
// they must know of a connection is in its sequence numbers.
//
// A Tester is made for one arrangement of ports (Spec) and runs one load after the
// other (Load), in steps of one offered rate each (Step).
package wire
