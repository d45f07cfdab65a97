// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Plan is the Gateways and routes that are to be served, before their addresses are known.
type Plan struct {
	objects  Objects
	settings Settings
	gateways []*ownGateway
	routes   []*route
	verdicts map[*route][]*parent
	// Certificates are the files that HTTPS listeners need in the directory of certificates.
	Certificates map[string][]byte
}

// ownGateway is a Gateway of a class of ours.
type ownGateway struct {
	*v1.Gateway
	listeners []*listener
	// accepted is whether the Gateway can be served, apart from its listeners.
	accepted  verdict
	requested []netip.Addr
	grant     pools.Grant
	// statusOurs: a balancer of our class wrote the addresses in its status. It writes them with each status.
	statusOurs bool
}

func (g *ownGateway) name() string { return g.Namespace + "/" + g.Name }

// claim is the name of a Gateway's claim on the pools; no Service has a second slash in its name.
func (g *ownGateway) claim() string { return "gateway/" + g.name() }

// Claims are the claims of Gateways to addresses of the pools. A Gateway that is not accepted claims what it has, to
// keep it until it is accepted.
func (p *Plan) Claims(all []pools.Pool) []pools.Claim {
	var claims []pools.Claim
	for _, g := range p.gateways {
		if c := g.claimOn(all); g.accepted.ok() || len(c.Held) > 0 {
			claims = append(claims, c)
		}
	}
	return claims
}

// claimOn returns a Gateway's claim to addresses of the pools.
func (g *ownGateway) claimOn(all []pools.Pool) pools.Claim {
	c := pools.Claim{Name: g.claim(), Namespace: g.Namespace, Created: g.CreationTimestamp.Time, Require: true,
		Held: g.heldAddresses(all), Ours: g.statusOurs, Field: "spec.addresses"}
	if g.accepted.ok() {
		c.Requested = g.requested
	}
	c.Families = familiesOf(c.Requested, c.Held, all)
	for _, l := range g.listeners {
		// One that lacks an object, such as a Secret that is being replaced, has its port when the object is back.
		if l.accepted.ok() && !slices.Contains(c.Ports, l.port()) {
			c.Ports = append(c.Ports, l.port())
		}
	}
	return c
}

// heldAddresses returns the addresses that a Gateway has in its status, of another controller's only those that are in
// a pool.
func (g *ownGateway) heldAddresses(all []pools.Pool) (held []netip.Addr) {
	for _, a := range g.Status.Addresses {
		addr, err := netip.ParseAddr(a.Value)
		if err != nil || addr.Zone() != "" || !addr.IsGlobalUnicast() || addr.Is4In6() {
			continue
		}
		if g.statusOurs || slices.ContainsFunc(all, func(p pools.Pool) bool { return p.Contains(addr) }) {
			held = append(held, addr)
		}
	}
	return held
}

// familiesOf returns the families of a Gateway's addresses: those of the addresses that it requests, otherwise of those
// that it has, otherwise IPv4, or IPv6 if the pools have no IPv4 address.
func familiesOf(requested, held []netip.Addr, all []pools.Pool) (families []pools.Family) {
	has := requested
	if len(has) == 0 {
		has = held
	}
	for _, addr := range has {
		if family := pools.FamilyOf(addr); !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	if len(families) > 0 {
		return families
	}
	for _, pool := range all {
		for _, r := range pool.Ranges {
			if r.First.Is4() {
				return []pools.Family{pools.IPv4}
			}
		}
	}
	return []pools.Family{pools.IPv6}
}

// serviceName returns the name of the balancer's service for a port of a Gateway: NAMESPACE:NAME:PROTOCOL-PORT:gateway,
// with ":v6" appended for an IPv6 address. Names for Services have no such part.
func serviceName(g *ownGateway, port pools.Port, addr netip.Addr) string {
	name := fmt.Sprintf("%s:%s:%s-%d:gateway", g.Namespace, g.Name, port.Protocol, port.Number)
	if addr.Is6() {
		name += ":v6"
	}
	return shortenName(name)
}

// MayName reports whether a name may be that of a service for a Gateway. Of a shortened name only its hash tells.
func MayName(service string) bool {
	parts := strings.Split(strings.TrimSuffix(service, ":v6"), ":")
	return strings.Contains(service, "_") || len(parts) == 4 && parts[3] == "gateway"
}

// defaultMode is the mode of TCP and UDP listeners where none is set.
func (p *Plan) defaultMode() lb.Mode { return cmp.Or(p.settings.Mode, lb.FullNAT) }

// verdict is the status of a condition, with the reason if it is false.
type verdict struct {
	reason, message string
}

func (v verdict) ok() bool { return v.reason == "" }

// refused returns a verdict for a false condition, with the reason.
func refused[R ~string](reason R, format string, args ...any) verdict {
	return verdict{string(reason), fmt.Sprintf(format, args...)}
}

// listener is a listener of a Gateway of ours.
type listener struct {
	spec *v1.Listener
	// kinds are the kinds of routes that may attach.
	kinds []string
	// accepted, resolved and conflicted are the conditions; conflicted holds where it has a reason.
	accepted, resolved, conflicted verdict
	// certificates are paths below the directory of certificates.
	certificates []string
	// attached are the routes that are accepted, in the order of routesOf.
	attached []*attachment
	// services are the names of the balancer's services for it.
	services []string
}

// isServed reports whether the listener is to have a service.
func (l *listener) isServed() bool { return l.accepted.ok() && l.usable() }

// usable reports whether the objects that the listener refers to exist, and at least one of its kinds of routes is
// known.
func (l *listener) usable() bool {
	return l.resolved.ok() || l.resolved.reason == string(v1.ListenerReasonInvalidRouteKinds) && len(l.kinds) > 0
}

func (l *listener) port() pools.Port {
	protocol := lb.TCP
	if l.spec.Protocol == v1.UDPProtocolType {
		protocol = lb.UDP
	}
	return pools.Port{Protocol: protocol, Number: uint16(l.spec.Port)}
}

func (l *listener) isHTTP() bool {
	return l.spec.Protocol == v1.HTTPProtocolType || l.spec.Protocol == v1.HTTPSProtocolType
}

// parent is the result of a route at a Gateway that it names.
type parent struct {
	ref      v1.ParentReference
	accepted verdict
	// resolved is whether the backends that the route names exist, and partial names the rules that are not served.
	resolved, partial verdict
}

// attachment is a route at a listener.
type attachment struct {
	route  *route
	parent *parent
}

// shortenName bounds the names of services.
func shortenName(name string) string { return model.ShortenName(name) }
