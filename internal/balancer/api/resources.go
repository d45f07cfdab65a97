// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

const (
	servicesPath = "/v1/services"
	backendsPath = "/v1/backends"
	checksPath   = "/v1/checks"
)

// ServicesParams selects services by name; exported, for huma to find it.
type ServicesParams struct {
	Services []string `query:"service,explode" doc:"Only parts of these services; all where none is named"`
}

// BackendsParams selects backends; exported, for huma to find it.
type BackendsParams struct {
	ServicesParams
	States []string `query:"state,explode" doc:"Only backends in these states; in any where none is named"`
}

// OneServiceParams has the service that a request is about; exported, for huma to find it.
type OneServiceParams struct {
	Service string `path:"service"`
}

// handleResources adds the parts of a status, each as a list and one by one.
func (b Balancer) handleResources(a huma.API) {
	addList(b, a, endpoint{path: servicesPath, id: "list-services", summary: "The services as they are now"},
		func(services []ops.Service) []ops.Service { return services })
	addEndpoint(a, endpoint{method: http.MethodGet, path: backendsPath, id: "list-backends",
		summary: "The backends of services as they are now"},
		func(_ context.Context, in *BackendsParams) (*answer[[]ops.ServiceBackend], error) {
			list, err := b.backends(in)
			return &answer[[]ops.ServiceBackend]{list}, err
		})
	addList(b, a, endpoint{path: checksPath, id: "list-checks",
		summary: "The health checks of backends, and their latest results"}, ops.ChecksOf)
	addEndpoint(a, endpoint{method: http.MethodGet, path: servicesPath + "/{service}", id: "get-service-status",
		summary: "A service as it is now"},
		func(_ context.Context, in *OneServiceParams) (*answer[ops.Service], error) {
			service, err := b.service(in.Service)
			return &answer[ops.Service]{service}, err
		})
	addEndpoint(a, endpoint{method: http.MethodGet, path: backendPath, id: "get-backend-status",
		summary: "A backend as it is now"},
		func(_ context.Context, in *BackendParams) (*answer[ops.ServiceBackend], error) {
			service, err := b.service(in.Service)
			if err != nil {
				return nil, err
			}
			backend, err := service.Backend(in.Backend)
			return &answer[ops.ServiceBackend]{backend}, err
		})
}

// addList adds the endpoint that lists one kind of part of services.
func addList[T any](b Balancer, a huma.API, e endpoint, of func([]ops.Service) []T) {
	e.method = http.MethodGet
	addEndpoint(a, e, func(_ context.Context, in *ServicesParams) (*answer[[]T], error) {
		services, err := b.servicesNamed(in.Services)
		return &answer[[]T]{of(services)}, err
	})
}

// backends returns the selected backends. To find the few in a state among those of thousands of services, it computes
// the status of their services only: a client that polls for them would otherwise slow down all changes.
func (b Balancer) backends(in *BackendsParams) ([]ops.ServiceBackend, error) {
	names, states := in.Services, make([]lb.BackendState, len(in.States))
	for i, state := range in.States {
		states[i] = lb.BackendState(state)
	}
	if len(states) > 0 && b.ServicesIn != nil {
		names = b.ServicesIn(states)
		if len(in.Services) > 0 {
			names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(in.Services, name) })
		}
		if len(names) == 0 {
			return []ops.ServiceBackend{}, nil
		}
	}
	services, err := b.servicesNamed(names)
	return ops.BackendsOf(services, states...), err
}

// servicesNamed returns the services of these names as they are now; all where none is named.
func (b Balancer) servicesNamed(names []string) ([]ops.Service, error) {
	if len(names) > 0 && b.Services != nil {
		return b.Services(names)
	}
	status, err := b.Status()
	return status.ServicesNamed(names), err
}

func (b Balancer) service(name string) (ops.Service, error) {
	services, err := b.servicesNamed([]string{name})
	if err != nil {
		return ops.Service{}, err
	}
	return ops.Status{Services: services}.Service(name)
}

// Services asks for services by name; for all where none is named. Errors: ErrNotRunning, ErrNoRights,
// or the daemon's.
func (c *Client) Services(ctx context.Context, names ...string) (list []ops.Service, err error) {
	err = c.request(ctx, http.MethodGet, listPath(servicesPath, names), nil, &list)
	return list, err
}

// Backends asks for the backends of services; of all where none is named. Errors: as those of Services.
func (c *Client) Backends(ctx context.Context, services ...string) (list []ops.ServiceBackend, err error) {
	err = c.request(ctx, http.MethodGet, listPath(backendsPath, services), nil, &list)
	return list, err
}

// BackendsIn asks for the backends of all services that are in a state. Of a daemon of an earlier version, it may have
// others. Errors: as those of Services.
func (c *Client) BackendsIn(ctx context.Context, state lb.BackendState) (list []ops.ServiceBackend, err error) {
	path := backendsPath + "?" + url.Values{"state": {string(state)}}.Encode()
	err = c.request(ctx, http.MethodGet, path, nil, &list)
	return list, err
}

// Checks asks for the health checks of the backends of services; of all where none is named. Errors: as
// those of Services.
func (c *Client) Checks(ctx context.Context, services ...string) (list []ops.BackendCheck, err error) {
	err = c.request(ctx, http.MethodGet, listPath(checksPath, services), nil, &list)
	return list, err
}

// Sources asks for the sources of the configuration. Errors: as those of Services.
func (c *Client) Sources(ctx context.Context) (list []Source, err error) {
	err = c.request(ctx, http.MethodGet, sourcesPath, nil, &list)
	return list, err
}

func listPath(path string, services []string) string {
	if len(services) == 0 {
		return path
	}
	return path + "?" + url.Values{"service": services}.Encode()
}

// Service asks for one service. Errors: as those of Services.
func (c *Client) Service(ctx context.Context, name string) (*ops.Service, error) {
	service := &ops.Service{}
	return service, c.request(ctx, http.MethodGet, servicesPath+"/"+url.PathEscape(name), nil, service)
}

// Configured is a part of the configuration.
type Configured struct {
	// Source is the source that has it, and ETag identifies its content.
	Source, ETag string
	// Value is its JSON.
	Value json.RawMessage
}

// Configuration asks for the configuration of a service or, where it is named, of a backend of it. Errors: as those of
// Services.
func (c *Client) Configuration(ctx context.Context, service, backend string) (*Configured, error) {
	path := configPath + "/services/" + url.PathEscape(service)
	if backend != "" {
		path += "/backends/" + url.PathEscape(backend)
	}
	response, err := c.send(ctx, c.http, http.MethodGet, path, nil, http.Header{})
	if err != nil {
		return nil, fmt.Errorf("ask the daemon on %s: %w", c.at, err)
	}
	defer response.Body.Close()
	part := &Configured{Source: response.Header.Get("Jeoul-Source"), ETag: response.Header.Get("ETag")}
	if part.Value, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return nil, fmt.Errorf("ask the daemon on %s: %w", c.at, err)
	}
	return part, nil
}
