// SPDX-License-Identifier: Apache-2.0

// Package packets measures what the data plane costs per packet, without a
// network: BPF_PROG_TEST_RUN repeats a small harness program that restores the
// packet, gives it the next flow and tail-calls the program under test. The
// same harness with an empty program is the baseline, measured in the same
// round; a bare swap of the MAC addresses stands beside it as the least that a
// layer-2 balancer must do, and a packet made longer and shorter again as what
// the harness itself costs a tunnel.
package packets
