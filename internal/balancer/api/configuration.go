// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
)

const (
	configPath  = "/v1/config"
	sourcesPath = "/v1/config/sources"
	feedPath    = sourcesPath + "/{source}/feed"
)

// Source is a source of configuration.
type Source struct {
	Name string `json:"name"`
	// Generation counts the changes; 0 for the file, which the API does not change.
	Generation uint64    `json:"generation"`
	Services   int       `json:"services"`
	By         string    `json:"by,omitempty"`
	At         time.Time `json:"at,omitzero"`
	// Backends and Problem are set for an origin of backends of a service: the number found, and the reason for which
	// there is no answer newer than At. Its name is the service's, a slash and its kind. The Problem of another source
	// is the worst one in its program's report.
	Backends int    `json:"backends,omitempty"`
	Problem  string `json:"problem,omitempty"`
	// Follows names the system that a program synchronises the source with, and AsOf is the time of its last known
	// state; zero: it is current.
	Follows string    `json:"follows,omitempty"`
	AsOf    time.Time `json:"as_of,omitzero"`
}

// Change is the result of a change of the configuration, or the one that it would have.
type Change struct {
	Source     string `json:"source" doc:"The source that was changed"`
	Generation uint64 `json:"generation" doc:"Its generation now"`
	Changed    bool   `json:"changed" doc:"False where the source had that already"`
	DryRun     bool   `json:"dry_run" doc:"True where nothing was changed, for that was asked"`
	Difference string `json:"difference" doc:"The differences, as a unified diff of YAML"`
}

// SourceParams has the source that a request is about. It, ServiceParams, BackendPartParams and Conditions are
// exported for huma to find them where they are embedded.
type SourceParams struct {
	Source string `path:"source" doc:"The name of the source; \"file\" is the configuration file, which can only be read"`
}

// ServiceParams has a service of the configuration that a request is about.
type ServiceParams struct {
	Service string `path:"service"`
	Owner   string `query:"source" doc:"The source that has the service; where this is left out, the one that has it now, or api"`
}

// BackendPartParams has a backend of the configuration that a request is about.
type BackendPartParams struct {
	ServiceParams
	Backend string `path:"backend"`
}

// Conditions are the preconditions of a change, and whether it is a dry run.
type Conditions struct {
	IfMatch     string `header:"If-Match" doc:"The ETag that the part must have"`
	IfNoneMatch string `header:"If-None-Match" doc:"* lets a part only be added, not replaced"`
	DryRun      bool   `query:"dry_run" doc:"Change nothing: check it, and return the differences"`
}

// placeRequest is a request about a part of the configuration.
type placeRequest interface{ place() sources.Place }

func (o SourceParams) place() sources.Place { return sources.Place{Source: o.Source} }
func (o ServiceParams) place() sources.Place {
	return sources.Place{Source: o.Owner, Service: o.Service}
}
func (o BackendPartParams) place() sources.Place {
	return sources.Place{Source: o.Owner, Service: o.Service, Backend: o.Backend}
}

type (
	// changeRequest is a request for a change.
	changeRequest interface {
		placeRequest
		Terms() Conditions
	}
	// bodyRequest is a request for a change that has a body.
	bodyRequest interface {
		changeRequest
		Content() RequestBody
	}
)

// Terms returns the conditions of a request that embeds them.
func (c Conditions) Terms() Conditions { return c }

// Content returns the body of a request that embeds it.
func (s RequestBody) Content() RequestBody { return s }

