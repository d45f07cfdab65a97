// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Build returns the balancer's services of a plan, in the order of their names. Grants are those of its claims.
func (p *Plan) Build(grants map[string]pools.Grant, finder Finder) []lb.Service {
	b := &builder{Plan: p, finder: finder}
	for _, g := range p.gateways {
		g.grant = grants[g.claim()]
		for _, l := range g.listeners {
			b.resolveAttached(g, l)
		}
		if !g.accepted.ok() {
			continue
		}
		for _, addr := range g.grant.Held {
			b.addGateway(g, addr)
		}
	}
	slices.SortFunc(b.services, func(a, b lb.Service) int { return strings.Compare(a.Name, b.Name) })
	return b.services
}

// resolveAttached records whether the backends of routes exist, also for listeners and routes that are not served.
func (b *builder) resolveAttached(g *ownGateway, l *listener) {
	family := b.familyOf(g)
	note := func(a *attachment, problem verdict) {
		if a.parent.resolved.ok() {
			a.parent.resolved = problem
		}
	}
	for _, a := range l.attached {
		for _, refs := range a.route.backends {
			_, problem := b.resolve(a.route, refs, protocolOf(l), family)
			note(a, problem)
		}
		for i := range a.route.http {
			_, problem := b.resolve(a.route, backendRefs(&a.route.http[i]), corev1.ProtocolTCP, family)
			note(a, problem)
		}
	}
}

// familyOf returns the family of a Gateway's first address, IPv4 while it has none.
func (b *builder) familyOf(g *ownGateway) pools.Family {
	if len(g.grant.Addresses) > 0 {
		return pools.FamilyOf(g.grant.Addresses[0])
	}
	return pools.IPv4
}

func protocolOf(l *listener) corev1.Protocol {
	if l.port().Protocol == lb.UDP {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

// addGateway adds the services of a Gateway at an address, one for each port. Listeners for HTTP share theirs.
func (b *builder) addGateway(g *ownGateway, addr netip.Addr) {
	web := map[pools.Port][]*listener{}
	var ports []pools.Port
	for _, l := range g.listeners {
		switch {
		case !l.isServed():
		case l.isHTTP():
			if len(web[l.port()]) == 0 {
				ports = append(ports, l.port())
			}
			web[l.port()] = append(web[l.port()], l)
		default:
			b.addFlows(g, l, addr)
		}
	}
	for _, port := range ports {
		b.addHTTP(g, web[port], addr)
	}
}

// addFlows adds the service of a TCP or UDP listener. Of several routes, the oldest gets all connections.
func (b *builder) addFlows(g *ownGateway, l *listener, addr netip.Addr) {
	s := lb.Service{Name: serviceName(g, l.port(), addr), VIP: addr, Port: l.port().Number, Protocol: l.port().Protocol,
		Mode: b.defaultMode(), Scheduler: lb.Maglev, AllowEmpty: true, Limits: lb.Limits{Refuse: lb.RefuseByReset},
		Checks: model.PodChecks(l.port().Protocol)}
	if len(l.attached) > 0 && len(l.attached[0].route.backends) > 0 {
		first := l.attached[0]
		all, _ := b.resolve(first.route, first.route.backends[0], protocolOf(l), pools.FamilyOf(addr))
		s.Backends = distributeWeights(all)
	}
	l.services = append(l.services, s.Name)
	b.services = append(b.services, s)
}
