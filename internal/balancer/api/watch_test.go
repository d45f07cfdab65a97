// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/dashboard"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// twoServices is a status with two services.
func twoServices() (ops.Status, error) {
	return ops.Status{PID: 7, Hook: running.Hook, Services: []ops.Service{
		{Name: "web", Protocol: lb.TCP, Mode: lb.L2DSR, Scheduler: lb.Maglev,
			Backends: []ops.Backend{{Name: "a", State: lb.Up, Packets: 1, Connections: 2},
				{Name: "b", State: lb.Unhealthy, Packets: 3}}},
		{Name: "dns", Protocol: lb.UDP, Mode: lb.L2DSR, Scheduler: lb.Maglev,
			Backends: []ops.Backend{{Name: "c", State: lb.Up, Packets: 5}}},
	}}, nil
}

// TestWatch: a watcher gets the status with the backends that it asks for and totals of all, and events as they happen.
func TestWatch(t *testing.T) {
	log := events.NewLog(events.DefaultCapacity, time.Now())
	say := slog.New(log.Handler(slog.DiscardHandler))
	say.Info("first")
	path, stop := serveAll(t, Balancer{Status: twoServices, Events: log})
	defer stop()
	next := watch(t, path, "?service=dns")
	kind, data := next()
	if kind != "event" || !strings.Contains(data, "first") {
		t.Errorf("it begins with %s: %s; want the latest events", kind, data)
	}
	kind, data = next()
	var got struct {
		Status struct {
			Services []struct{ Backends []json.RawMessage }
		}
		Totals map[string]ops.Totals
	}
	if err := json.Unmarshal([]byte(data), &got); err != nil || kind != "status" {
		t.Fatalf("%s: %v", kind, err)
	}
	web, dns := got.Status.Services[0], got.Status.Services[1]
	if len(web.Backends) != 0 || len(dns.Backends) != 1 {
		t.Errorf("web has %d backends and dns %d; want 0 and 1", len(web.Backends), len(dns.Backends))
	}
	if totals := got.Totals["web"]; totals.Backends != 2 || totals.Packets != 4 || totals.Connections != 2 ||
		totals.States[lb.Up] != 1 || totals.States[lb.Unhealthy] != 1 {
		t.Errorf("the totals of web are %+v", totals)
	}
	say.Info("second")
	for kind != "event" {
		kind, data = next()
	}
	if !strings.Contains(data, "second") {
		t.Errorf("the event is %s", data)
	}
	if kind, _ = next(); kind != "status" {
		t.Errorf("after an event comes %s, want a status", kind)
	}
}

// watch opens a stream and returns a function that reads the next event.
func watch(t *testing.T, path, query string) func() (kind, data string) {
	t.Helper()
	client := NewClient(path)
	body, err := client.open(t.Context(), client.streamClient, http.MethodGet, watchPath+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { body.Close() })
	lines := bufio.NewReader(body)
	return func() (kind, data string) {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); name {
			case "event":
				kind = value
			case "data":
				return kind, value
			}
		}
	}
}

// TestLongestWatchOfThePage: the server takes the longest query that the dashboard sends, with as many headers as a
// browser has and a token. One that names more services would be refused with 431, for ever.
func TestLongestWatchOfThePage(t *testing.T) {
	recorder := httptest.NewRecorder()
	dashboard.Handler(http.NotFoundHandler()).ServeHTTP(recorder,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, dashboard.Folder+"link.js", nil))
	script := recorder.Body.String()
	bound := regexp.MustCompile(`const LONGEST = (\d+);`).FindStringSubmatch(script)
	if bound == nil || !strings.Contains(script, "query.length > LONGEST ? 'all=true'") {
		t.Fatal("link.js does not bound the query that names the services")
	}
	longest, err := strconv.Atoi(bound[1])
	if err != nil {
		t.Fatal(err)
	}
	path, stop := serveAll(t, Balancer{Status: twoServices, Events: events.NewLog(events.DefaultCapacity, time.Now())})
	defer stop()
	client := NewClient(path)
	for size, want := range map[int]int{longest: http.StatusOK, 20 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://jeoul"+watchPath+"?service="+strings.Repeat("a", size-len("service=")), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Other", strings.Repeat("b", 4<<10))
		response, err := client.streamClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a query of %d characters: %s, want %d", size, response.Status, want)
		}
	}
}

// TestWatchSaysWhatFails: a status that cannot be read is a problem on the stream, which goes on.
func TestWatchSaysWhatFails(t *testing.T) {
	path, stop := serveAll(t, Balancer{Status: func() (ops.Status, error) {
		return ops.Status{}, errors.New("no counters")
	},
		Events: events.NewLog(events.DefaultCapacity, time.Now())})
	defer stop()
	next := watch(t, path, "")
	for range 2 {
		if kind, data := next(); kind != "problem" || !strings.Contains(data, "no counters") {
			t.Errorf("%s: %s", kind, data)
		}
	}
}

// TestSession: a client gets its own name and role; a browser that asks whether it has a certificate is no denial.
func TestSession(t *testing.T) {
	var denied atomic.Int64
	s := serveOverTCP(t, Balancer{Version: "v1", Denied: func(string, error) { denied.Add(1) }})
	var got session
	client := s.client(t, Remote{Token: s.tokens[ops.RoleOperate]})
	if err := client.request(context.Background(), http.MethodGet, sessionPath, nil, &got); err != nil {
		t.Fatal(err)
	}
	if got.Client != "token operateer" || got.Role != ops.RoleOperate || got.Version != "v1" || got.Host == "" {
		t.Errorf("the session is %+v", got)
	}
	for token, want := range map[string]int64{"": 0, "wrong": 1} {
		denied.Store(0)
		err := s.client(t, Remote{Token: token}).request(context.Background(), http.MethodGet, sessionPath, nil, &got)
		if err == nil || denied.Load() != want {
			t.Errorf("with token %q: %v, denied %d times; want an error, %d", token, err, denied.Load(), want)
		}
	}
}
