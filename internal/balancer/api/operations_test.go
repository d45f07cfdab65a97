// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

var sameAddresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// serveOperations runs a server that gives this answer, and notes its request.
func serveOperations(t *testing.T, done ops.Operation, err error) (path string, requested *ops.Order, stop func()) {
	t.Helper()
	requested = &ops.Order{}
	path, stop = serveAll(t, Balancer{
		Operate: func(_ context.Context, order ops.Order) (ops.Operation, error) {
			*requested = order
			return done, err
		},
		Operations: func() (ops.Operations, error) {
			return ops.Operations{History: []ops.Operation{done}}, err
		},
	})
	return path, requested, stop
}

// TestOperate: a client's order arrives, with the caller's name, and the answer comes back.
func TestOperate(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	weight, at := uint16(7), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := ops.Operation{Verb: ops.Weight,
		Targets: []ops.Target{{Service: "web", Backend: "web01", Address: netip.MustParseAddr("192.0.2.1"), Port: 80}},
		By:      "kim", At: at,
		Deadline: at, Weight: &weight, Lost: "why", Undone: &ops.Operation{Verb: ops.Drain}}
	path, requested, stop := serveOperations(t, want, nil)
	defer stop()
	for _, order := range []ops.Order{
		{Verb: ops.Drain, Service: "web", Backend: "web01", Deadline: 90 * time.Second},
		{Verb: ops.Drain, Service: "저울:_-.", Backend: "a%2F?#b"},
		{Verb: ops.Enable, Service: "web", Backend: "web01", AllServices: true},
		{Verb: ops.Weight, Service: "web", Backend: "web01", Weight: 0},
		// the balancer decides whether it is right
		{Verb: ops.Weight, Service: "web", Backend: "web01", Weight: 70000, AllServices: true},
		{Verb: ops.Undo},
	} {
		got, err := NewClient(path).Operate(t.Context(), order)
		if err != nil {
			t.Errorf("%+v: %v", order, err)
			continue
		}
		if diff := cmp.Diff(&want, got, sameAddresses); diff != "" {
			t.Errorf("%+v: answer (-want +got):\n%s", order, diff)
		}
		order.By = me.Username
		if diff := cmp.Diff(order, *requested); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
	}
	list, err := NewClient(path).Operations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&ops.Operations{History: []ops.Operation{want}}, list, sameAddresses); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

// TestOperateFails: the kind of an error is in the status code, its text in the body.
func TestOperateFails(t *testing.T) {
	tests := map[error]int{
		ops.ErrBadRequest: http.StatusBadRequest, ops.ErrNotFound: http.StatusNotFound,
		ops.ErrRefused:  http.StatusConflict,
		ops.ErrStopping: http.StatusServiceUnavailable, errors.New("no memory"): http.StatusInternalServerError,
	}
	for kind, code := range tests {
		path, _, stop := serveOperations(t, ops.Operation{}, fmt.Errorf("drain web/web01: %w: why", kind))
		client := NewClient(path)
		_, err := client.Operate(t.Context(), ops.Order{Verb: ops.Drain, Service: "web", Backend: "web01"})
		if want := fmt.Sprintf("ask the daemon on %s: drain web/web01: %v: why", path, kind); err == nil ||
			err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
		post(t, client, "/v1/services/web/backends/web01/drain", "", code, "why")
		stop()
	}
}

// post sends a body and checks the answer.
func post(t *testing.T, client *Client, target, body string, code int, says string) {
	t.Helper()
	response, err := client.http.Post("http://jeoul"+target, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != code || !strings.Contains(string(text), says) || !json.Valid(text) {
		t.Errorf("POST %s %q: %s %s, want %d with %q", target, body, response.Status, text, code, says)
	}
}

// TestBodies: bodies of requests that programs may write by themselves.
func TestBodies(t *testing.T) {
	path, requested, stop := serveOperations(t, ops.Operation{Verb: ops.Drain}, nil)
	defer stop()
	client := NewClient(path)
	const backend = "/v1/services/web/backends/web01/"
	post(t, client, backend+"drain", `{"deadline_seconds": 0.5}`, http.StatusOK, "drain")
	if requested.Deadline != 500*time.Millisecond {
		t.Errorf("deadline %v, want half a second", requested.Deadline)
	}
	*requested = ops.Order{}
	for _, test := range []struct{ path, body, says string }{
		{backend + "drain", `{"deadline_seconds": -1}`, "a deadline of -1 seconds"},
		{backend + "drain", `{"deadline_seconds": 1e30}`, "a deadline of 1e+30 seconds"},
		{backend + "drain", `{"weight": 1}`, "weight goes with weight only"},
		{backend + "drain", `{"dead_line": 1}`, "cannot be understood"},
		{backend + "drain", `drain`, "cannot be understood"},
		{backend + "enable", `{"deadline_seconds": 1}`, "deadline_seconds goes with drain only"},
		{backend + "weight", ``, "weight is missing"},
		{backend + "weight", `{"weight": "many"}`, "cannot be understood"},
		{backend + "weight", `{"weight": 1.5}`, "cannot be understood"},
		{"/v1/operations/undo", `{"all_services": true}`, "all_services does not go with undo"},
	} {
		post(t, client, test.path, test.body, http.StatusBadRequest, test.says)
	}
	if *requested != (ops.Order{}) {
		t.Errorf("the balancer was asked for %+v", *requested)
	}
}

// TestCheck: a check that is asked for arrives, and its result comes back; an error keeps its words.
func TestCheck(t *testing.T) {
	want := ops.Checked{Target: ops.Target{Service: "web", Backend: "web 01", Address: netip.MustParseAddr("192.0.2.1"),
		Port: 80},
		Checks:  []ops.Check{{Check: "tcp", Via: "address", Expected: "a connection"}},
		Results: []ops.CheckResult{{State: "failing", Failed: 1, Answer: "connection refused"}},
		Steps:   []ops.CheckStep{{Name: "connect", TookSeconds: 0.5, Failed: true}}, State: "unhealthy"}
	var requested string
	path, stop := serveAll(t, Balancer{Check: func(_ context.Context, service, backend string) (ops.Checked, error) {
		if requested = service + "/" + backend; backend == "gone" {
			return ops.Checked{}, fmt.Errorf("%w: there is no gone", ops.ErrNotFound)
		}
		return want, nil
	}})
	defer stop()
	got, err := NewClient(path).Check(t.Context(), "web", "web 01")
	if err != nil || requested != "web/web 01" {
		t.Fatalf("asked %q, %v", requested, err)
	}
	if diff := cmp.Diff(&want, got, sameAddresses); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := NewClient(path).Check(t.Context(), "web", "gone"); err == nil ||
		!strings.Contains(err.Error(), "there is no gone") {
		t.Errorf("error %v", err)
	}
}
