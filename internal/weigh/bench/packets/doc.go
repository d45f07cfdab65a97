// SPDX-License-Identifier: Apache-2.0

// Package packets measures the cost of the data plane per packet, without a network: the harness sends streams of
// packets of every kind to it. In the same round, an empty program is measured with the same packets.
package packets
