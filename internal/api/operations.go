// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Errors of operations that callers may test for. Nothing was changed then.
var (
	// ErrNotFound: no service or backend has that name.
	ErrNotFound = errors.New("not found")
	// ErrRefused: it would do harm, or nothing.
	ErrRefused = errors.New("refused")
	// ErrBadRequest: it cannot be meant, whatever the balancer's state is.
	ErrBadRequest = errors.New("not possible")
	// ErrStopping: the balancer ends, and its operations with it.
	ErrStopping = errors.New("the balancer is stopping")
)

// Verb is what an operation does.
type Verb string

// The operations.
const (
	// Drain lets a backend finish the flows that it has, and gives it no new one.
	Drain Verb = "drain"
	// Enable gives a drained backend new flows again.
	Enable Verb = "enable"
	// Weight gives a backend another share of new flows.
	Weight Verb = "weight"
	// Undo takes the latest operation back that was not taken back yet.
	Undo Verb = "undo"
)

// Order asks for an operation.
type Order struct {
	Verb Verb
	// Service and Backend are names; Undo has none.
	Service, Backend string
	// AllServices means the backends of that address in every service.
	AllServices bool
	// Deadline of Drain: a backend that is still drained after this time is taken
	// out of its service; 0 means never.
	Deadline time.Duration
	// Weight of Weight, 0..65535.
	Weight int64
	// By is who asks, for others to read.
	By string
}

// Target is a backend of a service.
type Target struct {
	Service string     `json:"service"`
	Backend string     `json:"backend"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
}

// String returns "web/web01", as the command line has it.
func (t Target) String() string { return t.Service + "/" + t.Backend }

// Operation is one that was done.
type Operation struct {
	Verb    Verb      `json:"verb"`
	Targets []Target  `json:"targets"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	// Deadline of Drain; zero: none.
	Deadline time.Time `json:"deadline,omitzero"`
	// Weight of Weight.
	Weight *uint16 `json:"weight,omitempty"`
	// Lost says why it cannot be taken back any more; empty if it can.
	Lost string `json:"lost,omitempty"`
	// Undone is what Undo took back.
	Undone *Operation `json:"undone,omitempty"`
}

// Operations are what was changed beside the configuration, for as long as the
// process lives.
type Operations struct {
	// InForce are the backends that differ from the configuration, in its order.
	InForce []Overlay `json:"in_force"`
	// History are operations that can be taken back, the latest first.
	History []Operation `json:"history"`
}

// Overlay is what operations have made of one backend.
type Overlay struct {
	Target
	Drain  *Drained  `json:"drain,omitempty"`
	Weight *Weighted `json:"weight,omitempty"`
	// Left is what the backend still has.
	Left Left `json:"left"`
}

// Drained is a backend that operations have drained or, where the configuration
// drains it, enabled.
type Drained struct {
	// On is false where the configuration drains the backend and operations do not.
	On bool      `json:"on"`
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Deadline is when it is taken out of the service; zero: never.
	Deadline time.Time `json:"deadline,omitzero"`
	// Out says that it was; then AtDeadline is what was left, if that could be read.
	Out        bool  `json:"out"`
	AtDeadline *Left `json:"at_deadline,omitempty"`
}

// Weighted is a weight that operations have set.
type Weighted struct {
	Value uint16 `json:"value"`
	// Configured is the weight in the configuration.
	Configured uint16    `json:"configured"`
	By         string    `json:"by"`
	At         time.Time `json:"at"`
}

// Left is what a backend still has to do.
type Left struct {
	// Flows are those remembered that name it, ended ones included until they are
	// forgotten; looked through some seconds ago at most.
	Flows uint64 `json:"flows"`
	// Tracked says that the service remembers every flow: then Active are those
	// that have not ended.
	Tracked bool   `json:"tracked"`
	Active  uint32 `json:"active"`
	// Packets were sent to it so far.
	Packets uint64 `json:"packets"`
	// Until is, where flows are not tracked, when the transition ends: silent flows
	// are remembered from their next packet on, if it comes before. Zero: it is over.
	Until time.Time `json:"until,omitzero"`
}

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
func (b orderBody) order(verb Verb, r *http.Request) (Order, error) {
	o := Order{Verb: verb, Service: r.PathValue("service"), Backend: r.PathValue("backend"), AllServices: b.AllServices, By: callerOf(r.Context())}
	switch {
	case verb != Drain && b.DeadlineSeconds != 0:
		return o, fmt.Errorf("%w: deadline_seconds goes with drain only", ErrBadRequest)
	case verb != Weight && b.Weight != nil:
		return o, fmt.Errorf("%w: weight goes with weight only", ErrBadRequest)
	case verb == Weight && b.Weight == nil:
		return o, fmt.Errorf("%w: weight is missing", ErrBadRequest)
	case verb == Undo && b.AllServices:
		return o, fmt.Errorf("%w: all_services does not go with undo, which takes back all that the operation did", ErrBadRequest)
	case b.DeadlineSeconds < 0 || b.DeadlineSeconds > maxDeadline.Seconds():
		return o, fmt.Errorf("%w: a deadline of %g seconds; it can be up to %g, or 0 for none", ErrBadRequest, b.DeadlineSeconds, maxDeadline.Seconds())
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
	mux.HandleFunc("POST "+undoPath, b.serveOrder(Undo))
	for _, verb := range []Verb{Drain, Enable, Weight} {
		mux.HandleFunc("POST "+backendPath+"/"+string(verb), b.serveOrder(verb))
	}
}

func (b Balancer) serveOrder(verb Verb) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body orderBody
		if r.ContentLength != 0 && !read(w, r, &body) {
			return
		}
		order, err := body.order(verb, r)
		if err == nil {
			var done Operation
			if done, err = b.Operate(r.Context(), order); err == nil {
				reply(w, http.StatusOK, done)
				return
			}
		}
		fail(w, err)
	}
}

// Operations asks what operations have changed. Errors: ErrNotRunning,
// ErrNoRights, or what the daemon said.
func (c *Client) Operations(ctx context.Context) (*Operations, error) {
	operations := &Operations{}
	return operations, c.ask(ctx, http.MethodGet, operationsPath, nil, operations)
}

// Operate asks for an operation; who asks is what the socket says. Errors:
// ErrNotRunning, ErrNoRights, or what the daemon said: then nothing was changed.
func (c *Client) Operate(ctx context.Context, o Order) (*Operation, error) {
	path, body := undoPath, orderBody{DeadlineSeconds: o.Deadline.Seconds(), AllServices: o.AllServices}
	if o.Verb != Undo {
		path = "/v1/services/" + url.PathEscape(o.Service) + "/backends/" + url.PathEscape(o.Backend) + "/" + string(o.Verb)
	}
	if o.Verb == Weight {
		body.Weight = &o.Weight
	}
	done := &Operation{}
	return done, c.ask(ctx, http.MethodPost, path, body, done)
}
