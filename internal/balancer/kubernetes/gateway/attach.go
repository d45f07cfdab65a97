// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"

	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// attach attaches routes to the listeners that they name, if those allow it.
func (p *Plan) attach() {
	for _, r := range p.routes {
		for _, ref := range r.common.ParentRefs {
			g := p.gatewayOf(r, ref)
			if g == nil {
				continue
			}
			made := &parent{ref: ref}
			p.verdicts[r] = append(p.verdicts[r], made)
			p.attachTo(g, r, made)
		}
	}
}

// gatewayOf returns the Gateway of ours that a route names; nil if it names none.
func (p *Plan) gatewayOf(r *route, ref v1.ParentReference) *ownGateway {
	if valueOr(ref.Group, v1.GroupName) != v1.GroupName || valueOr(ref.Kind, "Gateway") != "Gateway" {
		return nil
	}
	namespace := string(valueOr(ref.Namespace, v1.Namespace(r.object.GetNamespace())))
	at := slices.IndexFunc(p.gateways, func(g *ownGateway) bool {
		return g.Namespace == namespace &&
			g.Name == string(ref.Name)
	})
	if at < 0 {
		return nil
	}
	return p.gateways[at]
}

// attachTo attaches a route to the listeners of a Gateway, whether or not they are served.
func (p *Plan) attachTo(g *ownGateway, r *route, made *parent) {
	var named, allowed, chosen []*listener
	for _, l := range g.listeners {
		if made.ref.SectionName != nil && *made.ref.SectionName != l.spec.Name || made.ref.Port != nil &&
			*made.ref.Port != l.spec.Port {
			continue
		}
		named = append(named, l)
		if !slices.Contains(l.kinds, r.kind) || !p.allowsNamespace(g.Gateway, l, r.object.GetNamespace()) {
			continue
		}
		allowed = append(allowed, l)
		if r.kind == kindHTTP {
			if _, common := l.hostnamesOf(r); !common {
				continue
			}
		}
		chosen = append(chosen, l)
	}
	switch {
	case len(named) == 0:
		made.accepted = refused(v1.RouteReasonNoMatchingParent,
			"parentRefs: Gateway %s has no listener of that sectionName and port", g.name())
		return
	case len(allowed) == 0:
		made.accepted = refused(v1.RouteReasonNotAllowedByListeners,
			"parentRefs: no listener of Gateway %s allows a %s of namespace %s", g.name(), r.kind,
			r.object.GetNamespace())
		return
	case len(chosen) == 0:
		made.accepted = refused(v1.RouteReasonNoMatchingListenerHostname,
			"hostnames: no listener of Gateway %s has one of them", g.name())
		return
	}
	p.checkRules(r, made)
	if !made.accepted.ok() {
		return
	}
	for _, l := range chosen {
		if !slices.ContainsFunc(l.attached, func(a *attachment) bool { return a.route == r }) {
			l.attached = append(l.attached, &attachment{r, made})
		}
	}
}

// checkRules records the first of a route's rules that cannot be served: if none can be, the route is not accepted.
func (p *Plan) checkRules(r *route, made *parent) {
	if r.kind != kindHTTP {
		if len(r.backends) > 1 {
			made.partial = refused(v1.RouteReasonUnsupportedValue,
				"spec.rules: the first rule has all connections, and the others none; remove them")
		}
		return
	}
	served := 0
	for i := range r.http {
		problem := checkRule(&r.http[i], i)
		if problem.ok() {
			served++
		} else if made.partial.ok() {
			made.partial = problem
		}
	}
	if served == 0 && len(r.http) > 0 {
		made.accepted, made.partial = made.partial, verdict{}
	}
}
