// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Plan is the Gateways and routes that are to be served, before their addresses are known.
type Plan struct {
	objects  Objects
	settings Settings
	gateways []*owned
	routes   []*route
	verdicts map[*route][]*parent
	// Certificates are the files that HTTPS listeners need in the directory of certificates.
	Certificates map[string][]byte
}

// owned is a Gateway of a class of ours.
type owned struct {
	*v1.Gateway
	listeners []*listener
	// accepted is whether the Gateway as such can be served, its listeners aside.
	accepted verdict
	asked    []netip.Addr
	grant    pools.Grant
}

func (g *owned) name() string { return g.Namespace + "/" + g.Name }

// claim is the name of a Gateway's claim on the pools; no Service has a second slash in its name.
func (g *owned) claim() string { return "gateway/" + g.name() }

// NewPlan judges the objects.
func NewPlan(o Objects, settings Settings) *Plan {
	p := &Plan{objects: o, settings: settings, Certificates: map[string][]byte{}, verdicts: map[*route][]*parent{}}
	for _, g := range o.Gateways {
		if !p.isOurs(g) {
			continue
		}
		made := &owned{Gateway: g, listeners: p.judge(g)}
		made.asked, made.accepted = askedOf(g)
		if g.Spec.Infrastructure != nil && g.Spec.Infrastructure.ParametersRef != nil {
			made.accepted = because(v1.GatewayReasonInvalidParameters,
				"spec.infrastructure.parametersRef: there are no parameters; remove it")
		}
		p.gateways = append(p.gateways, made)
	}
	p.routes = routesOf(o)
	p.attach()
	return p
}

// isOurs says whether a Gateway is of a class that is ours and accepted.
func (p *Plan) isOurs(g *v1.Gateway) bool {
	return slices.ContainsFunc(p.objects.Classes, func(c *v1.GatewayClass) bool {
		return c.Name == string(g.Spec.GatewayClassName) && p.owns(c) && c.Spec.ParametersRef == nil
	})
}

func (p *Plan) owns(c *v1.GatewayClass) bool {
	return string(c.Spec.ControllerName) == p.settings.Controller
}

// askedOf returns the addresses that a Gateway asks for.
func askedOf(g *v1.Gateway) (list []netip.Addr, problem verdict) {
	for i, a := range g.Spec.Addresses {
		if valueOr(a.Type, v1.IPAddressType) != v1.IPAddressType {
			return nil, because(v1.GatewayReasonUnsupportedAddress, "spec.addresses[%d].type: %s is not served; use %s",
				i,
				*a.Type, v1.IPAddressType)
		}
		if a.Value == "" {
			continue // any
		}
		addr, err := netip.ParseAddr(a.Value)
		if err != nil || addr.Zone() != "" || addr.Is4In6() {
			return nil, because(v1.GatewayReasonUnsupportedAddress, "spec.addresses[%d].value: %.64q is no IP address",
				i,
				a.Value)
		}
		if slices.ContainsFunc(list, func(other netip.Addr) bool { return other.Is4() == addr.Is4() }) {
			return nil, because(v1.GatewayReasonUnsupportedAddress,
				"spec.addresses[%d].value: a Gateway has one address of each family; remove %s", i, addr)
		}
		list = append(list, addr)
	}
	return list, verdict{}
}

// Claims are the claims of Gateways to addresses of the pools.
func (p *Plan) Claims(all []pools.Pool) []pools.Claim {
	var claims []pools.Claim
	for _, g := range p.gateways {
		c := pools.Claim{Name: g.claim(), Namespace: g.Namespace, Created: g.CreationTimestamp.Time, Require: true,
			Asked: g.asked, Field: "spec.addresses", Ours: true}
		for _, l := range g.listeners {
			if l.serves() && !slices.Contains(c.Ports, l.port()) {
				c.Ports = append(c.Ports, l.port())
			}
		}
		for _, a := range g.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Value); err == nil && addr.Zone() == "" && addr.IsGlobalUnicast() &&
				!addr.Is4In6() {
				c.Held = append(c.Held, addr)
			}
		}
		c.Families = familiesOf(g.asked, all)
		if g.accepted.ok() {
			claims = append(claims, c)
		}
	}
	return claims
}

// familiesOf returns the families of a Gateway's addresses: those that it asks for, otherwise IPv4, or those of the
// pools.
func familiesOf(asked []netip.Addr, all []pools.Pool) (families []pools.Family) {
	for _, addr := range asked {
		families = append(families, pools.FamilyOf(addr))
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
// and ":v6" behind it at an IPv6 address. The names for Services have no such part.
func serviceName(g *owned, port pools.Port, addr netip.Addr) string {
	name := fmt.Sprintf("%s:%s:%s-%d:gateway", g.Namespace, g.Name, port.Protocol, port.Number)
	if addr.Is6() {
		name += ":v6"
	}
	return fit(name)
}

// usualMode is the mode of TCP and UDP listeners where none is set.
func (p *Plan) usualMode() lb.Mode { return cmp.Or(p.settings.Mode, lb.FullNAT) }
