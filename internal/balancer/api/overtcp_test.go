// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/test/testcert"
)

// tcpServer is a server over TCP, and the credentials of its clients.
type tcpServer struct {
	url, dir string
	ca       *testcert.Authority
	tokens   map[ops.Role]string
}

// running is a status that can be read.
var running = ops.Status{Hook: ops.Hook{Name: lb.HookTC}}

// newCredentials makes the files of a server, and the guard that reads them.
func newCredentials(t *testing.T) (*tcpServer, *access.Guard) {
	t.Helper()
	s := &tcpServer{dir: t.TempDir(), ca: testcert.NewAuthority(t), tokens: map[ops.Role]string{}}
	path := func(name string) string { return filepath.Join(s.dir, name) }
	cfg := config.New()
	cfg.API = config.API{Certificate: path("crt"), Key: path("key"), Tokens: path("tokens"), ClientCA: s.ca.File,
		Clients: []config.APIClient{{Subject: config.Subject{Attribute: "OU", Value: "operators"},
			Role: ops.RoleOperate}}}
	s.ca.Write(t, pkix.Name{CommonName: "lb1"}, 90*24*time.Hour, cfg.API.Certificate, cfg.API.Key)
	var text []byte
	for _, role := range ops.Roles {
		secret, entry, err := access.NewToken(string(role)+"er", role)
		if err == nil {
			text, err = access.AddToken("tokens", text, entry)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[role] = secret
	}
	if err := os.WriteFile(cfg.API.Tokens, text, 0o600); err != nil {
		t.Fatal(err)
	}
	guard, err := access.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s, guard
}

func serveOverTCP(t *testing.T, b Balancer) *tcpServer {
	t.Helper()
	s, guard := newCredentials(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ServeTLS(ctx, listener, b, guard) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ServeTLS: %v", err)
		}
	})
	return s
}

