// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"slices"

	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
)

// NewPlan validates the objects.
func NewPlan(o Objects, settings Settings) *Plan {
	p := &Plan{objects: o, settings: settings, Certificates: map[string][]byte{}, verdicts: map[*route][]*parent{}}
	for _, g := range o.Gateways {
		if !p.isOurs(g) {
			continue
		}
		made := &ownGateway{Gateway: g, listeners: p.addListeners(g),
			statusOurs: model.HasStatusOf(g, model.ManagerOf(settings.Controller))}
		made.requested, made.accepted = requestedAddresses(g)
		if g.Spec.Infrastructure != nil && g.Spec.Infrastructure.ParametersRef != nil {
			made.accepted = refused(v1.GatewayReasonInvalidParameters,
				"spec.infrastructure.parametersRef: there are no parameters; remove it")
		}
		p.gateways = append(p.gateways, made)
	}
	p.routes = routesOf(o)
	p.attach()
	return p
}

// isOurs reports whether a Gateway is of a class that is ours and accepted.
func (p *Plan) isOurs(g *v1.Gateway) bool {
	return slices.ContainsFunc(p.objects.Classes, func(c *v1.GatewayClass) bool {
		return c.Name == string(g.Spec.GatewayClassName) && p.isOwnClass(c) && c.Spec.ParametersRef == nil
	})
}

func (p *Plan) isOwnClass(c *v1.GatewayClass) bool {
	return string(c.Spec.ControllerName) == p.settings.Controller
}

// requestedAddresses returns the addresses that a Gateway requests.
func requestedAddresses(g *v1.Gateway) (list []netip.Addr, problem verdict) {
	for i, a := range g.Spec.Addresses {
		if valueOr(a.Type, v1.IPAddressType) != v1.IPAddressType {
			return nil, refused(v1.GatewayReasonUnsupportedAddress, "spec.addresses[%d].type: %s is not served; use %s",
				i,
				*a.Type, v1.IPAddressType)
		}
		if a.Value == "" {
			continue // any
		}
		addr, err := netip.ParseAddr(a.Value)
		if err != nil || addr.Zone() != "" || addr.Is4In6() {
			return nil, refused(v1.GatewayReasonUnsupportedAddress, "spec.addresses[%d].value: %.64q is no IP address",
				i,
				a.Value)
		}
		if slices.ContainsFunc(list, func(other netip.Addr) bool { return other.Is4() == addr.Is4() }) {
			return nil, refused(v1.GatewayReasonUnsupportedAddress,
				"spec.addresses[%d].value: a Gateway has one address of each family; remove %s", i, addr)
		}
		list = append(list, addr)
	}
	return list, verdict{}
}
