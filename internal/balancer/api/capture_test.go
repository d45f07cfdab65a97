// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestCapture: the request and the client's name arrive, each event comes back, and an error behind them ends the
// capture.
func TestCapture(t *testing.T) {
	failed := errors.New("the ring is gone")
	s := serveOverTCP(t, Balancer{Capture: func(_ context.Context, r capture.Request, by string,
		notify func(capture.Event) error) error {
		if r.Packets == 0 {
			return failed
		}
		for range r.Packets {
			if err := notify(capture.Event{Counts: &capture.Counts{}}); err != nil {
				return err
			}
		}
		if r.Snap > 0 {
			return failed
		}
		return notify(capture.Event{Ended: capture.Reason(by)})
	}})
	client := s.client(t, Remote{Token: s.tokens[ops.RoleOperate]})
	for _, test := range []struct {
		request capture.Request
		events  int
		ended   capture.Reason
		problem string
	}{
		{capture.Request{Packets: 3}, 3, "token operateer", ""},
		{capture.Request{Packets: 2, Snap: 1}, 2, "", failed.Error()},
		{capture.Request{}, 0, "", ""},
	} {
		events, ended := 0, capture.Reason("")
		err := client.Capture(t.Context(), test.request, func(e capture.Event) error {
			if e.Counts != nil {
				events++
			}
			ended += e.Ended
			return nil
		})
		wrong := (err == nil) != (test.ended != "") || err != nil && !strings.Contains(err.Error(), test.problem)
		if events != test.events || ended != test.ended || wrong {
			t.Errorf("%+v: %d events, the end %q, %v; want %+v", test.request, events, ended, err, test)
		}
	}
	enough := errors.New("enough")
	if err := client.Capture(t.Context(), capture.Request{Packets: 9}, func(capture.Event) error {
		return enough
	}); !errors.Is(err, enough) {
		t.Errorf("the caller's error became %v", err)
	}
}

// TestProxiedRequests: they come to the daemon with the client's credentials in the place of their own, and one to a
// daemon that is not reached is answered with a problem.
func TestProxiedRequests(t *testing.T) {
	s := serveOverTCP(t, Balancer{Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(strings.Join(append(r.Header["Cookie"], r.Header["Origin"]...), ",") + "counted"))
	})})
	ask := func(r Remote) *httptest.ResponseRecorder {
		t.Helper()
		r.CA = s.ca.File
		client, err := NewRemoteClient(r)
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := client.Proxy()
		if err != nil {
			t.Fatal(err)
		}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/metrics", nil)
		for _, name := range []string{"Authorization", "Cookie", "Origin"} {
			request.Header.Set(name, "Bearer foreign")
		}
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, request)
		return answer
	}
	if a := ask(Remote{Server: s.url, Token: s.tokens[ops.RoleRead]}); a.Code != http.StatusOK ||
		a.Body.String() != "counted" {
		t.Errorf("status %d, %q", a.Code, a.Body)
	}
	if a := ask(Remote{Server: s.url}); a.Code != http.StatusUnauthorized {
		t.Errorf("without credentials: status %d, %q", a.Code, a.Body)
	}
	if a := ask(Remote{Server: "https://127.0.0.1:1"}); a.Code != http.StatusBadGateway ||
		!strings.Contains(a.Body.String(), "is not reached") {
		t.Errorf("of no daemon: status %d, %q", a.Code, a.Body)
	}
}
