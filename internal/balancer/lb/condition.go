// SPDX-License-Identifier: Apache-2.0

package lb

// BackendState says whether a backend takes part, and if not, what keeps it from that.
type BackendState string

// The states of a backend. Where several things keep one from its part, the state is the first
// of them in this order, which is that of what a person did on purpose before what happened.
const (
	// Out: the deadline of its drain has passed, or it was disabled; it gets no packet.
	Out BackendState = "out"
	// Draining: it takes no new flow and keeps those that it has.
	Draining BackendState = "draining"
	// WeightZero: it is configured to take no new flow.
	WeightZero BackendState = "weight-0"
	// NoRoute: there is no way to it that its mode could use; it gets no packet.
	NoRoute BackendState = "no-route"
	// NoMAC: it, or the router to it, does not answer ARP or NDP; it gets no packet.
	NoMAC BackendState = "no-mac"
	// Unhealthy: its health checks fail. It takes no new flow; what becomes of those that it
	// has, Checks.OnDown says.
	Unhealthy BackendState = "unhealthy"
	// Ejected: it fails most of the new flows that it gets. It takes none for a while.
	Ejected BackendState = "ejected"
	// Standby: it is a backup, and others serve. It takes no new flow and keeps those that it
	// has.
	Standby BackendState = "standby"
	// Up: it takes new flows.
	Up BackendState = "up"
)

// BackendStates are all of them, in the order in which they decide.
var BackendStates = []BackendState{Out, Draining, WeightZero, NoRoute, NoMAC, Unhealthy, Ejected, Standby, Up}

// Condition is what part a backend takes, and why.
type Condition struct {
	// State is Up, or the cause that decides.
	State BackendState
	// Reason says of the backend why its packets do not reach it, or else why it is unhealthy or
	// ejected, as in "does not answer ARP requests"; empty if neither is so. It is there under a state that
	// comes before NoRoute, too: a drained backend may be unreachable besides.
	Reason string
}

// Reach is what is known of the way to a backend.
type Reach struct {
	// NoRoute: there is no route, or none that the service's mode could use.
	NoRoute bool
	// NoMAC: the MAC address of the next hop is unknown.
	NoMAC bool
	// Reason says why, of the backend.
	Reason string
}

// ConditionOf judges a backend by all that bears on it: how it is configured and operated, with
// what its health checks say, whether it was taken out at a deadline, and the way to it.
func ConditionOf(b Backend, out bool, reach Reach) Condition {
	c := Condition{State: Up, Reason: reach.Reason}
	if c.Reason == "" {
		c.Reason = b.Unhealthy
	}
	switch {
	case out:
		c.State = Out
	case b.Draining:
		c.State = Draining
	case b.Weight == 0:
		c.State = WeightZero
	case reach.NoRoute:
		c.State = NoRoute
	case reach.NoMAC:
		c.State = NoMAC
	case b.Ejected:
		c.State = Ejected
	case b.Unhealthy != "":
		c.State = Unhealthy
	case b.Standby:
		c.State = Standby
	}
	return c
}
