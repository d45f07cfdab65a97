// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// ServiceBackend is a backend and the name of its service: one of all backends.
type ServiceBackend struct {
	Service string `json:"service"`
	Backend
}

// BackendCheck is one health check of a backend, and its results.
type BackendCheck struct {
	Service string `json:"service"`
	Backend string `json:"backend"`
	// Index is the check's place in the service's list, from 0.
	Index int `json:"index"`
	Check
	CheckResult
}

// ServicesNamed returns the services of these names, in the status's order; all if none is named.
func (s Status) ServicesNamed(names []string) []Service {
	named := []Service{}
	for _, service := range s.Services {
		if len(names) == 0 || slices.Contains(names, service.Name) {
			named = append(named, service)
		}
	}
	return named
}

// Service returns the service of a name. Error: ErrNotFound.
func (s Status) Service(name string) (Service, error) {
	i := slices.IndexFunc(s.Services, func(one Service) bool { return one.Name == name })
	if i < 0 {
		return Service{}, fmt.Errorf("%w: there is no service %s; `jeoul get services` lists those there are",
			ErrNotFound, name)
	}
	return s.Services[i], nil
}

// Backend returns the backend of a name. Error: ErrNotFound.
func (s Service) Backend(name string) (ServiceBackend, error) {
	i := slices.IndexFunc(s.Backends, func(one Backend) bool { return one.Name == name })
	if i < 0 {
		return ServiceBackend{}, fmt.Errorf("%w: %s has no backend %s; `jeoul get backends %[2]s` lists those it has",
			ErrNotFound, s.Name, name)
	}
	return ServiceBackend{s.Name, s.Backends[i]}, nil
}

// BackendsOf returns the backends of services in one of the states, in their order; all if no state is given.
func BackendsOf(services []Service, states ...lb.BackendState) []ServiceBackend {
	all := []ServiceBackend{}
	for _, service := range services {
		for _, backend := range service.Backends {
			if len(states) > 0 && !slices.Contains(states, backend.State) {
				continue
			}
			all = append(all, ServiceBackend{service.Name, backend})
		}
	}
	return all
}

// ChecksOf returns the health checks of the backends of services, in their order.
func ChecksOf(services []Service) []BackendCheck {
	all := []BackendCheck{}
	for _, service := range services {
		for _, backend := range service.Backends {
			if backend.Health == nil {
				continue
			}
			for i, result := range backend.Health.Checks {
				if i < len(service.Checks) {
					all = append(all, BackendCheck{service.Name, backend.Name, i, service.Checks[i], result})
				}
			}
		}
	}
	return all
}
