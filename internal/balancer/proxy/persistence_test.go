// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// newTLSBackend makes a web server behind TLS that answers its name.
func newTLSBackend(t *testing.T, name string, config *tls.Config) lb.Backend {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, name)
	}))
	server.TLS, server.Config.ErrorLog = config, log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	at := server.Listener.Addr().(*net.TCPAddr).AddrPort()
	return lb.Backend{Name: name, Address: at.Addr(), Port: at.Port(), Weight: 1}
}

// TestCookie: a client stays at its backend by a cookie, also at one that came at run time, and while that drains; one
// that is down it leaves. Connections to backends are encrypted, and backends without the right certificate get none.
func TestCookie(t *testing.T) {
	t.Parallel()
	r, ca, other := newTestEngine(t), testcert.NewAuthority(t), testcert.NewAuthority(t)
	once := uint8(0)
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP, Cookie: "at", Retries: &once, BackendTLS: lb.BackendTLSVerified,
		BackendCA: ca.File},
		newTLSBackend(t, "w1", ca.Config(t, "w1.test", time.Hour)))
	r.apply(s)
	s.Backends = append(s.Backends, newTLSBackend(t, "w2", ca.Config(t, "w2.test", time.Hour)))
	r.apply(s)
	c := client(t, nil, s)
	ask := func(cookie string) (text, given string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if cookie != "" {
			request.AddCookie(&http.Cookie{Name: "at", Value: cookie})
		}
		answer, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, _ = bufio.NewReader(answer.Body).ReadString('\n')
		for _, set := range answer.Cookies() {
			given = set.Value
		}
		return text, given
	}
	cookies := map[string]string{}
	for range 4 {
		text, given := ask("")
		cookies[text] = given
	}
	if cookies["w1"] == "" || cookies["w2"] == "" || cookies["w1"] == cookies["w2"] {
		t.Fatalf("cookies by backend: %v", cookies)
	}
	stays := func(want string) {
		t.Helper()
		for range 3 {
			if text, _ := ask(cookies["w2"]); text != want {
				t.Errorf("a client of w2 was served by %q, want %s", text, want)
			}
		}
		if text, _ := ask(""); want == "w2" && s.Backends[1].Draining && text != "w1" {
			t.Errorf("a new client was served by %q", text)
		}
	}
	stays("w2")
	s.Backends = []lb.Backend{s.Backends[0], s.Backends[1]}
	s.Backends[1].Draining = true
	r.apply(s)
	stays("w2")
	r.applyObserved(s, lb.Observations{1: {Unhealthy: "does not answer"}})
	stays("w1")
	if n := r.State().Reloads; n != 0 {
		t.Errorf("%d reloads", n)
	}
	s.Backends = []lb.Backend{newTLSBackend(t, "w3", other.Config(t, "w3.test", time.Hour))}
	r.apply(s)
	if text, _ := ask(""); !strings.Contains(text, "503") && !strings.Contains(text, "<html>") {
		t.Errorf("a backend with another authority's certificate: %q", text)
	}
}

// newNameServer makes a TCP server that sends its name, and then echoes.
func newNameServer(t *testing.T, name string) lb.Backend {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprintln(conn, name)
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintln(conn, lines.Text())
				}
			}()
		}
	}()
	at := listener.Addr().(*net.TCPAddr).AddrPort()
	return lb.Backend{Name: name, Address: at.Addr(), Port: at.Port(), Weight: 1}
}

// nameConn is a connection to a namer.
type nameConn struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	name string
}

