// SPDX-License-Identifier: Apache-2.0

// Package model makes services of the balancer from the objects of a Kubernetes cluster: a pure function of Services,
// EndpointSlices, Nodes and the settings. It does no I/O.
package model

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// DefaultClass is the spec.loadBalancerClass of the Services that are served.
const DefaultClass = "jeoul.io/balancer"

// FieldManager is the writer of a status in metadata.managedFields, for DefaultClass. Earlier versions used it for each
// class.
const FieldManager = "jeoul-kubernetes"

// ManagerOf returns the writer of a status for a class: several classes of one cluster must not take each other's
// fields for their own.
func ManagerOf(class string) string {
	if class == DefaultClass {
		return FieldManager
	}
	hash := sha256.Sum256([]byte(class)) // the name of a manager has at most 128 bytes
	return fmt.Sprintf("%s-%x", FieldManager, hash[:8])
}

// Settings are the settings for all Services.
type Settings struct {
	// Class is the spec.loadBalancerClass that is served. Classless serves Services without one, too.
	Class     string
	Classless bool
	// Mode is the mode of Services that do not ask for another.
	Mode lb.Mode
	// RoutedPods says that the balancer's host reaches the addresses of pods: in the modes nat and fullnat they are
	// the backends then, and otherwise the nodes, by NodePort.
	RoutedPods bool
	// Zone is the balancer's: where endpoints have hints, it uses those for this zone. Empty: hints are not heeded.
	Zone  string
	Pools []pools.Pool
}

// Cluster is the objects of a cluster, in any order. Nothing in it is changed.
type Cluster struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Nodes    []*corev1.Node
	// Claims are the claims of Gateways, which have their addresses from the same pools. Their names are none of
	// Services.
	Claims []pools.Claim
	// ClaimsUnknown: Gateways may have any address. Services keep theirs, and get no other.
	ClaimsUnknown bool
}

// ServiceSettings are the last valid settings of Services, by "namespace/name": one whose annotations cannot be
// read keeps those.
type ServiceSettings map[string]annotations.Settings

// Verdict is the result for a Service.
type Verdict struct {
	// Ours reports whether the Service is to be served at all. Of others, only Problems is set, where they seem to be
	// meant for us and are not.
	Ours bool
	// Addresses are the addresses that its status is to have. Mode is the mode by which it is served.
	Addresses []netip.Addr
	Mode      lb.Mode
	// Unassigned are the problems with its addresses, and Problems all others: fields that cannot be used, in the
	// order in which they are looked at.
	Unassigned, Problems []Problem
}

// Equal reports whether two verdicts are the same.
func (v Verdict) Equal(o Verdict) bool {
	return v.Ours == o.Ours && v.Mode == o.Mode && slices.Equal(v.Addresses, o.Addresses) &&
		slices.Equal(v.Unassigned, o.Unassigned) && slices.Equal(v.Problems, o.Problems)
}

// Problem is the reason for which a Service is not served as it asks.
type Problem struct {
	// Reason is a word in CamelCase.
	Reason string
	// Field is a path such as spec.ports[0].protocol; empty where no field of the Service is at fault.
	Field   string
	Message string
}

// String returns "field: message".
func (p Problem) String() string {
	if p.Field == "" {
		return p.Message
	}
	return p.Field + ": " + p.Message
}

// The reasons of problems beside those of the pools.
const (
	ReasonInvalidAnnotation = "InvalidAnnotation"
	ReasonInvalidField      = "InvalidField"
	ReasonUnsupported       = "Unsupported"
	ReasonNotLoadBalancer   = "NotLoadBalancer"
	ReasonNodeUnusable      = "NodeUnusable"
	// ReasonGatewaysUnknown: a Service waits for an address until those of Gateways are known.
	ReasonGatewaysUnknown = "GatewaysUnknown"
)

