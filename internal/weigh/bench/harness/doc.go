// SPDX-License-Identifier: Apache-2.0

// Package harness sends streams of packets through a program without a network. BPF_PROG_TEST_RUN repeats a small
// program that restores the packet, gives it the next flow and tail-calls the program under test. With an empty
// program, this measures the cost of the harness itself. A bare swap of the MAC addresses is the least that a layer-2
// balancer must do, and lengthening and shortening a packet gives the cost of the harness for a tunnel.
package harness
