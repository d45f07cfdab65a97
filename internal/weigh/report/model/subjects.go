// SPDX-License-Identifier: Apache-2.0

package model

// The subjects that others are compared with.
const (
	// BaselineSubject is a run without any balancer, which others are compared with if the run names no other baseline.
	BaselineSubject = "direct"
	// ProxySubject is the proxy that the document measured.
	ProxySubject = "haproxy-http"
	// EmptySubject is the data plane's baseline: a program that does nothing.
	EmptySubject = "empty"
	// swapSubject is the least that a program which sends a packet back can do.
	swapSubject = "macswap"
	// OwnPrefix begins the names of our own subjects.
	OwnPrefix = "jeoul-"
)

// The subjects that packet-level loads are compared with.
const (
	BareSubject     = "bare"
	IptablesSubject = "iptables-nth"
	ProxyTCPSubject = "haproxy-tcp"
)

// NotBalancers are the subjects that cannot be given a service: the others are compared with them.
var NotBalancers = []string{BaselineSubject, "routed", "bare", "bare-tc", EmptySubject, swapSubject}
