// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// newRouter returns the handler of requests, and its description.
func newRouter(b Balancer) (http.Handler, huma.API) {
	mux := http.NewServeMux()
	described := huma.DefaultConfig("Jeoul", "1")
	described.Info.Description = "The API of a running balancer."
	described.OpenAPIPath, described.DocsPath, described.SchemasPath = documentPath, "", ""
	described.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	described.Components.SecuritySchemes = securitySchemes
	described.CreateHooks = nil // links to schemas that are not served
	a := humago.New(mux, described)
	b.handleStatus(a)
	b.handleResources(a)
	b.handleFlows(a)
	b.handleMembers(a)
	b.handleOperations(a)
	b.handleConfiguration(a)
	b.handleTraces(a)
	b.handleEvents(a)
	b.handleWatches(a)
	if b.Metrics != nil {
		mux.Handle("GET /metrics", b.Metrics)
	}
	return limitBodies(withProblems(mux)), a
}

// schemaName is the name of a type's schema; traces and captures have types of names that others have, too.
func schemaName(t reflect.Type, hint string) string {
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

func (b Balancer) handleStatus(a huma.API) {
	addEndpoint(a, endpoint{method: http.MethodGet, path: statusPath, id: "get-status", summary: "The balancer as it is now"},
		func(context.Context, *emptyRequest) (*answer[ops.Status], error) {
			status, err := b.Status()
			return &answer[ops.Status]{status}, err
		})
	addEndpoint(a, endpoint{method: http.MethodGet, path: versionPath, id: "get-version",
		summary: "The versions of the program and of the API"},
		func(context.Context, *emptyRequest) (*answer[version], error) {
			return &answer[version]{version{b.Version, "v1"}}, nil
		})
	addEndpoint(a, endpoint{method: http.MethodPost, path: reloadPath, id: "reload",
		summary: "Read the configuration file again; answers when it is in force or refused", role: ops.RoleConfigure,
		slow: true},
		func(ctx context.Context, _ *emptyRequest) (*answer[ops.Reloaded], error) {
			done, err := b.Reload(callerOf(ctx).name())
			return &answer[ops.Reloaded]{done}, err
		})
}
