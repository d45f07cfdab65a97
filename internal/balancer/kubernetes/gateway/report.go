// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// Report has the statuses that the objects are to have.
type Report struct {
	Classes  []ClassStatus
	Gateways []GatewayStatus
	Routes   []RouteStatus
}

// ClassStatus is the status of a GatewayClass.
type ClassStatus struct {
	Object *v1.GatewayClass
	Status v1.GatewayClassStatus
}

// GatewayStatus is the status of a Gateway.
type GatewayStatus struct {
	Object *v1.Gateway
	Status v1.GatewayStatus
}

// RouteStatus is the status of a route: its parents that are Gateways of ours, without those of other controllers.
type RouteStatus struct {
	Object     metav1.Object
	Kind       string
	Controller v1.GatewayController
	Parents    []v1.RouteParentStatus
}

// Report returns the statuses after Build. pending returns the reason for which the balancer does not have a service;
// empty: it has.
func (p *Plan) Report(pending func(service string) string) (r Report) {
	for _, c := range p.objects.Classes {
		if p.isOwnClass(c) {
			r.Classes = append(r.Classes, ClassStatus{c, classStatus(c)})
		}
	}
	for _, g := range p.gateways {
		r.Gateways = append(r.Gateways, GatewayStatus{g.Gateway, g.report(pending)})
	}
	for _, route := range p.routes {
		parents := p.parentsOf(route)
		existed := slices.ContainsFunc(route.status.Parents, func(s v1.RouteParentStatus) bool {
			return string(s.ControllerName) == p.settings.Controller
		})
		if len(parents) > 0 || existed {
			r.Routes = append(r.Routes,
				RouteStatus{route.object, route.kind, v1.GatewayController(p.settings.Controller),
					parents})
		}
	}
	return r
}

// supported are the features of the Gateway API that are served.
var supported = []features.FeatureName{features.SupportGateway, features.SupportReferenceGrant,
	features.SupportTCPRoute, features.SupportUDPRoute}

func classStatus(c *v1.GatewayClass) (s v1.GatewayClassStatus) {
	accepted := condition(v1.GatewayClassConditionStatusAccepted, metav1.ConditionTrue, v1.GatewayClassReasonAccepted,
		"served by jeoul-kubernetes", c.Generation)
	if c.Spec.ParametersRef != nil {
		accepted = condition(v1.GatewayClassConditionStatusAccepted, metav1.ConditionFalse,
			v1.GatewayClassReasonInvalidParameters,
			"spec.parametersRef: there are no parameters; remove it", c.Generation)
	}
	s.Conditions = []metav1.Condition{accepted}
	for _, f := range supported {
		s.SupportedFeatures = append(s.SupportedFeatures, v1.SupportedFeature{Name: v1.FeatureName(f)})
	}
	slices.SortFunc(s.SupportedFeatures, func(a, b v1.SupportedFeature) int {
		return strings.Compare(string(a.Name),
			string(b.Name))
	})
	return s
}

// report returns the status of a Gateway.
func (g *ownGateway) report(pending func(string) string) (s v1.GatewayStatus) {
	addressType := v1.IPAddressType
	for _, addr := range g.grant.Addresses {
		s.Addresses = append(s.Addresses, v1.GatewayStatusAddress{Type: &addressType, Value: addr.String()})
	}
	accepted, programmed := 0, 0
	for _, l := range g.listeners {
		status, isProgrammed := l.report(g, pending)
		s.Listeners = append(s.Listeners, status)
		if l.accepted.ok() {
			accepted++
		}
		if isProgrammed {
			programmed++
		}
	}
	s.Conditions = []metav1.Condition{g.reportAccepted(accepted), g.reportProgrammed(programmed)}
	return s
}

func (g *ownGateway) reportAccepted(accepted int) metav1.Condition {
	const kind = v1.GatewayConditionAccepted
	switch {
	case !g.accepted.ok():
		return condition(kind, metav1.ConditionFalse, v1.GatewayConditionReason(g.accepted.reason), g.accepted.message,
			g.Generation)
	case accepted == 0:
		return condition(kind, metav1.ConditionFalse, v1.GatewayReasonListenersNotValid,
			"no listener can be served; their conditions say why", g.Generation)
	case accepted < len(g.listeners):
		return condition(kind, metav1.ConditionTrue, v1.GatewayReasonListenersNotValid,
			"some listeners cannot be served; their conditions say why", g.Generation)
	}
	return condition(kind, metav1.ConditionTrue, v1.GatewayReasonAccepted, "all listeners are accepted", g.Generation)
}