func (s *tcpServer) client(t *testing.T, r Remote) *Client {
	t.Helper()
	r.Server, r.CA = s.url, s.ca.File
	client, err := NewRemoteClient(r)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// certificate is a remote with a client certificate.
func (s *tcpServer) certificate(t *testing.T, ca *testcert.Authority, subject pkix.Name) Remote {
	t.Helper()
	r := Remote{Certificate: filepath.Join(s.dir, "client.crt"), Key: filepath.Join(s.dir, "client.key")}
	ca.Write(t, subject, time.Hour, r.Certificate, r.Key)
	return r
}

// TestNothingWithoutCredentials: whatever is asked for over TCP, there are or not, answers 401, but for the files of
// the dashboard.
func TestNothingWithoutCredentials(t *testing.T) {
	s := serveOverTCP(t, Balancer{Metrics: http.NotFoundHandler()})
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	text, err := Document()
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err != nil || len(document.Paths) < 10 {
		t.Fatalf("the document has %d paths: %v", len(document.Paths), err)
	}
	document.Paths["/metrics"], document.Paths["/openapi.json"], document.Paths["/none"] = map[string]any{"get": nil},
		map[string]any{"get": nil}, map[string]any{"put": nil}
	for _, token := range []string{"", "wrong"} {
		client := s.client(t, Remote{Token: token})
		for path, methods := range document.Paths {
			for method := range methods {
				request, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(method), s.url+path,
					strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				if token != "" {
					request.Header.Set("Authorization", "Bearer "+token)
				}
				response, err := client.http.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if response.StatusCode != http.StatusUnauthorized || response.Header.Get("WWW-Authenticate") == "" ||
					response.Header.Get("Content-Type") != problemType {
					t.Errorf("%s %s with token %q: %s, %v", method, path, token, response.Status, response.Header)
				}
			}
		}
	}
}

// TestReaderTries: a reader may ask for the result that a change would have, and not make it.
func TestReaderTries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jeoul.yaml")
	if err := os.WriteFile(path, []byte(configured), 0o600); err != nil {
		t.Fatal(err)
	}
	configuration, err := sources.Open(path, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := serveOverTCP(t, Balancer{Sources: configuration})
	text := []byte(
		"services: [{name: dns, vip: 192.0.2.53, port: 53, protocol: udp, backends: [{name: ns1, address: 192.0.2.2}]}]\n")
	for _, role := range []ops.Role{ops.RoleRead, ops.RoleOperate} {
		client := s.client(t, Remote{Token: s.tokens[role]})
		change, err := client.Apply(t.Context(), "api", text, true)
		if err != nil || !change.DryRun || !strings.Contains(change.Difference, "name: dns") {
			t.Errorf("%s tries: %+v, %v", role, change, err)
		}
		var problem *Problem
		if _, err := client.Apply(t.Context(), "api", text, false); !errors.As(err, &problem) ||
			problem.Status != http.StatusForbidden {
			t.Errorf("%s applies: %v, want 403", role, err)
		}
		for _, query := range []string{"", "?dry_run=false", "?dry_run=false&dry_run=true", "?dry_run=",
			"?DRY_RUN=true"} {
			if _, err := client.open(t.Context(), client.http, http.MethodDelete, configPath+"/services/web"+query,
				nil); !errors.As(err, &problem) || problem.Status != http.StatusForbidden {
				t.Errorf("%s takes away with %q: %v, want 403", role, query, err)
			}
		}
	}
	if configuration.Owner("web") == "" || configuration.Owner("dns") != "" {
		t.Error("something was changed")
	}
}

// TestRoles: each role has the permissions of those before it, and its own; the caller's name is passed on.
func TestRoles(t *testing.T) {
	requested := ""
	var denied []error // in the order of the requests, which come one by one
	s := serveOverTCP(t, Balancer{Denied: func(from string, why error) {
		if from != "127.0.0.1" {
			t.Errorf("denied from %q", from)
		}
		denied = append(denied, why)
	}, Status: func() (ops.Status, error) { return running, nil },
		Operate: func(_ context.Context, o ops.Order) (ops.Operation, error) {
			requested = o.By
			return ops.Operation{}, nil
		},
		Reload: func(by string) (ops.Reloaded, error) { requested = by; return ops.Reloaded{}, nil }})
	order := ops.Order{Verb: ops.Enable, Service: "web", Backend: "web01"}
	calls := []func(*Client) error{
		func(c *Client) error { _, err := c.Status(t.Context()); return err },
		func(c *Client) error { _, err := c.Operate(t.Context(), order); return err },
		func(c *Client) error { _, err := c.Reload(t.Context()); return err },
	}
	for i, role := range ops.Roles {
		client := s.client(t, Remote{Token: s.tokens[role]})
		for j, call := range calls {
			err := call(client)
			var problem *Problem
			switch {
			case j <= i && err != nil:
				t.Errorf("%s does what needs %s: %v", role, ops.Roles[j], err)
			case j > i && (!errors.As(err, &problem) || problem.Status != http.StatusForbidden):
				t.Errorf("%s does what needs %s: %v, want 403", role, ops.Roles[j], err)
			case j > i && !strings.Contains(problem.Detail, "token "+string(role)+"er has the role "+string(role)+
				", and this needs "+string(ops.Roles[j])):
				t.Errorf("the problem: %s", problem.Detail)
			}
		}
	}
	if requested != "token configureer" {
		t.Errorf("asked by %q", requested)
	}

	client := s.client(t,
		s.certificate(t, s.ca, pkix.Name{CommonName: "kim", OrganizationalUnit: []string{"operators"}}))
	if err := calls[1](client); err != nil || requested != "certificate CN=kim,OU=operators" {
		t.Errorf("by certificate: %v, by %q", err, requested)
	}
	var problem *Problem
	client = s.client(t, s.certificate(t, s.ca, pkix.Name{CommonName: "kim"}))
	if err := calls[0](client); !errors.As(err, &problem) || problem.Status != http.StatusForbidden {
		t.Errorf("a certificate without a role: %v, want 403", err)
	}
	client = s.client(t, Remote{Token: "wrong"})
	if err := calls[0](client); err == nil {
		t.Error("a wrong token lets in")
	}
	if len(denied) != 2 || !errors.Is(denied[0], access.ErrNoRole) || !errors.Is(denied[1], access.ErrUnknown) {
		t.Errorf("denied: %v", denied)
	}
	client = s.client(t,
		s.certificate(t, testcert.NewAuthority(t), pkix.Name{OrganizationalUnit: []string{"operators"}}))
	if err := calls[0](client); err == nil || errors.As(err, &problem) && problem.Status == http.StatusOK {
		t.Errorf("a certificate of another authority: %v", err)
	}
}

// TestRevoked: a stream ends once its token is taken out of the file, or has a role that does not suffice, and goes on
// when another token changes.
func TestRevoked(t *testing.T) {
	streams := map[string]string{watchPath: http.MethodGet, eventsPath: http.MethodGet, tracePath: http.MethodPost}
	changes := map[string]struct {
		change func(text string) string
		ends   bool
	}{
		"removed": {func(text string) string {
			return strings.Join(slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool {
				return strings.Contains(line, "role: operate")
			}), "")
		}, true},
		"lowered": {func(text string) string { return strings.Replace(text, "role: operate", "role: read", 1) }, true},
		"raised":  {func(text string) string { return strings.Replace(text, "role: operate", "role: configure", 1) }, false},
		"another": {func(text string) string { return strings.Replace(text, "role: configure", "role: read", 1) }, false},
	}
	for path, method := range streams {
		for name, c := range changes {
			t.Run(path+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { changeTokens(t, method, path, c.change, c.ends) })
			})
		}
	}
}

