// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Finder finds the backends of a port of a Service; model.Finder is one.
type Finder interface {
	// Backends returns the backends of the family, and the problems that keep others out.
	Backends(s *corev1.Service, port *corev1.ServicePort, family pools.Family) ([]lb.Backend, []model.Problem)
}

// builder makes services of a plan.
type builder struct {
	*Plan
	finder   Finder
	services []lb.Service
}
