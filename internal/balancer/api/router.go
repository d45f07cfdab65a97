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
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// documentPath is where the description of the API is served, as openapi.json.
const documentPath = "/openapi"

// endpoint is a request that the API answers.
type endpoint struct {
	method, path, id, summary string
	// body is the schema of the request's body; nil where there is none. It may be left out unless it
	// is required, and has up to maxBody bytes (0: maxQuestion).
	body     *huma.Schema
	required bool
	maxBody  int64
	// answer is the schema of the answer's body, where its Go type does not say it.
	answer *huma.Schema
	// kind is the media type of the answer; empty: JSON.
	kind string
	// role is the role that the client needs; empty: RoleRead.
	role ops.Role
	// tries: with dry_run, which changes nothing, RoleRead is enough.
	tries bool
	// slow: the answer takes as long as the change that was asked for.
	slow bool
}

// Sent is the body of a request, as it came; exported, for huma to find it where it is embedded.
type Sent struct {
	ContentType string `header:"Content-Type" hidden:"true"`
	RawBody     []byte `contentType:"application/json"`
}

// none is a request of which everything is in its path.
type none struct{}

// answer is the answer to a request.
type answer[T any] struct{ Body T }

// changeBound is how long an answer to a change may take: programs are verified, and backends that
// are new are looked for.
const changeBound = 5 * time.Minute

// add has the API answer a request.
func add[I, O any](a huma.API, e endpoint, answer func(context.Context, *I) (*O, error)) {
	op := huma.Operation{Method: e.method, Path: e.path, OperationID: e.id, Summary: e.summary,
		SkipValidateBody: true, MaxBodyBytes: max(e.maxBody, maxQuestion) + 1, BodyReadTimeout: bodyBound,
		Security: credentials, Middlewares: huma.Middlewares{needs(e.roleFor)},
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
			http.StatusConflict, http.StatusRequestTimeout, http.StatusPreconditionFailed,
			http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInternalServerError,
			http.StatusServiceUnavailable, http.StatusInsufficientStorage}}
	if e.slow {
		op.Middlewares = append(op.Middlewares, func(ctx huma.Context, next func(huma.Context)) {
			_, w := humago.Unwrap(ctx)
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(changeBound))
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
	if e.tries {
		// As huma reads the parameter.
		if dry, err := strconv.ParseBool(ctx.Query("dry_run")); err == nil && dry {
			return ops.RoleRead
		}
	}
	return cmp.Or(e.role, ops.RoleRead)
}

// describe completes the description of an endpoint. Bodies are read by the API's own rules, whose messages name the
// key and the cure.
func (e endpoint) describe(a huma.API) {
	item := a.OpenAPI().Paths[e.path]
	op := map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
		http.MethodPatch: item.Patch, http.MethodDelete: item.Delete}[e.method]
	op.Description = fmt.Sprintf("Over TCP it needs the role %s.", cmp.Or(e.role, ops.RoleRead))
	if e.tries {
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

// newRouter returns the handler of requests, and its description.
func newRouter(b Balancer) (http.Handler, huma.API) {
	mux := http.NewServeMux()
	described := huma.DefaultConfig("Jeoul", "1")
	described.Info.Description = "The API of a running balancer."
	described.OpenAPIPath, described.DocsPath, described.SchemasPath = documentPath, "", ""
	described.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", nameOf)
	described.Components.SecuritySchemes = securitySchemes
	described.CreateHooks = nil // links to schemas that are not served
	a := humago.New(mux, described)
	b.showStatus(a)
	b.showResources(a)
	b.showFlows(a)
	b.showMembers(a)
	b.handleOperations(a)
	b.handleConfiguration(a)
	b.handleTraces(a)
	b.handleEvents(a)
	b.handleWatches(a)
	if b.Metrics != nil {
		mux.Handle("GET /metrics", b.Metrics)
	}
	return bounded(withProblems(mux)), a
}

// nameOf is the name of a type's schema; traces and captures have types of names that others have, too.
func nameOf(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() == typeOf[trace.Packet]().PkgPath() {
		return "Trace" + name
	}
	if t.PkgPath() == typeOf[capture.Packet]().PkgPath() {
		return "Capture" + name
	}
	return name
}

// Document returns the description of the API in OpenAPI 3.1, as JSON.
func Document() ([]byte, error) {
	_, a := newRouter(Balancer{})
	text, err := a.OpenAPI().MarshalJSON()
	if err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	err = json.Indent(&indented, text, "", "  ")
	return append(indented.Bytes(), '\n'), err
}

// schemaOf returns the schema of a Go type.
func schemaOf[T any](a huma.API) *huma.Schema {
	return huma.SchemaFromType(a.OpenAPI().Components.Schemas, typeOf[T]())
}

func (b Balancer) showStatus(a huma.API) {
	add(a, endpoint{method: http.MethodGet, path: statusPath, id: "get-status", summary: "The balancer as it is now"},
		func(context.Context, *none) (*answer[ops.Status], error) {
			status, err := b.Status()
			return &answer[ops.Status]{status}, err
		})
	add(a, endpoint{method: http.MethodGet, path: versionPath, id: "get-version",
		summary: "The versions of the program and of the API"},
		func(context.Context, *none) (*answer[version], error) {
			return &answer[version]{version{b.Version, "v1"}}, nil
		})
	add(a, endpoint{method: http.MethodPost, path: reloadPath, id: "reload",
		summary: "Read the configuration file again; answers when it is in force or refused", role: ops.RoleConfigure,
		slow: true},
		func(ctx context.Context, _ *none) (*answer[ops.Reloaded], error) {
			done, err := b.Reload(callerOf(ctx).name())
			return &answer[ops.Reloaded]{done}, err
		})
}

const versionPath = "/v1/version"

// version is the version of the program and of its API.
type version struct {
	Version string `json:"version"`
	API     string `json:"api"`
}

// read takes a request's body as JSON.
func read(body []byte, into any) error {
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