// changeTokens changes the file of tokens while an operator's stream goes on; ends: it must end then.
func changeTokens(t *testing.T, method, path string, change func(text string) string, ends bool) {
	s, guard := newCredentials(t)
	router, _ := newRouter(Balancer{Status: twoServices, Events: events.NewLog(events.DefaultCapacity, time.Now()),
		Trace: func(ctx context.Context, _ trace.Filter, _ func(trace.Event) error) error {
			<-ctx.Done()
			return ctx.Err()
		}})
	ctx, hangUp := context.WithCancel(t.Context())
	request := httptest.NewRequestWithContext(ctx, method, "https://lb1"+path, strings.NewReader("{}"))
	request.Header.Set("Authorization", "Bearer "+s.tokens[ops.RoleOperate])
	done := make(chan struct{})
	go func() {
		authenticate(router, guard, nil).ServeHTTP(httptest.NewRecorder(), request)
		close(done)
	}()
	ended := func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	time.Sleep(time.Minute)
	if ended() {
		t.Fatal("it ends with valid credentials")
	}
	file := filepath.Join(s.dir, "tokens")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(change(string(text))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if ended() != ends {
		t.Errorf("after the change of the tokens it has ended: %t, want %t", !ends, ends)
	}
	hangUp()
	<-done
	time.Sleep(time.Minute) // after which the feed of statuses ends without a watcher
}

// TestPlainTextOverTCP: a connection without TLS gets no answer of the API.
func TestPlainTextOverTCP(t *testing.T) {
	s := serveOverTCP(t, Balancer{Status: func() (ops.Status, error) { return running, nil }})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(s.url, "https", "http", 1)+
		statusPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("HTTP without TLS: %s", response.Status)
	}
}

// TestOtherSites: a page of another site cannot use the certificate of a browser.
func TestOtherSites(t *testing.T) {
	s := serveOverTCP(t, Balancer{})
	client := s.client(t, s.certificate(t, s.ca, pkix.Name{OrganizationalUnit: []string{"operators"}}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		s.url+"/v1/services/web/backends/web01/drain", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Origin", "https://example.com")
	response, err := client.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusForbidden || err != nil ||
		!strings.Contains(string(text), "page of another site") {
		t.Errorf("%s: %s, %v", response.Status, text, err)
	}
}

// TestManyConnections: connections without a request make room for one that has one, and a body beyond
// every bound is not read.
func TestManyConnections(t *testing.T) {
	s := serveOverTCP(t, Balancer{Status: func() (ops.Status, error) { return running, nil }})
	at := strings.TrimPrefix(s.url, "https://")
	for range maxConnections + 100 {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	client := s.client(t, Remote{Token: s.tokens[ops.RoleConfigure]})
	if _, err := client.Status(t.Context()); err != nil {
		t.Errorf("beside %d connections: %v", maxConnections+100, err)
	}
	secured, err := tls.Dial("tcp", at, client.http.Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer secured.Close()
	if _, err := io.WriteString(secured, "PUT /v1/config/services/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+
		client.token+"\r\nContent-Length: 104857600\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(secured), nil)
	if err != nil {
		t.Fatal(err)
	}
	secured.Close() // the server waits for the body
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestEntityTooLarge || !answer.Close {
		t.Errorf("to a body of 100 MiB: %s, close %t", answer.Status, answer.Close)
	}
}

// TestRemoteMistakes: a person's mistakes are named.
func TestRemoteMistakes(t *testing.T) {
	for _, server := range []string{"lb1:9540", "http://lb1:9540", "https://", "https://lb1/v1", "https://a:b@lb1"} {
		if _, err := NewRemoteClient(Remote{Server: server}); err == nil ||
			!strings.Contains(err.Error(), "is not https://HOST:PORT") {
			t.Errorf("%s: %v", server, err)
		}
	}
	s := serveOverTCP(t, Balancer{})
	client, err := NewRemoteClient(Remote{Server: s.url})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Status(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "name the file of its authority with --ca") {
		t.Errorf("an authority that this host does not know: %v", err)
	}
}
