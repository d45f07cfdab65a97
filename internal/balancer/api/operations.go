// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

const (
	operationsPath = "/v1/operations"
	undoPath       = "/v1/operations/undo"
	drainPath      = "/v1/balancer/drain"
	undrainPath    = "/v1/balancer/undrain"
	backendPath    = "/v1/services/{service}/backends/{backend}"
)

// orderBody has the fields that the body of a request may have; it may be empty.
type orderBody struct {
	DeadlineSeconds float64 `json:"deadline_seconds,omitempty"`
	Weight          *int64  `json:"weight,omitempty"`
	AllServices     bool    `json:"all_services,omitempty"`
	Force           bool    `json:"force,omitempty"`
}

// maxDeadline bounds the deadline of a drain.
const maxDeadline = 366 * 24 * time.Hour

// order combines a request's path and body.
func (b orderBody) order(verb ops.Verb, at BackendParams, by string) (ops.Order, error) {
	o := ops.Order{Verb: verb, Service: at.Service, Backend: at.Backend, AllServices: b.AllServices,
		Force: b.Force, By: by}
	switch {
	case verb != ops.Drain && b.DeadlineSeconds != 0:
		return o, fmt.Errorf("%w: deadline_seconds goes with drain only", ops.ErrBadRequest)
	case verb != ops.Weight && b.Weight != nil:
		return o, fmt.Errorf("%w: weight goes with weight only", ops.ErrBadRequest)
	case verb == ops.Weight && b.Weight == nil:
		return o, fmt.Errorf("%w: weight is missing", ops.ErrBadRequest)
	case verb != ops.Enable && b.Force:
		return o, fmt.Errorf("%w: force goes with enable only", ops.ErrBadRequest)
	case verb == ops.Undo && b.AllServices:
		return o, fmt.Errorf("%w: all_services does not go with undo, which takes back all that the operation did",
			ops.ErrBadRequest)
	case b.DeadlineSeconds < 0 || b.DeadlineSeconds > maxDeadline.Seconds():
		return o, fmt.Errorf("%w: a deadline of %g seconds; it can be up to %g, or 0 for none", ops.ErrBadRequest,
			b.DeadlineSeconds, maxDeadline.Seconds())
	}
	o.Deadline = time.Duration(b.DeadlineSeconds * float64(time.Second))
	if b.Weight != nil {
		o.Weight = *b.Weight
	}
	return o, nil
}

// BackendParams has the backend that an order is about; exported, for huma to find it where it is embedded.
type BackendParams struct {
	Service string `path:"service"`
	Backend string `path:"backend"`
}

// handleOperations adds the endpoints of operations, which change a balancer beside its configuration.
func (b Balancer) handleOperations(a huma.API) {
	addEndpoint(a, endpoint{method: http.MethodGet, path: operationsPath, id: "list-operations",
		summary: "What operations have changed, and which can be taken back"},
		func(context.Context, *emptyRequest) (*answer[ops.Operations], error) {
			operations, err := b.Operations()
			return &answer[ops.Operations]{operations}, err
		})
	addEndpoint(a, endpoint{method: http.MethodPost, path: backendPath + checkPath, id: "check",
		summary: "Ask a backend now whether it serves, without consequence for its verdict", role: ops.RoleOperate},
		func(ctx context.Context, in *BackendParams) (*answer[ops.Checked], error) {
			checked, err := b.check(ctx, *in)
			return &answer[ops.Checked]{checked}, err
		})
	addEndpoint(a, endpoint{method: http.MethodPost, path: undoPath, id: "undo", summary: "Take the latest operation back",
		body: schemaOf[orderBody](a), role: ops.RoleOperate, slow: true},
		func(ctx context.Context, in *RequestBody) (*answer[ops.Operation], error) {
			return b.operate(ctx, ops.Undo, BackendParams{}, in.RawBody)
		})
	for _, drain := range []bool{true, false} {
		path, id, summary := drainPath, "drain-balancer",
			"Take this balancer out of every anycast, and leave the VIPs that it shares by VRRP to others: routers have it as the last choice, and after a pause not at all"
		if !drain {
			path, id, summary = undrainPath, "undrain-balancer", "Bring this balancer back"
		}
		addEndpoint(a, endpoint{method: http.MethodPost, path: path, id: id, summary: summary, role: ops.RoleOperate,
			slow: true},
			func(ctx context.Context, _ *emptyRequest) (*answer[ops.Sharing], error) {
				sharing, err := b.Drain(ctx, drain, callerOf(ctx).name())
				return &answer[ops.Sharing]{sharing}, err
			})
	}
	for verb, summary := range map[ops.Verb]string{ops.Drain: "Let a backend finish its flows, and give it no new one",
		ops.Disable: "Take a backend out of its service at once, and end the flows that it has",
		ops.Enable:  "Give a drained or disabled backend new flows again",
		ops.Weight:  "Give a backend another share of new flows"} {
		addEndpoint(a, endpoint{method: http.MethodPost, path: backendPath + "/" + string(verb), id: string(verb),
			summary: summary, body: schemaOf[orderBody](a), role: ops.RoleOperate, slow: true},
			func(ctx context.Context, in *struct {
				BackendParams
				RequestBody
			}) (*answer[ops.Operation], error) {
				return b.operate(ctx, verb, in.BackendParams, in.RawBody)
			})
	}
}

// operate executes the order in a request.
func (b Balancer) operate(ctx context.Context, verb ops.Verb, at BackendParams, text []byte) (*answer[ops.Operation],
	error) {
	var body orderBody
	if len(text) > 0 {
		if err := decodeJSON(text, &body); err != nil {
			return nil, err
		}
	}
	order, err := body.order(verb, at, callerOf(ctx).name())
	if err != nil {
		return nil, err
	}
	done, err := b.Operate(ctx, order)
	return &answer[ops.Operation]{done}, err
}

// Operations asks for the changes by operations. Errors: ErrNotRunning, ErrNoRights, or the daemon's.
func (c *Client) Operations(ctx context.Context) (*ops.Operations, error) {
	operations := &ops.Operations{}
	return operations, c.request(ctx, http.MethodGet, operationsPath, nil, operations)
}

// Operate asks for an operation; the daemon takes the caller's name from the socket. Errors: ErrNotRunning,
// ErrNoRights, or the daemon's: then nothing was changed.
func (c *Client) Operate(ctx context.Context, o ops.Order) (*ops.Operation, error) {
	path, body := undoPath, orderBody{DeadlineSeconds: o.Deadline.Seconds(), AllServices: o.AllServices, Force: o.Force}
	if o.Verb != ops.Undo {
		path = pathOf(o.Service, o.Backend) + "/" + string(o.Verb)
	}
	if o.Verb == ops.Weight {
		body.Weight = &o.Weight
	}
	done := &ops.Operation{}
	return done, c.request(ctx, http.MethodPost, path, body, done)
}

// Drain takes the balancer out of every anycast and leaves VIPs to others, or brings it back. Errors: ErrNotRunning,
// ErrNoRights, or the daemon's: then nothing was changed.
func (c *Client) Drain(ctx context.Context, drain bool) (*ops.Sharing, error) {
	path := undrainPath
	if drain {
		path = drainPath
	}
	sharing := &ops.Sharing{}
	return sharing, c.request(ctx, http.MethodPost, path, nil, sharing)
}

// pathOf is the path of a backend's endpoint.
func pathOf(service, backend string) string {
	return "/v1/services/" + url.PathEscape(service) + "/backends/" + url.PathEscape(backend)
}
