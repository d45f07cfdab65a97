// SPDX-License-Identifier: Apache-2.0

// Package handover has balancers send each other flows, so that connections outlive a balancer: the flows whose backend
// the others would compute wrong, and no more. It carries them and bounds their number; the data plane decides which
// flows are sent and which are taken.
//
// Each member connects to each other one over TLS 1.3, by an identity that all of them derive from the members' key,
// and sends it all of these flows, and from then on changes. Where a peer is too slow for the changes, they are
// dropped, and all flows are sent again.
package handover
