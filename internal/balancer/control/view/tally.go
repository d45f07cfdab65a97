// SPDX-License-Identifier: Apache-2.0

package view

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
)

// Tally converts the count of an endpoint into that of the name that has it.
type Tally struct {
	// Base is the endpoint's count when the name took it, Carried the name's count before that.
	Base    Total `json:"base"`
	Carried Total `json:"carried"`
}

// Total is the counters of a backend. Proxied are those that only the proxy has, of services of mode proxy.
type Total struct {
	Counted lb.BackendCount `json:"counted"`
	Proxied proxy.Counts    `json:"proxied,omitzero"`
}

// Count returns the name's count, given the endpoint's. Gauges, such as open connections, are the endpoint's own. An
// endpoint whose count is below Base has been reset.
func (t Tally) Count(now Total) Total {
	base := t.Base
	if now.Counted.Packets < base.Counted.Packets || now.Counted.Connections < base.Counted.Connections {
		base = Total{}
	}
	return Total{
		Counted: now.Counted.Minus(base.Counted).Plus(t.Carried.Counted),
		Proxied: now.Proxied.Minus(base.Proxied).Plus(t.Carried.Proxied),
	}
}
