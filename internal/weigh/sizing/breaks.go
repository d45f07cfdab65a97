// SPDX-License-Identifier: Apache-2.0

package sizing

import "github.com/jeoul/jeoul/internal/balancer/lb"

// Flows are the flows of a service that several balancers share.
type Flows struct {
	Mode      lb.Mode
	Scheduler lb.Scheduler
	// Backends is the number of backends, with equal weights.
	Backends int
	// HandOver: balancers hand their flows over; HandOverSeconds is the age from which the others know a flow.
	HandOver        bool
	HandOverSeconds float64
	// Flows are those that are open, NewPerSecond those that begin each second.
	Flows, NewPerSecond float64
}

// BrokenOfMoved is the share, of 1, of flows that come to another balancer which that sends to another backend, or
// not at all; in a steady state, without a change of backends under way.
func (f Flows) BrokenOfMoved() float64 {
	switch {
	case f.Mode == lb.FullNAT:
		return 1 // their backends know them by an address of the balancer that is gone
	case !f.Scheduler.Remembers():
		return 0 // each balancer sends a packet where the others do
	case f.Backends < 2:
		return 0
	}
	return 1 - 1/float64(f.Backends)
}

// Broken returns how many flows break when a share of them moves: without hand-over, and with it those that are too
// young to be known elsewhere.
func (f Flows) Broken(moved Moved) float64 {
	flows := f.Flows
	if f.HandOver {
		flows = min(flows, f.NewPerSecond*f.HandOverSeconds)
	}
	return flows * moved.Total() * f.BrokenOfMoved()
}