// Result is the balancer's services and the verdicts that follow from a cluster.
type Result struct {
	// Services are the balancer's, in the order of their names. Owners are the "namespace/name" of their Kubernetes
	// Services, in the same order.
	Services []lb.Service
	Owners   []string
	// Verdicts are the verdicts by "namespace/name": of each Service that is ours, or seems to be meant to be.
	Verdicts map[string]Verdict
	// ServiceSettings are to be handed to the next Build.
	ServiceSettings ServiceSettings
	// Grants are the grants of the cluster's Claims and of its Services, by the name of the claim.
	Grants map[string]pools.Grant
	// results are the results of our Services, by "namespace/name", and inputs are the settings and nodes that they
	// depend on besides.
	results map[string]*serviceResult
	inputs  sharedInputs
	// pools, claims and claimsUnknown are the inputs of the Grants, beside the claims of the parts.
	pools         []pools.Pool
	claims        []pools.Claim
	claimsUnknown bool
}

// Key returns the "namespace/name" of an object, such as a Service.
func Key(object metav1.Object) string { return object.GetNamespace() + "/" + object.GetName() }

// builder has the Result under construction.
type builder struct {
	settings Settings
	// slices are the EndpointSlices of each Service, by "namespace/name".
	slices map[string][]*discoveryv1.EndpointSlice
	nodes  nodes
	// changed: a Service of ours has changed. sameGrants: the Grants have not.
	changed, sameGrants bool
	Result
}

func newBuilder(c Cluster, settings Settings) *builder {
	b := &builder{settings: settings, slices: map[string][]*discoveryv1.EndpointSlice{}, nodes: nodesOf(c.Nodes),
		Result: Result{Verdicts: map[string]Verdict{}, ServiceSettings: ServiceSettings{},
			results: map[string]*serviceResult{}}}
	for _, slice := range c.Slices {
		if name := slice.Labels[discoveryv1.LabelServiceName]; name != "" {
			key := slice.Namespace + "/" + name
			b.slices[key] = append(b.slices[key], slice)
		}
	}
	for _, list := range b.slices { // in one order, whatever that of the cluster is: see addServices
		slices.SortFunc(list, func(x, y *discoveryv1.EndpointSlice) int { return strings.Compare(x.Name, y.Name) })
	}
	return b
}

// Build returns the services of a cluster. `before` has the settings of the Result before; nil if there was none.
func Build(c Cluster, settings Settings, before ServiceSettings) Result {
	return Rebuild(c, settings, Result{ServiceSettings: before})
}

// Rebuild is Build after another Result, from which it takes over the part of each Service whose objects are the same
// as before.
func Rebuild(c Cluster, settings Settings, before Result) Result {
	b := newBuilder(c, settings)
	b.inputs = sharedInputs{settings.Class, settings.Classless, settings.Mode, settings.RoutedPods, settings.Zone,
		b.nodes.sorted}
	if !b.inputs.equal(before.inputs) {
		before.results = nil
	}
	ours := make([]*serviceResult, 0, len(before.results))
	for _, s := range c.Services {
		if p := b.resultOf(s, before); p != nil {
			ours = append(ours, p)
		}
	}
	b.claims, b.claimsUnknown = c.Claims, c.ClaimsUnknown
	b.allocate(ours, before)
	b.Services, b.Owners = make([]lb.Service, 0, len(before.Services)), make([]string, 0, len(before.Services))
	for _, p := range ours {
		b.addServices(p)
	}
	b.sortServices()
	return b.Result
}

// allocate assigns addresses to Gateways and Services. It keeps those of the Result before where pools and claims are
// the same.
func (b *builder) allocate(ours []*serviceResult, before Result) {
	b.pools = b.settings.Pools
	b.sameGrants = !b.changed && len(ours) == len(before.results) && reflect.DeepEqual(b.pools, before.pools) &&
		reflect.DeepEqual(b.claims, before.claims) && b.claimsUnknown == before.claimsUnknown
	if b.sameGrants {
		b.Grants = before.Grants
		return
	}
	claims := slices.Grow(slices.Clone(b.claims), len(ours))
	for _, p := range ours {
		claims = append(claims, p.claim)
	}
	b.Grants = pools.Allocate(b.pools, claims)
	for name, grant := range b.Grants {
		if b.claimsUnknown {
			b.Grants[name] = withoutNew(grant)
		}
	}
}

