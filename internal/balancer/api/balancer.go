// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// Errors that callers may test for.
var (
	// ErrInUse: another process answers on the socket.
	ErrInUse = errors.New("another process answers there")
	// ErrNotRunning: no process answers on the socket.
	ErrNotRunning = errors.New("no daemon answers there")
	// ErrNoRights: the caller may not create or use the socket.
	ErrNoRights = fmt.Errorf("%w", fs.ErrPermission)
)

// The paths of requests that several files use.
const (
	// documentPath is where the description of the API is served, as openapi.json.
	documentPath = "/openapi"

	statusPath  = "/v1/status"
	explainPath = "/v1/explain"
	tracePath   = "/v1/trace"
	capturePath = "/v1/capture"
	reloadPath  = "/v1/reload"
	watchPath   = "/v1/watch"
	sessionPath = "/v1/session"
)

// Balancer is the interface of a running balancer to the API.
type Balancer struct {
	Status func() (ops.Status, error)
	// Services returns the services of these names, as in Status and in its order, without computing the others; nil:
	// they are taken from Status.
	Services func(names []string) ([]ops.Service, error)
	// ServicesIn returns the names of the services that have a backend in one of the states, without computing their
	// status; nil: they are taken from Status.
	ServicesIn func(states []lb.BackendState) []string
	// Explain returns the outcome that a packet would have. Errors: trace.ErrBadQuestion, trace.ErrNoService.
	Explain func(trace.Question) (*trace.Packet, error)
	// Trace reports real packets, after an event that it has started, until the context ends or notify returns an
	// error, which it returns. Error: trace.ErrBusy.
	Trace func(ctx context.Context, filter trace.Filter, notify func(trace.Event) error) error
	// Capture reports real packets, with their bytes, for the client by, after an event that it has started, until a
	// bound of the request is reached, the context ends or notify returns an error, which it returns. Errors:
	// capture.ErrBadRequest, capture.ErrNoService, capture.ErrBusy.
	Capture func(ctx context.Context, request capture.Request, by string, notify func(capture.Event) error) error
	// Operate changes a backend. Errors: ErrNotFound, ErrRefused, ErrBadRequest,
	// ErrStopping.
	Operate func(context.Context, ops.Order) (ops.Operation, error)
	// Drain takes the balancer out of every anycast, or brings it back, for the client by. Errors: ErrRefused,
	// ErrStopping, the context's.
	Drain func(ctx context.Context, drain bool, by string) (ops.Sharing, error)
	// Operations returns the operations in force, and those that can be undone.
	Operations func() (ops.Operations, error)
	// Flows lists remembered flows that match a query. Errors: ErrNotFound, ErrBadRequest.
	Flows func(ops.FlowQuery) (ops.FlowList, error)
	// Check checks a backend now, by the names of its service and its own. Errors: ErrNotFound, ErrRefused, the
	// context's.
	Check func(ctx context.Context, service, backend string) (ops.Checked, error)
	// Reload has the daemon read its configuration file again, for the client by, and returns when the file is in force
	// or refused. Errors: ErrNotReloaded, ErrStopping, the context's.
	Reload func(by string) (ops.Reloaded, error)
	// Events are the latest events of the balancer.
	Events *events.Log
	// Sources are the sources of the configuration.
	Sources *sources.Sources
	// Configured is called after each change of the configuration, with the name of the caller; nil: no call.
	Configured func(change sources.Change, by string)
	// Denied is called for each request over TCP that is denied, with the client's address and the reason; nil: no
	// call.
	Denied func(from string, why error)
	// Version is the version of the program.
	Version string
	// Metrics answers scrapes; nil: none are.
	Metrics http.Handler
}
