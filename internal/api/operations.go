// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/jeoul/jeoul/internal/ops"
)

const (
	operationsPath = "/v1/operations"
	undoPath       = "/v1/operations/undo"
	backendPath    = "/v1/services/{service}/backends/{backend}"
)

// orderBody is what the body of a request may say; it may be empty.
type orderBody struct {
	DeadlineSeconds float64 `json:"deadline_seconds,omitempty"`
	Weight          *int64  `json:"weight,omitempty"`
	AllServices     bool    `json:"all_services,omitempty"`
}

// maxDeadline bounds a drain: longer ones are no deadline.
const maxDeadline = 366 * 24 * time.Hour

// order puts a request's path and body together.
func (b orderBody) order(verb ops.Verb, r *http.Request) (ops.Order, error) {
	o := ops.Order{Verb: verb, Service: r.PathValue("service"), Backend: r.PathValue("backend"), AllServices: b.AllServices, By: callerOf(r.Context())}
	switch {
	case verb != ops.Drain && b.DeadlineSeconds != 0:
		return o, fmt.Errorf("%w: deadline_seconds goes with drain only", ops.ErrBadRequest)
	case verb != ops.Weight && b.Weight != nil:
		return o, fmt.Errorf("%w: weight goes with weight only", ops.ErrBadRequest)
	case verb == ops.Weight && b.Weight == nil:
		return o, fmt.Errorf("%w: weight is missing", ops.ErrBadRequest)
	case verb == ops.Undo && b.AllServices:
		return o, fmt.Errorf("%w: all_services does not go with undo, which takes back all that the operation did", ops.ErrBadRequest)
	case b.DeadlineSeconds < 0 || b.DeadlineSeconds > maxDeadline.Seconds():
		return o, fmt.Errorf("%w: a deadline of %g seconds; it can be up to %g, or 0 for none", ops.ErrBadRequest, b.DeadlineSeconds, maxDeadline.Seconds())
	}
	o.Deadline = time.Duration(b.DeadlineSeconds * float64(time.Second))
	if b.Weight != nil {
		o.Weight = *b.Weight
	}
	return o, nil
}

// handleOperations adds what changes a balancer.
func (b Balancer) handleOperations(mux *http.ServeMux) {
	mux.HandleFunc("GET "+operationsPath, func(w http.ResponseWriter, _ *http.Request) {
		operations, err := b.Operations()
		if err != nil {
			fail(w, err)
			return
		}
		reply(w, http.StatusOK, operations)
	})
	mux.HandleFunc("POST "+backendPath+checkPath, b.serveCheck)
	mux.HandleFunc("POST "+undoPath, b.serveOrder(ops.Undo))
	for _, verb := range []ops.Verb{ops.Drain, ops.Enable, ops.Weight} {
		mux.HandleFunc("POST "+backendPath+"/"+string(verb), b.serveOrder(verb))
	}
}

func (b Balancer) serveOrder(verb ops.Verb) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body orderBody
		if r.ContentLength != 0 && !read(w, r, &body) {
			return
		}
		order, err := body.order(verb, r)
		if err == nil {
			var done ops.Operation
			if done, err = b.Operate(r.Context(), order); err == nil {
				reply(w, http.StatusOK, done)
				return
			}
		}
		fail(w, err)
	}
}

// Operations asks what operations have changed. Errors: ErrNotRunning,
// ErrNoRights, or the daemon's.
func (c *Client) Operations(ctx context.Context) (*ops.Operations, error) {
	operations := &ops.Operations{}
	return operations, c.ask(ctx, http.MethodGet, operationsPath, nil, operations)
}

// Operate asks for an operation; who asks is what the socket says. Errors:
// ErrNotRunning, ErrNoRights, or the daemon's: then nothing was changed.
func (c *Client) Operate(ctx context.Context, o ops.Order) (*ops.Operation, error) {
	path, body := undoPath, orderBody{DeadlineSeconds: o.Deadline.Seconds(), AllServices: o.AllServices}
	if o.Verb != ops.Undo {
		path = pathOf(o.Service, o.Backend) + "/" + string(o.Verb)
	}
	if o.Verb == ops.Weight {
		body.Weight = &o.Weight
	}
	done := &ops.Operation{}
	return done, c.ask(ctx, http.MethodPost, path, body, done)
}

// pathOf is that of a backend.
func pathOf(service, backend string) string {
	return "/v1/services/" + url.PathEscape(service) + "/backends/" + url.PathEscape(backend)
}