func dialName(t *testing.T, s lb.Service) *nameConn {
	t.Helper()
	conn, err := net.Dial("tcp", netip.AddrPortFrom(s.VIP, s.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(testenv.WaitLimit))
	k := &nameConn{t: t, conn: conn, in: bufio.NewReader(conn)}
	name, err := k.in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	k.name = strings.TrimSpace(name)
	return k
}

// isAlive reports whether the other end still answers.
func (k *nameConn) isAlive() bool {
	fmt.Fprintln(k.conn, "there?")
	answer, err := k.in.ReadString('\n')
	return err == nil && answer == "there?\n"
}

// TestConnectionsLive: connections outlive reloads and the removal of their backend, a client's persistence outlives
// reloads, and a backend that is down loses its connections where the service says so.
func TestConnectionsLive(t *testing.T) {
	t.Parallel()
	r := newTestEngine(t)
	s := newService(t, lb.Proxy{}, newNameServer(t, "w1"), newNameServer(t, "w2"), newNameServer(t, "w3"))
	s.Persistence = lb.Persistence{Timeout: time.Hour, Prefix: 32}
	r.apply(s)
	first := dialName(t, s)
	p := *s.Proxy
	p.Timeouts.Connect = 7 * time.Second
	s.Proxy = &p
	r.apply(s)
	if n := r.State().Reloads; n != 1 {
		t.Errorf("%d reloads", n)
	}
	e := r.Engine.(*engine)
	worker, err := e.currentWorker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	many, pool := master.StickTable{}, serviceName(s.Key())+allOf
	for i := range 2000 {
		many[netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})] = 1
	}
	if err := e.socket.WriteTable(t.Context(), worker, pool, many); err != nil {
		t.Error(err)
	}
	if known, err := e.socket.ReadTable(t.Context(), worker, pool); err != nil || len(known) != len(many)+1 {
		t.Errorf("%d clients are remembered, want %d; %v", len(known), len(many)+1, err)
	}
	for range 4 {
		if again := dialName(t, s); again.name != first.name {
			t.Errorf("the client of %s went to %s after a reload", first.name, again.name)
		}
	}
	second := dialName(t, s)
	all := s.Backends
	s.Backends = nil
	for _, b := range all {
		if b.Name != first.name {
			s.Backends = append(s.Backends, b)
		}
	}
	r.apply(s)
	if !first.isAlive() || !second.isAlive() {
		t.Error("a reload or a removal has ended a connection")
	}
	third := dialName(t, s)
	if third.name == first.name {
		t.Errorf("a new connection went to %s, which was removed", third.name)
	}
	s.Checks.OnDown = lb.ResetFlows
	down := slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return b.Name == third.name })
	r.applyObserved(s, lb.Observations(nil).With(down, lb.Observed{Unhealthy: "does not answer"}))
	if third.isAlive() {
		t.Error("a connection goes on at a backend that is down")
	}
	s.Backends = all // the one that was removed comes back with connections that it still has
	r.apply(s)
	if n := r.State().Reloads; n != 1 || !second.isAlive() {
		t.Errorf("%d reloads; the connection of a backend that came back lives: %v", n, second.isAlive())
	}
}

// TestOutEndsConnections: a backend that an operation has taken out loses its connections, and serves again later.
func TestOutEndsConnections(t *testing.T) {
	t.Parallel()
	r := newTestEngine(t)
	s := newService(t, lb.Proxy{}, newNameServer(t, "w1"), newNameServer(t, "w2"))
	r.apply(s)
	conns := []*nameConn{dialName(t, s), dialName(t, s)} // wrr: one for each
	r.applyDesired(Desired{Services: []Service{{Service: s, Out: []int{0}}}})
	for _, k := range conns {
		if alive := k.isAlive(); alive != (k.name == "w2") {
			t.Errorf("a connection to %s goes on: %v", k.name, alive)
		}
	}
	for range 2 {
		if k := dialName(t, s); k.name != "w2" {
			t.Errorf("a new connection went to %s, which is out", k.name)
		}
	}
	r.apply(s)
	if a, b := dialName(t, s), dialName(t, s); a.name == b.name || r.State().Reloads > 0 {
		t.Errorf("connections to %s and %s after %d reloads", a.name, b.name, r.State().Reloads)
	}
}