// withoutNew returns a grant of those addresses only that its Service has already.
func withoutNew(g pools.Grant) pools.Grant {
	if !slices.ContainsFunc(g.Addresses, func(addr netip.Addr) bool { return !slices.Contains(g.Held, addr) }) {
		return g
	}
	g.Addresses = g.Held
	g.Problems = append(slices.Clip(g.Problems), pools.Problem{Reason: ReasonGatewaysUnknown,
		Message: "the API server does not list Gateways, which may have any address; the Service gets one when it does"})
	return g
}

// sortServices puts the services into the order of their names, which that of the informers is not.
func (b *builder) sortServices() {
	order := make([]int, len(b.Services))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(b.Services[i].Name, b.Services[j].Name) })
	services, owners := make([]lb.Service, len(order)), make([]string, len(order))
	for to, from := range order {
		services[to], owners[to] = b.Services[from], b.Owners[from]
	}
	b.Services, b.Owners = services, owners
}

// selectService reports whether a Service is ours, and records its faults as far as they can be found without its
// addresses.
func (b *builder) selectService(s *corev1.Service, before ServiceSettings) bool {
	key := Key(s)
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if hasAnnotations(s) {
			b.Verdicts[key] = Verdict{Problems: []Problem{{ReasonNotLoadBalancer, "spec.type", fmt.Sprintf(
				"a Service of type %s is not served by a load balancer; use LoadBalancer, or remove the annotations %s*", typeOf(s), annotations.Prefix)}}}
		}
		return false
	}
	switch class := s.Spec.LoadBalancerClass; {
	case class == nil && !b.settings.Classless, class != nil && *class != b.settings.Class:
		return false
	case s.Spec.ClusterIP == corev1.ClusterIPNone:
		b.Verdicts[key] = Verdict{Problems: []Problem{{ReasonUnsupported, "spec.clusterIP",
			"a headless Service (None) has no load balancer; give it a cluster IP"}}}
		return false
	}
	settings, problems := annotations.Parse(s.Annotations)
	verdict := Verdict{Ours: true}
	for _, p := range problems {
		verdict.Problems = append(verdict.Problems, Problem{ReasonInvalidAnnotation, p.Field, p.Message})
	}
	if kept, known := before[key]; known && len(problems) > 0 {
		settings = kept
	}
	b.ServiceSettings[key], b.Verdicts[key] = settings, verdict
	return true
}

// hasAnnotations reports whether a Service that is of another type has annotations of ours.
func hasAnnotations(s *corev1.Service) bool {
	for name := range s.Annotations {
		if strings.HasPrefix(name, annotations.Prefix) {
			return true
		}
	}
	return false
}

func typeOf(s *corev1.Service) corev1.ServiceType {
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		return "ClusterIP (headless)"
	}
	return s.Spec.Type
}

// addProblem records a problem of a Service; each once, though several ports may have it.
func (b *builder) addProblem(s *corev1.Service, reason, field, format string, args ...any) {
	verdict, problem := b.Verdicts[Key(s)], Problem{reason, field, fmt.Sprintf(format, args...)}
	if slices.Contains(verdict.Problems, problem) {
		return
	}
	verdict.Problems = append(verdict.Problems, problem)
	b.Verdicts[Key(s)] = verdict
}

