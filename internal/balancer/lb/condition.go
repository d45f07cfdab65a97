// SPDX-License-Identifier: Apache-2.0

package lb

import "slices"

// BackendState reports whether a backend takes new flows, and if not, for which reason.
type BackendState string

// The states of a backend. Where several things keep one from its part, the state is the first of them in this order,
// in which a person's decisions come before events.
const (
	// Out: the deadline of its drain has passed, or it was disabled; it gets no packet.
	Out BackendState = "out"
	// Draining: it takes no new flow and keeps those that it has.
	Draining BackendState = "draining"
	// WeightZero: it is configured to take no new flow. One whose agent requests a share of 0 is, too, if nothing below
	// applies.
	WeightZero BackendState = "weight-0"
	// NoRoute: there is no way to it that its mode could use; it gets no packet.
	NoRoute BackendState = "no-route"
	// NoMAC: it, or the router to it, does not answer ARP or NDP; it gets no packet.
	NoMAC BackendState = "no-mac"
	// Unhealthy: its health checks fail. It takes no new flow; Checks.OnDown decides about those that it has.
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

// Condition is the state of a backend, and its cause.
type Condition struct {
	// State is Up, or the cause that decides.
	State BackendState
	// Reason says of the backend why its packets do not reach it, or else why it is unhealthy or
	// ejected, as in "does not answer ARP requests"; empty if neither is so. It is there under a state that
	// comes before NoRoute, too: a drained backend may be unreachable besides.
	Reason string
}

// Reachability is the known path to a backend, as far as it decides about its state.
type Reachability struct {
	// NoRoute: there is no route, or none that the service's mode could use.
	NoRoute bool
	// NoMAC: the MAC address of the next hop is unknown.
	NoMAC bool
	// Reason says why, of the backend.
	Reason string
}

// Observed is the state of a backend that the balancer has observed, in contrast to its configuration. The zero value
// is that of a backend that serves.
type Observed struct {
	// Unhealthy says why health checks want it to take no new flow, of the backend, as in "answers with status 503";
	// empty: it is healthy, or not checked. Checks.OnDown decides about its old flows.
	Unhealthy string
	// Ejected: the reason is not its health checks, but its answers to clients. Its connections go on then, whatever
	// Checks.OnDown says: a backend that takes no new ones may serve those.
	Ejected bool
	// Standby: it is a backup, and a backend that is none takes the new flows. It takes none, and keeps its old ones.
	Standby bool
}

// ObservedOf returns the observed state of a backend that only its origin has reported on.
func ObservedOf(b Backend) Observed { return Observed{Unhealthy: b.NotReady} }

// TakesFlows reports whether the backend may take new flows by its observed state.
func (o Observed) TakesFlows() bool { return o.Unhealthy == "" && !o.Standby }

// Observations are the observed states of the backends of a service, in their order. Those that are beyond the end are
// zero: none at all stand for a service whose backends all serve. They are not changed; With and Without make others.
type Observations []Observed

// ObservationsOf returns the observed states of n backends; it calls of once for each.
func ObservationsOf(n int, of func(i int) Observed) (all Observations) {
	for i := range n {
		o := of(i)
		if o == (Observed{}) {
			continue
		}
		if all == nil {
			all = make(Observations, n)
		}
		all[i] = o
	}
	return all
}

// Of returns the observed state of backend i.
func (all Observations) Of(i int) Observed {
	if i < len(all) {
		return all[i]
	}
	return Observed{}
}

// With returns the observations with another of backend i.
func (all Observations) With(i int, o Observed) Observations {
	other := make(Observations, max(len(all), i+1))
	copy(other, all)
	other[i] = o
	return other
}

// Without returns the observations where backend i is not there any more.
func (all Observations) Without(i int) Observations {
	if i >= len(all) {
		return all
	}
	return slices.Delete(slices.Clone(all), i, i+1)
}

// Equal reports whether the same was observed of all backends.
func (all Observations) Equal(others Observations) bool {
	if len(all) == len(others) {
		return len(all) == 0 || &all[0] == &others[0] || slices.Equal(all, others)
	}
	for i := range max(len(all), len(others)) {
		if all.Of(i) != others.Of(i) {
			return false
		}
	}
	return true
}

// ConditionOf judges a backend by all that bears on it: how it is configured and operated, its observed state, whether
// it was taken out at a deadline, and the path to it.
func ConditionOf(b Backend, o Observed, out bool, reach Reachability) Condition {
	c := Condition{State: Up, Reason: reach.Reason}
	if c.Reason == "" {
		c.Reason = o.Unhealthy
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
	case o.Ejected:
		c.State = Ejected
	case o.Unhealthy != "":
		c.State = Unhealthy
	case o.Standby:
		c.State = Standby
	}
	return c
}
