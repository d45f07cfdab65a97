// SPDX-License-Identifier: Apache-2.0

// Package handover has balancers send each other flows, so that connections outlive a balancer: only the flows for
// which the others would compute another backend. It transports them and bounds their number; the data plane decides
// which flows are sent and which are accepted.
//
// Each member connects to every other one over TLS 1.3, with an identity that all derive from the members' key, and
// sends it all of these flows and then changes. If a peer is too slow for the changes, they are dropped, and all flows
// are sent again.
package handover
