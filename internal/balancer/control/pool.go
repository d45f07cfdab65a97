// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Ports of full NAT's pool are scarce for a backend from scarceFrom per cent in use on, until
// less than scarceUntil are. A new flow tries 32 ports (PORT_ATTEMPTS in bpf/balancer/flow/poolport.h): with
// 80 % in use, one in 1,300 finds none; with 90 %, one in 30.
const scarceFrom, scarceUntil = 80, 70

// endpoint is what makes ports of full NAT's pool different: two flows may have the same
// address and port of the pool if they go to different endpoints.
type endpoint struct {
	address  netip.Addr
	port     uint16
	protocol lb.Protocol
}

func endpointOf(s lb.Service, b lb.Backend) endpoint { return endpoint{b.Address, b.Port, s.Protocol} }

// pooled is an endpoint that full NAT sends to, and the backends that it is, of several
// services where they share it.
type pooled struct {
	endpoint
	uses []use
}

// findPooled finds the endpoints of full NAT.
func (l *layout) findPooled() {
	l.pooledAt = map[endpoint]int{}
	for i, s := range l.cfg.Services {
		if !s.Mode.UsesPool() {
			continue
		}
		for j, b := range s.Backends {
			e := endpointOf(s, b)
			at, known := l.pooledAt[e]
			if !known {
				at = len(l.pooled)
				l.pooledAt[e] = at
				l.pooled = append(l.pooled, pooled{endpoint: e})
			}
			l.pooled[at].uses = append(l.pooled[at].uses, use{i, j})
		}
	}
}

// keyOf returns the key of a backend.
func (l *layout) keyOf(at use) lb.BackendKey { return l.service(at).BackendKey(l.backend(at)) }

// portsFor returns how many ports the pool has for a backend with this address.
func (l *layout) portsFor(address netip.Addr) uint64 {
	pool, addresses := l.cfg.Pool(), uint64(0)
	for _, a := range pool.Addresses {
		if a.Is4() == address.Is4() {
			addresses++
		}
	}
	return addresses * (uint64(pool.LastPort) - uint64(pool.FirstPort) + 1)
}

// whose names an endpoint by the first of its backends.
func (l *layout) whose(p pooled) string {
	text := who(l.service(p.uses[0]), l.backend(p.uses[0]))
	switch more := len(p.uses) - 1; {
	case more == 1:
		return text + " (and of one more service)"
	case more > 1:
		return fmt.Sprintf("%s (and of %d more services)", text, more)
	}
	return text
}

// scarceText says of an endpoint that ports are scarce, and what to do.
func (l *layout) scarceText(p pooled, held uint64) string {
	return fmt.Sprintf(
		"%s: open flows hold %d of the %d ports that full NAT has for it, and new flows that find none free are lost: add to fullnat.addresses, widen fullnat.ports, or add backends",
		l.whose(p), held, l.portsFor(p.address))
}

// heldOf adds up the ports of an endpoint.
func (l *layout) heldOf(p pooled, counters lb.Counters) (held uint64) {
	for _, at := range p.uses {
		held += uint64(counters.Backends[l.keyOf(at)].PortsHeld)
	}
	return held
}
