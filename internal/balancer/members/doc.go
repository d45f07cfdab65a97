// SPDX-License-Identifier: Apache-2.0

// Package members has balancers that share VIPs know of each other: who is there, and whether they send a flow to
// the same backend. It decides nothing; membership is hashicorp/memberlist's (SWIM).
package members
