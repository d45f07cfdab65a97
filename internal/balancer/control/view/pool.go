// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// PortsFor returns the number of ports that the pool has for a backend with this address.
func (l *Layout) PortsFor(address netip.Addr) uint64 {
	pool, addresses := l.Config.Pool(), uint64(0)
	for _, a := range pool.Addresses {
		if a.Is4() == address.Is4() {
			addresses++
		}
	}
	return addresses * (uint64(pool.LastPort) - uint64(pool.FirstPort) + 1)
}

// EndpointText names an endpoint by its first backend, and counts the others.
func (l *Layout) EndpointText(p Pooled) string {
	text := loglines.BackendText(l.Service(p.Uses[0]), l.Backend(p.Uses[0]))
	switch more := len(p.Uses) - 1; {
	case more == 1:
		return text + " (and of one more service)"
	case more > 1:
		return fmt.Sprintf("%s (and of %d more services)", text, more)
	}
	return text
}

// ScarceText is the message that ports for an endpoint are scarce, with the remedy.
func (l *Layout) ScarceText(p Pooled, held uint64) string {
	return fmt.Sprintf(
		"%s: open flows hold %d of the %d ports that full NAT has for it, and new flows that find none free are lost: add to fullnat.addresses, widen fullnat.ports, or add backends",
		l.EndpointText(p), held, l.PortsFor(p.Address))
}

// PortsHeld returns the number of ports that open flows to an endpoint hold.
func (l *Layout) PortsHeld(p Pooled, counters lb.Counters) (held uint64) {
	for _, at := range p.Uses {
		held += uint64(counters.Backends[l.KeyOf(at)].PortsHeld)
	}
	return held
}
