// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Problem is the body of an answer that is not a success (RFC 9457).
type Problem struct {
	Title  string `json:"title" doc:"The meaning of the status code"`
	Status int    `json:"status"`
	Detail string `json:"detail" doc:"The fault, its object, and the remedy"`
	// Errors are the invalid parts of a configuration.
	Errors []Fault `json:"errors,omitempty"`
}

// Fault is an invalid part of a configuration.
type Fault struct {
	Source  string `json:"source,omitempty" doc:"The source of configuration: the path of the file, or the name of a fragment"`
	Line    int    `json:"line,omitempty" doc:"The line in the source, where that has lines of who asked"`
	Field   string `json:"field,omitempty" doc:"The path to the value, as services[0].backends[2].weight"`
	Message string `json:"message" doc:"The fault and the remedy"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the status code of the answer, for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type of problems.
func (p *Problem) ContentType(string) string { return problemType }

// newProblem returns a problem with a status code and a detail.
func newProblem(code int, detail string) *Problem {
	return &Problem{Title: http.StatusText(code), Status: code, Detail: detail}
}

const problemType = "application/problem+json"

// init gives the router's own refusals the form of the API's.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		p := newProblem(status, message)
		for _, err := range errs {
			if err == nil {
				continue
			}
			fault := Fault{Message: err.Error()}
			var detail *huma.ErrorDetail
			if errors.As(err, &detail) {
				fault = Fault{Field: detail.Location, Message: detail.Message}
			}
			p.Errors = append(p.Errors, fault)
			p.Detail += ": " + strings.TrimPrefix(fault.Field+": "+fault.Message, ": ")
		}
		return p
	}
}

// problemOf returns an error as a problem, with the status code of its kind.
func problemOf(err error) *Problem {
	p := newProblem(codeOf(err), err.Error())
	var faults yamlfile.Problems
	var fault yamlfile.Problem
	if errors.As(err, &fault) {
		faults = yamlfile.Problems{fault}
	}
	errors.As(err, &faults)
	for _, f := range faults {
		p.Errors = append(p.Errors, Fault{f.File, f.Line, f.Field, f.Message})
	}
	return p
}

// codes are the status codes of kinds of errors; the first that fits counts.
var codes = []struct {
	kind error
	code int
}{
	{access.ErrUnknown, http.StatusUnauthorized},
	{access.ErrNoRole, http.StatusForbidden},
	{trace.ErrBadQuestion, http.StatusBadRequest},
	{ops.ErrBadRequest, http.StatusBadRequest},
	{sources.ErrMalformed, http.StatusBadRequest},
	{capture.ErrBadRequest, http.StatusBadRequest},
	{capture.ErrNoService, http.StatusNotFound},
	{capture.ErrBusy, http.StatusConflict},
	{trace.ErrNoService, http.StatusNotFound},
	{ops.ErrNotFound, http.StatusNotFound},
	{sources.ErrNotFound, http.StatusNotFound},
	{trace.ErrBusy, http.StatusConflict},
	{ops.ErrRefused, http.StatusConflict},
	{ops.ErrNotReloaded, http.StatusConflict},
	{sources.ErrOwned, http.StatusConflict},
	{sources.ErrChanged, http.StatusPreconditionFailed},
	{sources.ErrNotStored, http.StatusInsufficientStorage},
	{errTooManyStreams, http.StatusServiceUnavailable},
	{ops.ErrStopping, http.StatusServiceUnavailable},
	{context.Canceled, http.StatusServiceUnavailable},
	{context.DeadlineExceeded, http.StatusServiceUnavailable},
}

func codeOf(err error) int {
	for _, c := range codes {
		if errors.Is(err, c.kind) {
			return c.code
		}
	}
	var problems yamlfile.Problems
	var problem yamlfile.Problem
	if errors.As(err, &problems) || errors.As(err, &problem) {
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}

// write answers with a problem without the router. A client that hangs up is no error.
func (p *Problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// withProblems answers with a problem if the path or the method does not exist.
func withProblems(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		answer := &headerRecorder{header: w.Header()}
		refuse.ServeHTTP(answer, r)
		detail := "there is no " + r.URL.Path + "; " + documentPath + ".json lists the paths"
		if answer.code == http.StatusMethodNotAllowed {
			detail = r.Method + " is not for " + r.URL.Path + "; use " + w.Header().Get("Allow")
		}
		w.Header().Del("X-Content-Type-Options")
		newProblem(answer.code, detail).write(w)
	})
}

// headerRecorder records the code and the header of an answer.
type headerRecorder struct {
	header http.Header
	code   int
}

func (q *headerRecorder) Header() http.Header         { return q.header }
func (q *headerRecorder) Write(b []byte) (int, error) { return len(b), nil }
func (q *headerRecorder) WriteHeader(code int)        { q.code = code }

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// errTooManyStreams: there is no room for another stream.
var errTooManyStreams = errors.New("too many clients watch events; close one, or try again later")
