// SPDX-License-Identifier: Apache-2.0

// Package members has balancers that share VIPs know of each other: which members are alive, and whether they send a
// flow to the same backend. It only reports. The membership protocol is hashicorp/memberlist's (SWIM).
package members
