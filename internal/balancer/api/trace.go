// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// TraceRequest is the request for a live trace.
type TraceRequest struct {
	trace.Filter
	// Seconds is how long to trace; 0 means until the client hangs up.
	Seconds float64 `json:"seconds,omitempty"`
}

// readerTimeout bounds the time in which a client must read a line of a trace: otherwise a client that does not read
// would keep the trace running.
const readerTimeout = 10 * time.Second

// handleTraces adds the endpoints that explain, trace and capture packets.
func (b Balancer) handleTraces(a huma.API) {
	addEndpoint(a, endpoint{method: http.MethodPost, path: explainPath, id: "explain", summary: "The outcome that a packet would have",
		body: schemaOf[trace.Question](a), required: true, slow: true},
		func(_ context.Context, in *RequestBody) (*answer[*trace.Packet], error) {
			var question trace.Question
			if err := decodeJSON(in.RawBody, &question); err != nil {
				return nil, err
			}
			packet, err := b.Explain(question)
			return &answer[*trace.Packet]{packet}, err
		})
	addEndpoint(a, endpoint{method: http.MethodPost, path: tracePath, id: "trace", summary: "Real packets, a line of JSON each",
		body: schemaOf[TraceRequest](a), required: true, role: ops.RoleOperate, kind: traceType,
		answer: schemaOf[trace.Event](a)},
		func(_ context.Context, in *RequestBody) (*huma.StreamResponse, error) {
			var request TraceRequest
			if err := decodeJSON(in.RawBody, &request); err != nil {
				return nil, err
			}
			return &huma.StreamResponse{Body: func(ctx huma.Context) { b.streamTrace(ctx, request) }}, nil
		})
	addEndpoint(a, endpoint{method: http.MethodPost, path: capturePath, id: "capture", role: ops.RoleOperate, kind: traceType,
		summary: "Real packets with their bytes, a line of JSON each", body: schemaOf[capture.Request](a),
		required: true,
		answer:   schemaOf[capture.Event](a)},
		func(ctx context.Context, in *RequestBody) (*huma.StreamResponse, error) {
			var request capture.Request
			if err := decodeJSON(in.RawBody, &request); err != nil {
				return nil, err
			}
			by := callerOf(ctx).name()
			return &huma.StreamResponse{Body: func(stream huma.Context) {
				streamLines(stream, func(ctx context.Context, notify func(capture.Event) error) error {
					return b.Capture(ctx, request, by, notify)
				}, func(err error) capture.Event { return capture.Event{Error: err.Error()} })
			}}, nil
		})
}

// streamTrace sends the events of a trace until its time is over.
func (b Balancer) streamTrace(stream huma.Context, request TraceRequest) {
	streamLines(stream, func(ctx context.Context, notify func(trace.Event) error) error {
		if request.Seconds > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(request.Seconds*float64(time.Second)))
			defer cancel()
		}
		return b.Trace(ctx, request.Filter, notify)
	}, func(err error) trace.Event { return trace.Event{Error: err.Error()} })
}

// streamLines sends the events of run, a line of JSON each, until run returns; its context ends when the client hangs
// up, or the server stops. An error of run is a problem before the first line; after it, it is the line that failed
// returns.
func streamLines[E any](stream huma.Context, run func(ctx context.Context, notify func(E) error) error,
	failed func(error) E) {
	r, w := humago.Unwrap(stream)
	// The server's timeouts are for idle clients; streams have their own.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	started := false
	notify := func(event E) error {
		if !started {
			w.Header().Set("Content-Type", traceType)
			started = true
		}
		_ = control.SetWriteDeadline(time.Now().Add(readerTimeout))
		if err := json.NewEncoder(w).Encode(event); err != nil {
			return err
		}
		return control.Flush()
	}
	err := run(r.Context(), notify)
	switch {
	case err != nil && !started:
		problemOf(err).write(w)
	case err != nil && r.Context().Err() == nil:
		_ = notify(failed(err))
	}
}

// traceType is the media type of lines of JSON.
const traceType = "application/x-ndjson"
