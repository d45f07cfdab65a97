// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// routeKinds are the kinds of routes of each protocol.
var routeKinds = map[v1.ProtocolType]string{v1.TCPProtocolType: kindTCP, v1.UDPProtocolType: kindUDP,
	v1.HTTPProtocolType:  kindHTTP,
	v1.HTTPSProtocolType: kindHTTP}

// addListeners makes the listeners of a Gateway.
func (p *Plan) addListeners(g *v1.Gateway) []*listener {
	list := make([]*listener, len(g.Spec.Listeners))
	for i := range g.Spec.Listeners {
		l := &listener{spec: &g.Spec.Listeners[i]}
		list[i] = l
		kind, known := routeKinds[l.spec.Protocol]
		switch {
		case !known:
			l.accepted = refused(v1.ListenerReasonUnsupportedProtocol,
				"protocol: %s is not served; TCP, UDP, HTTP and HTTPS are", l.spec.Protocol)
			continue
		case l.spec.Protocol == v1.HTTPSProtocolType && p.settings.Certificates == "":
			l.accepted = refused(v1.ListenerReasonUnsupportedProtocol,
				"protocol: this balancer serves no HTTPS; start jeoul-kubernetes with --certificates DIR, or use HTTP")
			continue
		}
		l.resolveKinds(kind)
		if l.spec.Protocol == v1.HTTPSProtocolType {
			p.resolveCertificates(g, l)
		}
		l.findConflict(list[:i])
	}
	return list
}

// resolveKinds records which of the kinds that a listener names it can have.
func (l *listener) resolveKinds(own string) {
	if l.spec.AllowedRoutes == nil || len(l.spec.AllowedRoutes.Kinds) == 0 {
		l.kinds = []string{own}
		return
	}
	for i, k := range l.spec.AllowedRoutes.Kinds {
		if valueOr(k.Group, v1.GroupName) == v1.GroupName && string(k.Kind) == own {
			l.kinds = []string{own}
		} else if l.resolved.ok() {
			l.resolved = refused(v1.ListenerReasonInvalidRouteKinds,
				"allowedRoutes.kinds[%d]: a listener of protocol %s has routes of kind %s, not %s",
				i, l.spec.Protocol, own, k.Kind)
		}
	}
}

// findConflict compares a listener with the earlier ones in the list, which take precedence: an added listener does not
// disturb those that are served already.
func (l *listener) findConflict(before []*listener) {
	for _, other := range before {
		if !other.accepted.ok() || other.port() != l.port() {
			continue
		}
		switch {
		case other.spec.Protocol != l.spec.Protocol || !l.isHTTP():
			l.conflicted = refused(v1.ListenerReasonProtocolConflict, "port: listener %s has port %d for %s",
				other.spec.Name,
				l.spec.Port, other.spec.Protocol)
		case valueOr(other.spec.Hostname, "") == valueOr(l.spec.Hostname, ""):
			l.conflicted = refused(v1.ListenerReasonHostnameConflict,
				"hostname: listener %s has this port and hostname",
				other.spec.Name)
		}
		if !l.conflicted.ok() {
			l.accepted = l.conflicted
			return
		}
	}
}

// allowsNamespace reports whether routes of a namespace may attach to a listener of a Gateway.
func (p *Plan) allowsNamespace(g *v1.Gateway, l *listener, namespace string) bool {
	allowed := l.spec.AllowedRoutes
	if allowed == nil || allowed.Namespaces == nil {
		return namespace == g.Namespace
	}
	switch valueOr(allowed.Namespaces.From, v1.NamespacesFromSame) {
	case v1.NamespacesFromAll:
		return true
	case v1.NamespacesFromSame:
		return namespace == g.Namespace
	case v1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(allowed.Namespaces.Selector)
		return err == nil && slices.ContainsFunc(p.objects.Namespaces, func(n *corev1.Namespace) bool {
			return n.Name == namespace && selector.Matches(labels.Set(n.Labels))
		})
	}
	return false
}

// hostnamesOf returns the host names that a listener and a route have in common. An empty name stands for all.
func (l *listener) hostnamesOf(r *route) (names []string, any bool) {
	own := strings.ToLower(string(valueOr(l.spec.Hostname, "")))
	if len(r.hostnames) == 0 {
		return []string{own}, true
	}
	for _, h := range r.hostnames {
		name := strings.ToLower(string(h))
		switch {
		case own == "" || matchesWildcard(name, own):
			names = append(names, name)
		case matchesWildcard(own, name):
			names = append(names, own)
		}
	}
	return names, len(names) > 0
}

// matchesWildcard reports whether a name, which may be a wildcard, is covered by another.
func matchesWildcard(name, other string) bool {
	if name == other {
		return true
	}
	suffix, wildcard := strings.CutPrefix(other, "*")
	return wildcard && strings.HasSuffix(strings.TrimPrefix(name, "*"), suffix) && name != suffix
}
