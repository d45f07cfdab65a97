// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/sources"
)

const configured = `interface: eth0
bgp: {asn: 64512, router_id: 192.0.2.10, peers: [{address: 192.0.2.11, asn: 64513, password: signs}]}
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    backends:
      - {name: web01, address: 192.0.2.1}
`

// serveConfiguration serves the sources of a file; configurations are taken unless refuses has an error.
func serveConfiguration(t *testing.T, refuses *error) (client *Client, s *sources.Sources) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "jeoul.yaml")
	if err := os.WriteFile(path, []byte(configured), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := sources.Open(path, filepath.Join(dir, "sources"))
	if err != nil {
		t.Fatal(err)
	}
	apply := func(_ context.Context, load func() (*config.Config, error)) error {
		if _, err := load(); err != nil {
			return err
		}
		return *refuses
	}
	s.Use(apply, apply)
	socket, stop := serveAll(t, Balancer{Sources: s})
	t.Cleanup(stop)
	return NewClient(socket), s
}

// request is a request, with its answer.
type request struct {
	method, path, body string
	header             map[string]string
	code               int
	says               string
}

func (q request) do(t *testing.T, client *Client) (header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), q.method, "http://jeoul"+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	response, err := client.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != q.code || !strings.Contains(string(text), q.says) || !json.Valid(text) {
		t.Errorf("%s %s %s: %s %s, want %d with %s", q.method, q.path, q.body, response.Status, text, q.code, q.says)
	}
	if kind := response.Header.Get("Content-Type"); (q.code != http.StatusOK) != (kind == problemType) {
		t.Errorf("%s %s: %s of type %s", q.method, q.path, response.Status, kind)
	}
	return response.Header
}

const (
	shop     = configPath + "/services/shop"
	mailBody = `{"name": "mail", "vip": "192.0.2.103", "port": 80, "backends": [{"name": "b1", "address": "192.0.2.1"}]}`
	shopBody = `{"vip": "192.0.2.101", "port": 80, "backends": [{"name": "b1", "address": "192.0.2.1"}]}`
)

// TestConfiguration: parts of the configuration are read and changed, and a wrong one is refused with its source, key
// and cure.
func TestConfiguration(t *testing.T) {
	var refuses error
	client, s := serveConfiguration(t, &refuses)
	yaml := map[string]string{"Content-Type": "application/yaml"}
	for _, q := range []request{
		{"GET", configPath, "", nil, 200, `"name":"web01"`},
		{"GET", configPath, "", nil, 200, `"password":"(hidden)"`},
		{"GET", sourcesPath, "", nil, 200, `{"name":"file","generation":0,"services":1}`},
		{"GET", shop, "", nil, 404, "there is no service shop"},
		{"PUT", shop + "?dry_run=true", shopBody, nil, 200, `+  - name: shop`},
		{"GET", shop, "", nil, 404, "there is no service shop"},
		{"PUT", shop, shopBody, map[string]string{"If-Match": `"x"`}, 412, "not there any more"},
		{"PUT", shop, shopBody, map[string]string{"If-None-Match": "*"}, 200,
			`"source":"api","generation":1,"changed":true`},
		{"PUT", shop, shopBody, map[string]string{"If-None-Match": "*"}, 412, "it is there already"},
		{"PUT", shop, shopBody, nil, 200, `"generation":1,"changed":false`},
		{"PUT", shop + "/backends/b2", "address: 192.0.2.2\nweight: 3\n", yaml, 200, `"generation":2`},
		{"GET", shop + "/backends/b2", "", nil, 200, `{"address":"192.0.2.2","name":"b2","weight":3}`},
		{"PATCH", shop + "/backends/b2", `{"weight": null}`,
			map[string]string{"Content-Type": "application/merge-patch+json"}, 200, `"generation":3`},
		{"GET", shop + "/backends/b2", "", nil, 200, `{"address":"192.0.2.2","name":"b2"}`},
		{"PATCH", shop, `{"weight": 7}`, nil, 422, `"field":"services[0].weight","message":"unknown key`},
		{"PUT", sourcesPath + "/kube", "services:\n  - name: mail\n    vip: nonsense\n", yaml, 422,
			`{"source":"kube","line":3,"field":"services[0].vip","message":"\"nonsense\" is not an IP address`},
		{"PUT", sourcesPath + "/kube", `{"services": [{"name": "shop", ` + shopBody[1:] + `]}`, nil, 422,
			`"source":"kube","field":"services[0].name","message":"shop is already the name of services[0].name (api, line 4)`},
		{"PUT", sourcesPath + "/file", `{"services": []}`, nil, 409, "change it there, and reload"},
		{"DELETE", configPath + "/services/web", "", nil, 409, "change it there, and reload"},
		{"PUT", configPath + "/services/web?source=api", shopBody, nil, 409, "change it there"},
		{"PUT", shop, `{"name": "other"}`, nil, 400, "write the same, or leave it out"},
		{"PUT", shop, `{"name": "shop"`, nil, 400, "not JSON"},
		{"PUT", shop, ``, nil, 400, "body"},
		{"DELETE", shop + "/backends/b3", "", nil, 404, "there is no backend shop/b3"},
		{"DELETE", shop + "/backends/b2", "", nil, 200, `"generation":4`},
		{"PATCH", sourcesPath + "/kube/services", `{"services": [` + mailBody + `]}`,
			map[string]string{"If-Match": `"g0"`}, 200, `"source":"kube","generation":1,"changed":true`},
		{"PATCH", sourcesPath + "/kube/services", `{"remove": ["mail"]}`, map[string]string{"If-Match": `"g0"`}, 412,
			"its ETag is"},
		{"PATCH", sourcesPath + "/kube/services", "services: []\nremove: [none]\n", yaml, 422,
			`{"source":"kube","line":2,"field":"remove[0]","message":"there is no service none`},
		{"PATCH", sourcesPath + "/kube/services", "remove: [mail]\n", yaml, 200, `"generation":2`},
		{"PATCH", sourcesPath + "/file/services", "remove: [web]\n", yaml, 409, "change it there"},
		{"POST", shop, "", nil, 405, "POST is not for"},
		{"GET", "/v1/nothing", "", nil, 404, "/openapi.json"},
		{"GET", versionPath, "", nil, 200, `"api":"v1"`},
		{"GET", documentPath + ".json", "", nil, 200, `"openapi":"3.1.0"`},
	} {
		if q.path == documentPath+".json" {
			q.header = map[string]string{"Accept": "application/json"}
		}
		q.do(t, client)
	}
	tag := request{"GET", shop, "", nil, 200, "b1"}.do(t, client).Get("ETag")
	refuses = errors.New("the kernel refuses")
	request{"DELETE", shop, "", map[string]string{"If-Match": tag}, 500, "the kernel refuses"}.do(t, client)
	refuses = nil
	request{"DELETE", shop, "", map[string]string{"If-Match": tag}, 200, `"generation":5`}.do(t, client)
	if got := s.Config(); len(got.Services) != 1 {
		t.Errorf("services: %v", got.Services)
	}
}

