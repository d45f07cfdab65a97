// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// TraceRequest asks for a live trace.
type TraceRequest struct {
	trace.Filter
	// Seconds is how long to trace; 0 means until the client hangs up.
	Seconds float64 `json:"seconds,omitempty"`
}

// How much of a client is waited for.
const (
	// maxQuestion bounds what is read of a request, in bytes.
	maxQuestion = 64 << 10
	// patience bounds how long a client may take to read a line of a trace: one
	// that does not read at all would keep the balancer tracing.
	patience = 10 * time.Second
)

// handleTraces adds what explains packets.
func (b Balancer) handleTraces(a huma.API) {
	add(a, endpoint{method: http.MethodPost, path: explainPath, id: "explain", summary: "What would become of a packet", body: schemaOf[trace.Question](a), required: true, slow: true},
		func(_ context.Context, in *Sent) (*answer[*trace.Packet], error) {
			var question trace.Question
			if err := read(in.RawBody, &question); err != nil {
				return nil, err
			}
			packet, err := b.Explain(question)
			return &answer[*trace.Packet]{packet}, err
		})
	add(a, endpoint{method: http.MethodPost, path: tracePath, id: "trace", summary: "Real packets, a line of JSON each", body: schemaOf[TraceRequest](a), required: true, role: ops.RoleOperate, kind: traceType, answer: schemaOf[trace.Event](a)},
		func(_ context.Context, in *Sent) (*huma.StreamResponse, error) {
			var request TraceRequest
			if err := read(in.RawBody, &request); err != nil {
				return nil, err
			}
			return &huma.StreamResponse{Body: func(ctx huma.Context) { b.streamTrace(ctx, request) }}, nil
		})
}

// streamTrace sends events, a line of JSON each, until the client hangs up, its
// time is over, or the server stops.
func (b Balancer) streamTrace(stream huma.Context, request TraceRequest) {
	r, w := humago.Unwrap(stream)
	// The server's bounds are for those who say nothing; here they are ours.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	ctx := r.Context()
	if request.Seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(request.Seconds*float64(time.Second)))
		defer cancel()
	}
	started := false
	tell := func(event trace.Event) error {
		if !started {
			w.Header().Set("Content-Type", traceType)
			started = true
		}
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		if err := json.NewEncoder(w).Encode(event); err != nil {
			return err
		}
		return control.Flush()
	}
	err := b.Trace(ctx, request.Filter, tell)
	switch {
	case err != nil && !started:
		problemOf(err).write(w)
	case err != nil && r.Context().Err() == nil:
		_ = tell(trace.Event{Error: err.Error()})
	}
}

// traceType is that of lines of JSON.
const traceType = "application/x-ndjson"