func (g *ownGateway) reportProgrammed(programmed int) metav1.Condition {
	const kind = v1.GatewayConditionProgrammed
	switch {
	case !g.accepted.ok():
		return condition(kind, metav1.ConditionFalse, v1.GatewayReasonInvalid, g.accepted.message, g.Generation)
	case len(g.grant.Problems) > 0 && len(g.requested) > 0:
		return condition(kind, metav1.ConditionFalse, v1.GatewayReasonAddressNotUsable,
			g.grant.Problems[0].Field+": "+g.grant.Problems[0].Message, g.Generation)
	case len(g.grant.Addresses) == 0:
		message := "no listener needs an address"
		if len(g.grant.Problems) > 0 {
			message = g.grant.Problems[0].Message
		}
		return condition(kind, metav1.ConditionFalse, v1.GatewayReasonAddressNotAssigned, message, g.Generation)
	case programmed == 0:
		return condition(kind, metav1.ConditionFalse, v1.GatewayReasonInvalid,
			"the balancer serves no listener; their conditions say why", g.Generation)
	}
	message := "the balancer serves the listeners"
	for _, problem := range g.grant.Problems { // such as an address that is in no pool any more
		message += "; " + problem.Message
	}
	return condition(kind, metav1.ConditionTrue, v1.GatewayReasonProgrammed, message, g.Generation)
}

// report returns the status of a listener, and whether the balancer serves it.
func (l *listener) report(g *ownGateway, pending func(string) string) (s v1.ListenerStatus, programmed bool) {
	s = v1.ListenerStatus{Name: l.spec.Name, SupportedKinds: []v1.RouteGroupKind{},
		AttachedRoutes: int32(len(l.attached))}
	group := v1.Group(v1.GroupName)
	for _, kind := range l.kinds {
		s.SupportedKinds = append(s.SupportedKinds, v1.RouteGroupKind{Group: &group, Kind: v1.Kind(kind)})
	}
	state := func(kind v1.ListenerConditionType, v verdict, good v1.ListenerConditionReason,
		message string) metav1.Condition {
		if !v.ok() {
			return condition(kind, metav1.ConditionFalse, v1.ListenerConditionReason(v.reason), v.message, g.Generation)
		}
		return condition(kind, metav1.ConditionTrue, good, message, g.Generation)
	}
	conflicted := condition(v1.ListenerConditionConflicted, metav1.ConditionFalse, v1.ListenerReasonNoConflicts,
		"no other listener is in its way", g.Generation)
	if !l.conflicted.ok() {
		conflicted = condition(v1.ListenerConditionConflicted, metav1.ConditionTrue,
			v1.ListenerConditionReason(l.conflicted.reason),
			l.conflicted.message, g.Generation)
	}
	missing := l.notServedReason(g, pending)
	s.Conditions = []metav1.Condition{
		state(v1.ListenerConditionAccepted, l.accepted, v1.ListenerReasonAccepted, "the listener can be served"),
		conflicted,
		state(v1.ListenerConditionResolvedRefs, l.resolved, v1.ListenerReasonResolvedRefs,
			"all that it refers to is there"),
		state(v1.ListenerConditionProgrammed, missing, v1.ListenerReasonProgrammed, "the balancer serves it")}
	return s, missing.ok()
}

// notServedReason returns the reason why the balancer does not serve a listener.
func (l *listener) notServedReason(g *ownGateway, pending func(string) string) verdict {
	switch {
	case !g.accepted.ok():
		return refused(v1.ListenerReasonInvalid, "%s", g.accepted.message)
	case !l.accepted.ok():
		return refused(v1.ListenerReasonInvalid, "%s", l.accepted.message)
	case !l.usable():
		return refused(v1.ListenerReasonInvalid, "%s", l.resolved.message)
	case len(l.services) == 0:
		return refused(v1.ListenerReasonPending, "the Gateway has no address yet")
	}
	for _, name := range l.services {
		if why := pending(name); why != "" {
			return refused(v1.ListenerReasonPending, "%s", why)
		}
	}
	return verdict{}
}

// parentsOf returns the status of a route at each Gateway of ours.
func (p *Plan) parentsOf(r *route) (list []v1.RouteParentStatus) {
	generation := r.object.GetGeneration()
	for _, made := range p.verdicts[r] {
		accepted := condition(v1.RouteConditionAccepted, metav1.ConditionTrue, v1.RouteReasonAccepted,
			"attached to the Gateway's listeners", generation)
		if !made.accepted.ok() {
			accepted = condition(v1.RouteConditionAccepted, metav1.ConditionFalse,
				v1.RouteConditionReason(made.accepted.reason), made.accepted.message, generation)
		}
		resolved := condition(v1.RouteConditionResolvedRefs, metav1.ConditionTrue, v1.RouteReasonResolvedRefs,
			"all backends are there", generation)
		if !made.resolved.ok() {
			resolved = condition(v1.RouteConditionResolvedRefs, metav1.ConditionFalse,
				v1.RouteConditionReason(made.resolved.reason), made.resolved.message, generation)
		}
		status := v1.RouteParentStatus{ParentRef: made.ref, ControllerName: v1.GatewayController(p.settings.Controller),
			Conditions: []metav1.Condition{accepted, resolved}}
		if !made.partial.ok() {
			status.Conditions = append(status.Conditions,
				condition(v1.RouteConditionPartiallyInvalid, metav1.ConditionTrue,
					v1.RouteConditionReason(made.partial.reason), made.partial.message, generation))
		}
		list = append(list, status)
	}
	return list
}