// TestSourceServices: a client learns what a source has, and of which generation, which is 0 before there is one.
func TestSourceServices(t *testing.T) {
	var refuses error
	client, _ := serveConfiguration(t, &refuses)
	for generation, text := range []string{"", "services: [" + mailBody + "]", "remove: [mail]"} {
		if text != "" {
			if _, err := client.Amend(t.Context(), "kube", uint64(generation-1), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		var want []string
		if generation == 1 {
			want = []string{"mail"}
		}
		names, got, err := client.SourceServices(t.Context(), "kube")
		if err != nil || got != uint64(generation) || !slices.Equal(names, want) {
			t.Errorf("services %v of generation %d, error %v; want %v of %d", names, got, err, want, generation)
		}
	}
}

// TestApply: the services that a client applies are all that its source has.
func TestApply(t *testing.T) {
	client, s := serveConfiguration(t, new(error))
	const text = "services:\n  - name: shop\n    vip: 192.0.2.101\n    port: 80\n    backends:\n      - {name: b1, address: 192.0.2.1}\n"
	for _, dry := range []bool{true, false, false} {
		change, err := client.Apply(t.Context(), "kube", []byte(text), dry)
		if err != nil || change.Generation != 1 || change.DryRun != dry {
			t.Fatalf("%+v, %v", change, err)
		}
		if owner := s.Owner("shop"); (owner == "kube") == dry {
			t.Errorf("dry %t: shop is of %q", dry, owner)
		}
	}
	if _, err := client.Apply(t.Context(), "kube", []byte("hook: tc\n"+text), false); err == nil ||
		err.Error() != "kube:1: hook: is the configuration file's to say; here stand services only: remove it" {
		t.Errorf("error %v", err)
	}
}

// TestLargeBody: a body beyond its bound is refused, and only so many large ones are read at a time.
func TestLargeBody(t *testing.T) {
	client, _ := serveConfiguration(t, new(error))
	var waiting []io.WriteCloser
	for range maxLarge {
		conn, err := net.Dial("unix", client.at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		waiting = append(waiting, conn)
		if _, err := io.WriteString(conn, "PUT "+shop+
			" HTTP/1.1\r\nHost: jeoul\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		// The server asks for the body when it begins to read it.
		if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))); err != nil {
			t.Fatal(err)
		}
	}
	request{"PUT", shop, strings.Repeat(" ", largeBody+1), map[string]string{"Expect": "100-continue"}, 503,
		"try again"}.do(t, client)
	request{"PUT", shop, shopBody, nil, 200, "shop"}.do(t, client)
	for _, conn := range waiting {
		conn.Close()
	}
	for deadline := time.Now().Add(time.Minute); ; {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://jeoul"+shop,
			strings.NewReader(strings.Repeat(" ", config.MaxBytes+1)))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusRequestEntityTooLarge {
			return
		}
		if response.StatusCode != http.StatusServiceUnavailable || time.Now().After(deadline) {
			t.Fatalf("a body that is too large: %s", response.Status)
		}
	}
}

// TestLimit: connections beyond the bound wait while all others have a request in hand; else the one
// without a request for longest makes room.
func TestLimit(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	listener := limitConnections(inner, 1)
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	for range 2 {
		conn, err := net.Dial("unix", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	first := <-accepted
	select {
	case <-accepted:
		t.Error("there are two connections where one may be")
	default:
	}
	if listener.mu.Lock(); listener.open != 1 {
		t.Errorf("%d places are taken", listener.open)
	}
	listener.mu.Unlock()
	first.Close()
	first.Close()
	second := <-accepted
	listener.trackState(second, http.StateNew)
	third, err := net.Dial("unix", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	listener.trackState(<-accepted, http.StateNew)
	if _, err := second.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing to the connection that was to make room: %v", err)
	}
	if listener.open != 1 || listener.idle.Len() != 1 {
		t.Errorf("%d places are taken, %d idle", listener.open, listener.idle.Len())
	}
	listener.Close()
	if _, more := <-accepted; more {
		t.Error("the listener is closed, and goes on")
	}
	second.Close()
}
