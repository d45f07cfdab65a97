// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jeoul/jeoul/internal/ops"
	"github.com/jeoul/jeoul/internal/trace"
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

// read takes a request's body. It answers itself if that is not what it should be.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion))
	body.DisallowUnknownFields()
	if err := body.Decode(into); err != nil {
		fail(w, fmt.Errorf("%w: the request cannot be understood (is it from another version?): %v", ops.ErrBadRequest, err))
		return false
	}
	return true
}

func (b Balancer) serveExplain(w http.ResponseWriter, r *http.Request) {
	var question trace.Question
	if !read(w, r, &question) {
		return
	}
	packet, err := b.Explain(question)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, http.StatusOK, packet)
}

// serveTrace streams events, a line of JSON each, until the client hangs up, its
// time is over, or the server stops.
func (b Balancer) serveTrace(w http.ResponseWriter, r *http.Request) {
	var request TraceRequest
	if !read(w, r, &request) {
		return
	}
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
			w.Header().Set("Content-Type", "application/x-ndjson")
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
		fail(w, err)
	case err != nil && r.Context().Err() == nil:
		_ = tell(trace.Event{Error: err.Error()})
	}
}
