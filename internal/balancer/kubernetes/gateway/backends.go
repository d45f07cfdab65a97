// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// reasonUnreachable: the balancer has no route to a Service's backends.
const reasonUnreachable = "BackendUnreachable"

// refBackends are the backends of a reference, which share its weight.
type refBackends struct {
	weight   int
	backends []lb.Backend
}

// resolve returns the backends of references, and the reason for which one has none.
func (b *builder) resolve(r *route, refs []v1.BackendRef, protocol corev1.Protocol,
	family pools.Family) (all []refBackends, problem verdict) {
	for i := range refs {
		backends, bad := b.resolveOne(r, &refs[i], protocol, family)
		if !bad.ok() {
			if problem.ok() {
				problem = bad
			}
			continue
		}
		all = append(all, refBackends{int(valueOr(refs[i].Weight, 1)), backends})
	}
	return all, problem
}

func (b *builder) resolveOne(r *route, ref *v1.BackendRef, protocol corev1.Protocol,
	family pools.Family) ([]lb.Backend, verdict) {
	namespace, name := string(valueOr(ref.Namespace, v1.Namespace(r.object.GetNamespace()))), string(ref.Name)
	if valueOr(ref.Group, "") != "" || valueOr(ref.Kind, "Service") != "Service" {
		return nil, refused(v1.RouteReasonInvalidKind, "backendRefs: a backend is a Service, not a %s/%s",
			valueOr(ref.Group, ""), valueOr(ref.Kind, "Service"))
	}
	if !granted(b.objects.Grants, reference{r.kind, r.object.GetNamespace(), "Service", namespace, name}) {
		return nil, refused(v1.RouteReasonRefNotPermitted,
			"backendRefs: no ReferenceGrant of namespace %s lets a %s of %s refer to Service %s",
			namespace, r.kind, r.object.GetNamespace(), name)
	}
	at := slices.IndexFunc(b.objects.Services, func(s *corev1.Service) bool {
		return s.Namespace == namespace &&
			s.Name == name
	})
	if at < 0 || b.objects.Services[at].Spec.Type == corev1.ServiceTypeExternalName {
		return nil, refused(v1.RouteReasonBackendNotFound, "backendRefs: there is no Service %s/%s with endpoints",
			namespace, name)
	}
	s := b.objects.Services[at]
	number := int32(valueOr(ref.Port, 0))
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == number && (p.Protocol == protocol || p.Protocol == "" && protocol == corev1.ProtocolTCP)
	})
	if i < 0 {
		return nil, refused(v1.RouteReasonBackendNotFound, "backendRefs: Service %s/%s has no port %d for %s",
			namespace,
			name, number, protocol)
	}
	backends, problems := b.finder.Backends(s, &s.Spec.Ports[i], family)
	if len(backends) == 0 && len(problems) > 0 {
		return nil, refused(reasonUnreachable, "backendRefs: Service %s/%s: %s", namespace, name, problems[0])
	}
	return backends, verdict{}
}

// maxWeight bounds the weights of backends: a backend with less than a thousandth of the largest gets more than its
// share.
const maxWeight = 1000

// distributeWeights divides the weight of each reference equally among its backends that take new flows. A reference of
// weight 0 keeps its flows.
func distributeWeights(all []refBackends) (list []lb.Backend) {
	parts := make([]float64, len(all))
	largest := 0.0
	for i, m := range all {
		total := 0
		for _, b := range m.backends {
			if !b.Draining {
				total += int(max(b.Weight, 1))
			}
		}
		if total > 0 {
			parts[i] = float64(m.weight) / float64(total)
		}
		for _, b := range m.backends {
			largest = max(largest, parts[i]*float64(max(b.Weight, 1)))
		}
	}
	at, names := map[netip.AddrPort]int{}, model.BackendNames{}
	for i, m := range all {
		for _, b := range m.backends {
			share := 1.0
			if largest > 0 {
				share = parts[i] * float64(max(b.Weight, 1)) / largest * maxWeight
			}
			b.Weight = uint16(max(share+0.5, 1))
			b.Draining = b.Draining || m.weight == 0
			endpoint := netip.AddrPortFrom(b.Address, b.Port)
			if j, duplicate := at[endpoint]; duplicate {
				if !b.Draining {
					addBackend(&list[j], b)
				}
				continue
			}
			b.Name = names.Assign(b.Name, endpoint.String())
			at[endpoint] = len(list)
			list = append(list, b)
		}
	}
	normalize(list)
	return list
}

// addBackend adds the weight of a backend that another reference has, too.
func addBackend(to *lb.Backend, b lb.Backend) {
	if to.Draining {
		to.Weight, to.Draining = b.Weight, false
		return
	}
	to.Weight += b.Weight
}

// normalize replaces equal weights by 1.
func normalize(list []lb.Backend) {
	if slices.ContainsFunc(list, func(b lb.Backend) bool { return b.Weight != list[0].Weight }) {
		return
	}
	for i := range list {
		list[i].Weight = 1
	}
}
