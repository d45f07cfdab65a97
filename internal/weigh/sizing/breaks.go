// SPDX-License-Identifier: Apache-2.0

package sizing

import "github.com/jeoul/jeoul/internal/balancer/lb"

// Flows are the flows of a service that several balancers share.
type Flows struct {
	Mode      lb.Mode
	Scheduler lb.Scheduler
	// Backends is the number of backends, with equal weights.
	Backends int
	// HandOver: balancers hand over their flows; HandOverSeconds is the age from which the others have a flow.
	HandOver        bool
	HandOverSeconds float64
	// Flows is the number of open flows, NewPerSecond the number that begin each second.
	Flows, NewPerSecond float64
}

// BrokenOfMoved is the share, from 0 to 1, of the flows which, when moved to another balancer, are sent to another
// backend, or to none; in a steady state, without a change of backends under way.
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

// Broken returns the number of flows that break when a share of them moves: all of them without hand-over, and with it
// those that are too young for the others to have them.
func (f Flows) Broken(moved Moved) float64 {
	flows := f.Flows
	if f.HandOver {
		flows = min(flows, f.NewPerSecond*f.HandOverSeconds)
	}
	return flows * moved.Total() * f.BrokenOfMoved()
}
