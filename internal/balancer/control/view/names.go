// SPDX-License-Identifier: Apache-2.0

package view

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// BackendName is the configured name of a backend. Names are unique within a service, and services' names are unique.
// Overlays of operations are keyed by it: they stay with the name when its address changes. Observations of a backend
// are keyed by its lb.BackendKey: see docs/internals/state.md.
type BackendName struct{ Service, Backend string }

// NameOf returns the name of a backend of a service.
func NameOf(s lb.Service, b lb.Backend) BackendName { return BackendName{s.Name, b.Name} }

// String returns "web/web01", as the command line has it.
func (n BackendName) String() string { return n.Service + "/" + n.Backend }

// AddressText returns the address of a backend of s, with its port if that is not the service's.
func AddressText(s lb.Service, b lb.Backend) string {
	if b.Port == s.Port {
		return b.Address.String()
	}
	return netip.AddrPortFrom(b.Address, b.Port).String()
}

// About returns the subject of an event of an operation on the backend.
func (n BackendName) About() events.About {
	return events.About{Kind: events.KindOperation, Service: n.Service, Backend: n.Backend}
}

// TargetOf returns a backend as operations name it.
func TargetOf(s lb.Service, b lb.Backend) ops.Target {
	return ops.Target{Service: s.Name, Backend: b.Name, Address: b.Address, Port: b.Port}
}
