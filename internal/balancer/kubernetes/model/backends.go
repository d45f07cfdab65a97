// SPDX-License-Identifier: Apache-2.0

package model

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Finder finds the backends of Services for the routes of a Gateway, which name Services of any type.
type Finder struct{ builder *builder }

// NewFinder returns a finder for the objects of a cluster.
func NewFinder(c Cluster, settings Settings) *Finder {
	return &Finder{newBuilder(c, settings)}
}

// Backends returns the backends of a port of a Service that packets with another port are sent to: its pods where the
// balancer's host has routes to them, otherwise the nodes by NodePort. Problems say why there are none.
func (f *Finder) Backends(s *corev1.Service, port *corev1.ServicePort, family pools.Family) ([]lb.Backend, []Problem) {
	b := f.builder
	b.Verdicts = map[string]Verdict{}
	p := portPlan{service: s, mode: lb.FullNAT}
	p.local = s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	p.target = b.defaultTarget(s, p.mode)
	made := lb.Service{Port: uint16(port.Port), Mode: p.mode}
	endpoints := endpointsOf(b.slices[Key(s)], port, family, b.settings.Zone)
	if p.target == annotations.Pods {
		b.addPods(&p, &made, endpoints, "spec.ports")
	} else {
		b.addNodes(&p, &made, endpoints, port, family, "spec.ports")
	}
	return made.Backends, b.Verdicts[Key(s)].Problems
}