// checkPrecondition refuses a change of a part that is not in the expected state.
func (c Conditions) checkPrecondition(part sources.Part) error {
	tag := strconv.Quote(part.Tag)
	switch {
	case c.IfNoneMatch != "" && c.IfNoneMatch != "*":
		return fmt.Errorf("%w: If-None-Match can only be * here", ops.ErrBadRequest)
	case c.IfNoneMatch == "*" && part.Value != nil:
		return fmt.Errorf("%w: it is there already; leave If-None-Match out to replace it", sources.ErrChanged)
	case c.IfMatch == "" || c.IfMatch == "*" && part.Value != nil:
		return nil
	case part.Value == nil:
		return fmt.Errorf("%w: it is not there any more", sources.ErrChanged)
	}
	for one := range strings.SplitSeq(c.IfMatch, ",") {
		if strings.TrimSpace(one) == tag {
			return nil
		}
	}
	return fmt.Errorf("%w: its ETag is %s; read it again, and decide again", sources.ErrChanged, tag)
}

// content is a part of the configuration.
type content struct {
	ETag        string `header:"ETag"`
	Source      string `header:"Jeoul-Source" doc:"The source that has it"`
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func contentOf(part sources.Part) (*content, error) {
	body, err := sources.WriteJSON(part.Value)
	return &content{strconv.Quote(part.Tag), part.Source, "application/json", body}, err
}

// change makes a change, and reports it.
func (b Balancer) change(ctx context.Context, r sources.Request) (*answer[Change], error) {
	r.By = callerOf(ctx).name()
	done, err := b.Sources.Ask(ctx, r)
	if err != nil {
		return nil, err
	}
	return b.reportChange(done, r.By, r.Dry), nil
}

// reportChange reports a change to Configured, and returns the answer.
func (b Balancer) reportChange(done sources.Change, by string, dry bool) *answer[Change] {
	if done.Changed && !dry && b.Configured != nil {
		b.Configured(done, by)
	}
	return &answer[Change]{Change{done.Source, done.Generation, done.Changed, dry, done.Difference}}
}

// isYAML reports whether a content type is that of YAML; others are taken for JSON.
func isYAML(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "application/yaml" || kind == "application/x-yaml" || kind == "text/yaml"
}

// decodeBody reads the body of a request as YAML, if its content type is that, or else as JSON.
func decodeBody(contentType string, body []byte) (sources.Request, error) {
	if isYAML(contentType) {
		node, err := sources.ReadYAML(body)
		return sources.Request{Value: node, Text: body}, err
	}
	node, err := sources.ReadJSON(body)
	return sources.Request{Value: node}, err
}

// handleConfiguration adds the endpoints of the configuration.
func (b Balancer) handleConfiguration(a huma.API) {
	schemas := configSchemas(a)
	addEndpoint(a, endpoint{method: http.MethodGet, path: configPath, id: "get-config",
		summary: "The configuration in force, of all sources", answer: schemas.config},
		func(context.Context, *emptyRequest) (*content, error) { return b.effectiveConfig() })
	addEndpoint(a, endpoint{method: http.MethodGet, path: sourcesPath, id: "list-sources",
		summary: "The sources of the configuration"},
		func(context.Context, *emptyRequest) (*answer[[]Source], error) {
			list, err := b.listSources()
			return &answer[[]Source]{list}, err
		})
	addEndpoint(a, endpoint{method: http.MethodPut, path: feedPath, id: "put-feed",
		summary: "Report the state of the program that keeps a source: the system that it follows, the age of the state that it knows, and its faults. The report is forgotten when the daemon ends",
		body:    schemaOf[ops.FeedReport](a), required: true, role: ops.RoleConfigure},
		func(_ context.Context, in *struct {
			SourceParams
			RequestBody
		}) (*answer[ops.FeedReport], error) {
			var report ops.FeedReport
			if err := decodeJSON(in.RawBody, &report); err != nil {
				return nil, err
			}
			return &answer[ops.FeedReport]{report}, b.Sources.SetFeedReport(in.Source, report)
		})
	b.handleDifference(a, schemas)
	handlePart[SourceParams, struct {
		SourceParams
		Conditions
	}, struct {
		SourceParams
		Conditions
		RequestBody
	}](b, a, sourcesPath+"/{source}", "source", schemas.source)
	handlePart[ServiceParams, struct {
		ServiceParams
		Conditions
	}, struct {
		ServiceParams
		Conditions
		RequestBody
	}](b, a, configPath+"/services/{service}", "service", schemas.service)
	handlePart[BackendPartParams, struct {
		BackendPartParams
		Conditions
	}, struct {
		BackendPartParams
		Conditions
		RequestBody
	}](b, a, configPath+"/services/{service}/backends/{backend}", "backend", schemas.backend)
}

// handlePart adds the endpoints that read, remove and write one kind of part.
func handlePart[P placeRequest, D changeRequest, W bodyRequest](b Balancer, a huma.API, path, noun string,
	schema *huma.Schema) {
	addEndpoint(a, endpoint{method: http.MethodGet, path: path, id: "get-" + noun, summary: "A " + noun +
		" of the configuration", answer: schema},
		func(_ context.Context, in *P) (*content, error) {
			part, err := b.Sources.Get((*in).place())
			if err != nil {
				return nil, err
			}
			return contentOf(part)
		})
	addEndpoint(a, endpoint{method: http.MethodDelete, path: path, id: "delete-" + noun, summary: "Take a " + noun +
		" out of the configuration; answers when the data plane has it", role: ops.RoleConfigure, dryRunReads: true,
		slow: true},
		func(ctx context.Context, in *D) (*answer[Change], error) {
			terms := (*in).Terms()
			return b.change(ctx, sources.Request{At: (*in).place(), Verb: sources.Delete, If: terms.checkPrecondition,
				Dry: terms.DryRun})
		})
	for method, verb := range map[string]sources.Verb{http.MethodPut: sources.Put, http.MethodPatch: sources.Patch} {
		e := endpoint{method: method, path: path, id: "put-" + noun, summary: "Put a " + noun +
			" in the place of the one there is, if any; answers when the data plane has it",
			body: schema, required: true, maxBody: config.MaxBytes, role: ops.RoleConfigure, dryRunReads: true,
			slow: true}
		if verb == sources.Patch {
			e.id, e.summary, e.body = "patch-"+noun, "Change a "+noun+
				" by a JSON merge patch (RFC 7396); answers when the data plane has it",
				&huma.Schema{Type: huma.TypeObject}
		}
		addEndpoint(a, e, func(ctx context.Context, in *W) (*answer[Change], error) {
			terms, sent := (*in).Terms(), (*in).Content()
			r, err := decodeBody(sent.ContentType, sent.RawBody)
			if err != nil {
				return nil, err
			}
			r.At, r.Verb, r.If, r.Dry = (*in).place(), verb, terms.checkPrecondition, terms.DryRun
			return b.change(ctx, r)
		})
	}
}

// handleDifference adds the endpoint that changes a source by the services that differ.
func (b Balancer) handleDifference(a huma.API, schemas partSchemas) {
	addEndpoint(a, endpoint{method: http.MethodPatch, path: sourcesPath + "/{source}/services",
		id:      "patch-source-services",
		summary: "Change a source by services that are new or others, and names of those that go; its cost grows with these. If-Match is the source's ETag. Answers when the data plane has it",
		body:    schemas.difference, required: true, maxBody: config.MaxBytes, role: ops.RoleConfigure,
		dryRunReads: true, slow: true},
		func(ctx context.Context, in *struct {
			SourceParams
			Conditions
			RequestBody
		}) (*answer[Change], error) {
			text := in.RawBody
			if !isYAML(in.ContentType) {
				var err error
				if text, err = sources.JSONText(text); err != nil {
					return nil, err
				}
			}
			r := sources.Difference{Source: in.Source, Text: text, If: in.checkPrecondition, By: callerOf(ctx).name(),
				Dry: in.DryRun}
			done, err := b.Sources.Amend(ctx, r)
			if err != nil {
				return nil, err
			}
			return b.reportChange(done, r.By, r.Dry), nil
		})
}

// effectiveConfig returns the configuration of all sources together, without its secrets, which no role may read.
func (b Balancer) effectiveConfig() (*content, error) {
	text, err := config.Write(config.WithoutSecrets(b.Sources.Config()))
	if err != nil {
		return nil, err
	}
	root, err := sources.ReadYAML(text)
	if err != nil {
		return nil, err
	}
	return contentOf(sources.Part{Value: root, Tag: fmt.Sprintf("%x", sha256.Sum256(text))[:24]})
}

// listSources lists the sources of the configuration, and the origins of backends.
func (b Balancer) listSources() ([]Source, error) {
	cfg := b.Sources.Config()
	counts := map[string]int{}
	for i := range cfg.Services {
		counts[cfg.Owner(i)]++
	}
	list := []Source{{Name: config.FileOwner, Services: counts[config.FileOwner]}}
	for _, f := range b.Sources.Heads() {
		list = append(list, Source{Name: f.Name, Generation: f.Generation, Services: counts[f.Name],
			By: f.By, At: f.At})
	}
	list = withFeeds(list, b.Sources.Feeds(time.Now()))
	if !slices.ContainsFunc(cfg.Services, func(s lb.Service) bool { return s.Discovery.On() }) {
		return list, nil
	}
	status, err := b.Status()
	for _, s := range status.Services {
		for _, d := range s.Discovered {
			list = append(list, Source{Name: s.Name + "/" + string(d.Origin), Services: 1, By: d.From, At: d.Taken,
				Backends: d.Backends, Problem: d.Problem})
		}
	}
	return list, err
}

// withFeeds adds the reports of programs on the sources that they keep.
func withFeeds(list []Source, feeds []ops.Feed) []Source {
	for i := range feeds {
		f := &feeds[i]
		at := slices.IndexFunc(list, func(s Source) bool { return s.Name == f.Source })
		if at < 0 {
			list, at = append(list, Source{Name: f.Source}), len(list)
		}
		list[at].Follows, list[at].AsOf = f.Follows, f.AsOf
		if lines := f.Lines(time.Now()); len(lines) > 0 {
			list[at].Problem = strings.TrimPrefix(lines[0], "source "+f.Source+": ")
		}
	}
	return list
}

// partSchemas are the schemas of parts of a configuration.
type partSchemas struct{ config, source, difference, service, backend *huma.Schema }

// configSchemas returns the schemas of parts of the configuration, which internal/balancer/config defines.
func configSchemas(a huma.API) partSchemas {
	text, err := config.Schema()
	var root map[string]any
	if err == nil {
		err = json.Unmarshal(text, &root)
	}
	if err != nil {
		panic(fmt.Sprintf("the schema of the configuration is not JSON: %v", err)) // a fault of the program
	}
	delete(root, "$schema")
	named := a.OpenAPI().Components.Schemas.Map()
	name := func(name string, schema map[string]any) *huma.Schema {
		named[name] = &huma.Schema{Extensions: schema}
		return &huma.Schema{Ref: "#/components/schemas/" + name}
	}
	// item names the elements of a list, so that each is described once.
	item := func(schema map[string]any, list, as string) (*huma.Schema, map[string]any) {
		elements := schema["properties"].(map[string]any)[list].(map[string]any)
		element := elements["items"].(map[string]any)
		ref := name(as, element)
		elements["items"] = map[string]any{"$ref": ref.Ref}
		return ref, element
	}
	service, fields := item(root, "services", "ConfigService")
	backend, _ := item(fields, "backends", "ConfigBackend")
	source := name("ConfigSource", map[string]any{"type": "object", "additionalProperties": false,
		"properties": map[string]any{"services": map[string]any{"type": "array",
			"items": map[string]any{"$ref": service.Ref}}}})
	difference := name("ConfigDifference", map[string]any{"type": "object", "additionalProperties": false,
		"properties": map[string]any{"services": map[string]any{"type": "array",
			"items": map[string]any{"$ref": service.Ref}}, "remove": map[string]any{"type": "array",
			"items": map[string]any{"type": "string"}}}})
	return partSchemas{name("Config", root), source, difference, service, backend}
}
