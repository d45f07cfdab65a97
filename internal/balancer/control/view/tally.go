// SPDX-License-Identifier: Apache-2.0

package view

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
)

// Tally makes the count of a name of that of the endpoint that it has.
type Tally struct {
	// Base is what the endpoint had counted when the name took it, Carried what the name had counted before.
	Base    Total `json:"base"`
	Carried Total `json:"carried"`
}

// Total is what was counted of a backend. Proxied has what the proxy alone counts, of services of mode proxy.
type Total struct {
	Counted lb.BackendCount `json:"counted"`
	Proxied proxy.Counts    `json:"proxied,omitzero"`
}

// Of returns what was counted of the name where the endpoint has counted now. What a backend has now, such as its open
// connections, is the endpoint's. An endpoint that has counted less than at first has begun again.
func (t Tally) Of(now Total) Total {
	base := t.Base
	if now.Counted.Packets < base.Counted.Packets || now.Counted.Connections < base.Counted.Connections {
		base = Total{}
	}
	return Total{
		Counted: now.Counted.Minus(base.Counted).Plus(t.Carried.Counted),
		Proxied: now.Proxied.Minus(base.Proxied).Plus(t.Carried.Proxied),
	}
}
