// SPDX-License-Identifier: Apache-2.0

// Package packets measures the data plane's cost per packet, without a network: the harness sends it streams of packets
// of every kind. An empty program under the same packets is measured in the same round.
package packets
