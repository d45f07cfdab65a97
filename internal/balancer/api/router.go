// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// endpoint is a request that the API answers.
type endpoint struct {
	method, path, id, summary string
	// body is the schema of the request's body; nil where there is none. It may be left out unless it
	// is required, and has up to maxBody bytes (0: maxRequest).
	body     *huma.Schema
	required bool
	maxBody  int64
	// answer is the schema of the answer's body, if the Go type does not define it.
	answer *huma.Schema
	// kind is the media type of the answer; empty: JSON.
	kind string
	// role is the role that the client needs; empty: RoleRead.
	role ops.Role
	// dryRunReads: with dry_run, which changes nothing, RoleRead is enough.
	dryRunReads bool
	// slow: the answer comes when the requested change has been made.
	slow bool
}

// RequestBody is the body of a request, as it came; exported, for huma to find it where it is embedded.
type RequestBody struct {
	ContentType string `header:"Content-Type" hidden:"true"`
	RawBody     []byte `contentType:"application/json"`
}

// emptyRequest is a request without parameters but those in its path.
type emptyRequest struct{}

// answer is the answer to a request.
type answer[T any] struct{ Body T }

// changeTimeout bounds the time of a change: programs are verified, and new backends are resolved.
const changeTimeout = 5 * time.Minute

// addEndpoint adds an endpoint to the API.
func addEndpoint[I, O any](a huma.API, e endpoint, answer func(context.Context, *I) (*O, error)) {
	op := huma.Operation{Method: e.method, Path: e.path, OperationID: e.id, Summary: e.summary,
		SkipValidateBody: true, MaxBodyBytes: max(e.maxBody, maxRequest) + 1, BodyReadTimeout: bodyTimeout,
		Security: credentials, Middlewares: huma.Middlewares{requireRole(e.roleFor)},
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
			http.StatusConflict, http.StatusRequestTimeout, http.StatusPreconditionFailed,
			http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInternalServerError,
			http.StatusServiceUnavailable, http.StatusInsufficientStorage}}
	if e.slow {
		op.Middlewares = append(op.Middlewares, func(ctx huma.Context, next func(huma.Context)) {
			_, w := humago.Unwrap(ctx)
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(changeTimeout))
			next(ctx)
		})
	}
	huma.Register(a, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := answer(ctx, in)
		if err != nil {
			return nil, problemOf(err)
		}
		return out, nil
	})
	e.describe(a)
}

// roleFor is the role that the client of a request needs.
func (e endpoint) roleFor(ctx huma.Context) ops.Role {
	if e.dryRunReads {
		// As huma reads the parameter.
		if dry, err := strconv.ParseBool(ctx.Query("dry_run")); err == nil && dry {
			return ops.RoleRead
		}
	}
	return cmp.Or(e.role, ops.RoleRead)
}

// describe completes the description of an endpoint. The API validates bodies itself, with messages that name the key
// and the remedy.
func (e endpoint) describe(a huma.API) {
	item := a.OpenAPI().Paths[e.path]
	op := map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
		http.MethodPatch: item.Patch, http.MethodDelete: item.Delete}[e.method]
	op.Description = fmt.Sprintf("Over TCP it needs the role %s.", cmp.Or(e.role, ops.RoleRead))
	if e.dryRunReads {
		op.Description = fmt.Sprintf("Over TCP it needs the role %s; with dry_run, %s.", e.role, ops.RoleRead)
	}
	if op.RequestBody != nil {
		op.RequestBody.Required = e.required
		op.RequestBody.Content = map[string]*huma.MediaType{"application/json": {Schema: e.body}}
		switch {
		case e.method == http.MethodPatch:
			op.RequestBody.Content = map[string]*huma.MediaType{"application/merge-patch+json": {Schema: e.body}}
		case e.method == http.MethodPut:
			op.RequestBody.Content["application/yaml"] = &huma.MediaType{Schema: e.body}
		}
	}
	if e.answer != nil {
		op.Responses["200"].Content = map[string]*huma.MediaType{cmp.Or(e.kind, "application/json"): {Schema: e.answer}}
	}
}

// schemaOf returns the schema of a Go type.
func schemaOf[T any](a huma.API) *huma.Schema {
	return huma.SchemaFromType(a.OpenAPI().Components.Schemas, typeOf[T]())
}

const versionPath = "/v1/version"

// version is the version of the program and of its API.
type version struct {
	Version string `json:"version"`
	API     string `json:"api"`
}

// decodeJSON decodes a request's body as JSON.
func decodeJSON(body []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = fmt.Errorf("there is more after the first value")
		}
	}
	if err != nil {
		return fmt.Errorf("%w: the request cannot be understood (is it from another version?): %v",
			ops.ErrBadRequest, err)
	}
	return nil
}
