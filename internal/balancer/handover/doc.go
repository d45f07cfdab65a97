// SPDX-License-Identifier: Apache-2.0

// Package handover has balancers tell each other of flows, so that connections outlive a balancer: what computing would
// get wrong, and nothing else. It carries and bounds; what is to be told and what is taken is the data plane's to say.
//
// Each member connects to each other one over TLS 1.3, by an identity that all of them derive from the members' key,
// and tells it all that it knows, and from then on what changes. What one cannot be told in time is forgotten, and all
// is told anew.
package handover
