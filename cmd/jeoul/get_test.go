// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
)

// shown is a balancer that answers on a socket of its own; change makes its status another.
type shown struct {
	flags  daemonFlags
	log    *slog.Logger
	events *events.Log

	mu     sync.Mutex
	status *ops.Status
}

func (s *shown) change(change func(*ops.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.status)
}

// serveShown serves a status, and returns what ends that.
func serveShown(t *testing.T, socket string, status *ops.Status) (s *shown, stop func()) {
	t.Helper()
	happened := events.NewLog(64, time.Unix(1, 0))
	s = &shown{flags: daemonFlags{Socket: socket}, log: slog.New(happened.Handler(slog.DiscardHandler)),
		events: happened, status: status}
	listener, err := api.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jeoul.yaml")
	if err := os.WriteFile(file,
		[]byte("interface: eth0\nservices: [{name: web, vip: 192.0.2.100, port: 80, backends: [{name: web01, address: 192.0.2.1}, {name: web03, address: 192.0.2.13, weight: 0}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	configuration, err := sources.Open(file, filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() {
		served <- api.Serve(ctx, listener, api.Balancer{Events: happened, Sources: configuration,
			Operations: func() (ops.Operations, error) { return s.status.Operations, nil },
			Status: func() (ops.Status, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				copied := *s.status
				copied.Services = nil
				for _, service := range s.status.Services {
					service.Backends = append([]ops.Backend{}, service.Backends...)
					copied.Services = append(copied.Services, service)
				}
				return copied, nil
			}})
	}()
	return s, sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// checked is a balancer that asks its backends.
func checked() *ops.Status {
	status := sample()
	web := &status.Services[0]
	web.Hash, web.Serving, web.Owner = lb.HashFlow, ops.ServingHealthy, "file"
	web.Checks = []ops.Check{{Check: "http GET /healthz", Expected: "status 200-399", Via: lb.ViaAddress,
		IntervalSeconds: 2, TimeoutSeconds: 1, Rise: 2, Fall: 3}}
	for i := range web.Backends {
		web.Backends[i].Health = &ops.Health{State: lb.Healthy, WeightPercent: 100,
			Checks: []ops.CheckResult{{State: lb.Healthy, Passed: 12, Last: status.Started, TookSeconds: 0.00123,
				Answer: "200"}}}
	}
	web.Backends[2].Health.State, web.Backends[2].State = lb.Failing, lb.Unhealthy
	web.Backends[2].Health.Checks[0] = ops.CheckResult{State: lb.Failing, Failed: 4, Last: status.Started,
		TookSeconds: 0.5, Answer: "503\nService \x1b[31munavailable", Reason: "answers with status 503"}
	web6 := &status.Services[1]
	web6.Hash, web6.Serving, web6.Owner = lb.HashFlow, ops.ServingHealthy, "api"
	return status
}

// got prints what a query means.
func got[T any](t *testing.T, s *shown, format string, k kind[T], names ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := show(t.Context(), &out, getFlags{daemonFlags: s.flags, getOutput: getOutput{format}}, k,
		query[T]{names, func(T) bool { return true }})
	return out.String(), err
}

// TestGetTables: what a person sees of each kind.
func TestGetTables(t *testing.T) {
	s, stop := serveShown(t, filepath.Join(t.TempDir(), "jeoul.sock"), checked())
	defer stop()
	s.log.Info("web/web03 fails its health checks", events.About{Kind: events.KindHealth, Service: "web",
		Backend: "web03"}.Attr())
	s.log.Warn("another matter")
	var all strings.Builder
	add := func(text string, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		all.WriteString(text + "\n")
	}
	for _, format := range []string{"text", "wide", "name"} {
		add(got(t, s, format, serviceKind))
		add(got(t, s, format, backendKind, "web/192.0.2.1", "web/web03", "web6"))
		add(got(t, s, format, checkKind, "web/web01", "web/web03"))
	}
	wantGolden(t, "get", []byte(all.String()))

	text, err := got(t, s, "text", eventKind, "web")
	if lines := strings.Count(text, "\n"); err != nil || lines != 2 || !strings.Contains(text, "web/web03") {
		t.Errorf("events about web: %v:\n%s", err, text)
	}
}

// TestGetForPrograms: JSON and YAML are what the API answers with; one that is named is not in a list.
func TestGetForPrograms(t *testing.T) {
	s, stop := serveShown(t, filepath.Join(t.TempDir(), "jeoul.sock"), checked())
	defer stop()
	client, err := s.flags.client()
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Backends(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	compare := func(format string, read func([]byte, any) error, want any, names ...string) {
		t.Helper()
		text, err := got(t, s, format, backendKind, names...)
		if err != nil {
			t.Fatal(err)
		}
		var is, should any
		written, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &should); err != nil {
			t.Fatal(err)
		}
		if err := read([]byte(text), &is); err != nil {
			t.Fatalf("%s: %v:\n%s", format, err, text)
		}
		if diff := cmp.Diff(should, is); diff != "" {
			t.Errorf("%s of %q (-want +got):\n%s", format, names, diff)
		}
	}
	asYAML := func(text []byte, into any) error {
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			return err
		}
		written, err := json.Marshal(value)
		if err != nil {
			return err
		}
		return json.Unmarshal(written, into)
	}
	for format, read := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": asYAML} {
		compare(format, read, list, "web")
		compare(format, read, list[2:], "web/192.0.2.13") // an address may be that of several
		compare(format, read, list[2], "web/web03")
	}
}

// TestGetMissing: what is there is printed, and the error names what is not.
func TestGetMissing(t *testing.T) {
	s, stop := serveShown(t, filepath.Join(t.TempDir(), "jeoul.sock"), checked())
	defer stop()
	text, err := got(t, s, "name", backendKind, "web/web01", "web/web9", "shop")
	if text != "web/web01\n" {
		t.Errorf("printed %q", text)
	}
	wantError(t, err,
		"there is no backend web/web9; did you mean web/web01? `jeoul get backends -o name` lists those there are\nthere is no backend shop;")
}
