// SPDX-License-Identifier: Apache-2.0

package lb

import "fmt"

// Scheduler is the rule by which a new flow gets its backend. A backend of weight
// 0 and one that is draining get none, whatever the rule.
type Scheduler string

// The schedulers. The names are those of IPVS where it has the like; the first four
// are described in W. Zhang, "Linux Virtual Server for Scalable Network Services",
// Ottawa Linux Symposium 2000.
const (
	// RoundRobin takes backends in turn, one new flow each, whatever their weights.
	RoundRobin Scheduler = "rr"
	// WeightedRoundRobin takes backends in turn, each as often as its weight says,
	// and its turns spread evenly over the round (M. Katevenis et al., "Weighted
	// Round-Robin Cell Multiplexing in a General-Purpose ATM Switch Chip", IEEE
	// JSAC 9(8), 1991).
	WeightedRoundRobin Scheduler = "wrr"
	// LeastConnections takes the backend with the fewest flows that have not
	// ended, whatever the weights. Among many backends it looks at some at a time,
	// a window that moves on with each new flow.
	LeastConnections Scheduler = "lc"
	// WeightedLeastConnections is LeastConnections with the flows of each backend
	// divided by its weight.
	WeightedLeastConnections Scheduler = "wlc"
	// SourceHash maps the hash of the client's address through the table of
	// Maglev: all flows of a client go to one backend. It keeps no state per flow.
	// (IPVS's scheduler of this name has a table of its own, in which most clients
	// move when a backend leaves.)
	SourceHash Scheduler = "sh"
	// Maglev maps the hash of the flow through a lookup table (D. E. Eisenbud et
	// al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI
	// 2016, section 3.4). It keeps no state per flow.
	Maglev Scheduler = "maglev"
	// TwoChoices draws two backends at random, by their weights, and takes the one
	// with fewer flows for its weight (Y. Azar et al., "Balanced Allocations", STOC
	// 1994; M. Mitzenmacher, "The Power of Two Choices in Randomized Load
	// Balancing", IEEE TPDS 12(10), 2001).
	TwoChoices Scheduler = "random2"
	// Failover takes the first backend, in the configuration's order, that is up
	// and not full; the others wait. (IPVS's goes by the weights instead.)
	Failover Scheduler = "fo"
)

// Schedulers lists the schedulers in the order in which they are explained.
var Schedulers = []Scheduler{RoundRobin, WeightedRoundRobin, LeastConnections, WeightedLeastConnections,
	SourceHash, Maglev, TwoChoices, Failover}

// UnmarshalText accepts the schedulers' names; anything else is
// ErrUnknownScheduler.
func (s *Scheduler) UnmarshalText(text []byte) error {
	return oneOf(s, text, Schedulers, ErrUnknownScheduler)
}

// schedulerProperties are the facts about a scheduler that code elsewhere asks for. Each fact has its one home here.
type schedulerProperties struct {
	weighted, remembers, byLoad, hashes, inOrder bool
}

// properties is the table of the schedulers. A scheduler that does not exist has no property.
func (s Scheduler) properties() schedulerProperties {
	switch s {
	case RoundRobin:
		return schedulerProperties{remembers: true}
	case WeightedRoundRobin:
		return schedulerProperties{remembers: true, weighted: true}
	case LeastConnections:
		return schedulerProperties{remembers: true, byLoad: true}
	case WeightedLeastConnections:
		return schedulerProperties{remembers: true, byLoad: true, weighted: true}
	case SourceHash:
		return schedulerProperties{hashes: true, weighted: true}
	case Maglev:
		return schedulerProperties{hashes: true, weighted: true}
	case TwoChoices:
		return schedulerProperties{remembers: true, byLoad: true, weighted: true}
	case Failover:
		return schedulerProperties{inOrder: true}
	}
	return schedulerProperties{}
}

// Weighted reports whether backends get new flows in proportion to their weights. To the others a weight is 0 or not.
func (s Scheduler) Weighted() bool { return s.properties().weighted }

// Remembers reports whether the scheduler's choice cannot be derived from the packet again, so that every flow must be
// remembered.
func (s Scheduler) Remembers() bool { return s.properties().remembers }

// ByLoad reports whether the scheduler compares how many flows backends have.
func (s Scheduler) ByLoad() bool { return s.properties().byLoad }

// Hashes reports whether a hash of the packet chooses the backend from a table.
func (s Scheduler) Hashes() bool { return s.properties().hashes }

// InOrder reports whether the first backend in the configuration's order that is up takes all new flows, so that each
// backend waits for those before it, and the service needs no table.
func (s Scheduler) InOrder() bool { return s.properties().inOrder }

// Hash names the fields of a packet that are hashed.
type Hash string

// The hashes.
const (
	// HashFlow hashes the client's address and port, so that the flows of one client spread over all backends.
	HashFlow Hash = "flow"
	// HashSource hashes the client's address alone.
	HashSource Hash = "source"
)

// UnmarshalText accepts "flow" and "source"; anything else is ErrUnknownHash.
func (h *Hash) UnmarshalText(text []byte) error {
	switch Hash(text) {
	case HashFlow, HashSource:
		*h = Hash(text)
		return nil
	}
	return fmt.Errorf("%w %q: use %s or %s", ErrUnknownHash, text, HashFlow, HashSource)
}