// claimOf says which addresses a Service asks for.
func (b *builder) claimOf(s *corev1.Service) pools.Claim {
	settings := b.ServiceSettings[Key(s)]
	c := pools.Claim{Name: Key(s), Namespace: s.Namespace, Created: s.CreationTimestamp.Time, Require: requiresDual(s),
		Requested: settings.Addresses, Field: annotations.Field(annotations.Addresses),
		Pool: settings.Pool, PoolField: annotations.Field(annotations.Pool)}
	c.Families = append(c.Families, familiesOf(s)...)
	for i := range s.Spec.Ports {
		if p, ok := protocolOf(&s.Spec.Ports[i]); ok {
			c.Ports = append(c.Ports, pools.Port{Protocol: p, Number: uint16(s.Spec.Ports[i].Port)})
		}
	}
	c.Held, c.Ours = statusAddresses(s), b.wroteAddresses(s)
	if asked := s.Spec.LoadBalancerIP; asked != "" && len(c.Requested) == 0 {
		const field = "spec.loadBalancerIP"
		addresses, problem := annotations.ParseAddresses(asked)
		if problem != "" {
			b.addProblem(s, ReasonInvalidField, field, "%s", problem)
		}
		c.Requested, c.Field = addresses, field
	}
	return c
}

// requiresDual reports whether a Service must have an address of each of its families.
func requiresDual(s *corev1.Service) bool {
	return s.Spec.IPFamilyPolicy == nil || *s.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyPreferDualStack
}

// familiesOf returns the families of a Service, which the API server has filled in.
func familiesOf(s *corev1.Service) (families []pools.Family) {
	for _, f := range s.Spec.IPFamilies {
		if f == corev1.IPv6Protocol {
			families = append(families, pools.IPv6)
		} else {
			families = append(families, pools.IPv4)
		}
	}
	if len(families) == 0 {
		return []pools.Family{pools.IPv4}
	}
	return families
}

// protocolOf returns the protocol of a port, if it can be balanced.
func protocolOf(port *corev1.ServicePort) (lb.Protocol, bool) {
	if port.Port < 1 || port.Port > 65535 {
		return 0, false
	}
	switch port.Protocol {
	case corev1.ProtocolTCP, "":
		return lb.TCP, true
	case corev1.ProtocolUDP:
		return lb.UDP, true
	}
	return 0, false
}

// statusAddresses returns the addresses that the status of a Service has.
func statusAddresses(s *corev1.Service) (list []netip.Addr) {
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if addr, err := netip.ParseAddr(ingress.IP); err == nil && addr.Zone() == "" && addr.IsGlobalUnicast() &&
			!addr.Is4In6() {
			list = append(list, addr)
		}
	}
	return list
}

// wroteAddresses reports whether this controller, on whichever balancer, wrote the addresses in the status of a
// Service of ours. After a conflict it has written the conditions alone.
func (b *builder) wroteAddresses(s *corev1.Service) bool {
	return HasAddressesOf(s, ManagerOf(b.settings.Class)) || HasAddressesOf(s, FieldManager)
}

// HasAddressesOf reports whether a manager has written the addresses in the status of a Service.
func HasAddressesOf(s *corev1.Service, manager string) bool {
	return slices.ContainsFunc(s.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == manager && ManagesAddresses(m)
	})
}

// ManagesAddresses reports whether a manager's fields have the addresses in the status of a Service.
func ManagesAddresses(m metav1.ManagedFieldsEntry) bool {
	return m.Subresource == "status" && m.FieldsV1 != nil &&
		bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:loadBalancer"`))
}

// HasStatusOf reports whether a manager has written fields in the status of an object.
func HasStatusOf(object metav1.Object, manager string) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == manager && m.Subresource == "status"
	})
}

// Unclaimed returns the Services of type LoadBalancer that no controller has given an address, and that are not ours.
func Unclaimed(services []*corev1.Service, settings Settings) (list []*corev1.Service) {
	for _, s := range services {
		class := s.Spec.LoadBalancerClass
		ours := class == nil && settings.Classless || class != nil && *class == settings.Class
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && !ours && len(s.Status.LoadBalancer.Ingress) == 0 {
			list = append(list, s)
		}
	}
	return list
}
