// SPDX-License-Identifier: Apache-2.0

// Package gateway makes services of the balancer, and statuses, from the objects of the Gateway API: a pure function of
// them and of the settings. It does no I/O.
package gateway

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Objects are a cluster's objects of the Gateway API, and those that they refer to. Nothing in it is changed.
type Objects struct {
	Classes    []*v1.GatewayClass
	Gateways   []*v1.Gateway
	TCPRoutes  []*v1.TCPRoute
	UDPRoutes  []*v1.UDPRoute
	HTTPRoutes []*v1.HTTPRoute
	Grants     []*v1.ReferenceGrant
	Namespaces []*corev1.Namespace
	Services   []*corev1.Service
	// Secrets are the Secrets of type kubernetes.io/tls.
	Secrets []*corev1.Secret
}

// Settings are the settings for all Gateways.
type Settings struct {
	// Controller is the spec.controllerName of the GatewayClasses that are served.
	Controller string
	// Mode is the mode of TCP and UDP listeners, lb.NAT or lb.FullNAT.
	Mode lb.Mode
	// Certificates is the directory in which the balancer finds the certificates of HTTPS listeners; empty: there is
	// none, and such listeners are refused.
	Certificates string
}

// The kinds of routes.
const (
	kindTCP  = "TCPRoute"
	kindUDP  = "UDPRoute"
	kindHTTP = "HTTPRoute"
)

// route is a route of any kind.
type route struct {
	kind   string
	object metav1.Object
	common v1.CommonRouteSpec
	status *v1.RouteStatus
	// hostnames and http are the host names and rules of an HTTPRoute, backends the references of each rule of the
	// other kinds.
	hostnames []v1.Hostname
	http      []v1.HTTPRouteRule
	backends  [][]v1.BackendRef
}

func (r *route) created() time.Time { return r.object.GetCreationTimestamp().Time }

func (r *route) name() string { return r.object.GetNamespace() + "/" + r.object.GetName() }

// routesOf returns the routes of all kinds in the order of precedence: by age, then by name.
func routesOf(o Objects) []*route {
	var all []*route
	for _, r := range o.TCPRoutes {
		made := &route{kind: kindTCP, object: r, common: r.Spec.CommonRouteSpec, status: &r.Status.RouteStatus}
		for i := range r.Spec.Rules {
			made.backends = append(made.backends, r.Spec.Rules[i].BackendRefs)
		}
		all = append(all, made)
	}
	for _, r := range o.UDPRoutes {
		made := &route{kind: kindUDP, object: r, common: r.Spec.CommonRouteSpec, status: &r.Status.RouteStatus}
		for i := range r.Spec.Rules {
			made.backends = append(made.backends, r.Spec.Rules[i].BackendRefs)
		}
		all = append(all, made)
	}
	for _, r := range o.HTTPRoutes {
		all = append(all, &route{kind: kindHTTP, object: r, common: r.Spec.CommonRouteSpec,
			status:    &r.Status.RouteStatus,
			hostnames: r.Spec.Hostnames, http: r.Spec.Rules})
	}
	slices.SortStableFunc(all, func(a, b *route) int {
		return cmp.Or(a.created().Compare(b.created()), strings.Compare(a.name(), b.name()))
	})
	return all
}

// valueOr returns the value behind a pointer, or a default where it is nil.
func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// condition returns a condition of an object of a generation. The writer of the status sets the time of its last
// change.
func condition[T, R ~string](kind T, status metav1.ConditionStatus, reason R, message string,
	generation int64) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: status, Reason: string(reason), Message: message,
		ObservedGeneration: generation}
}
