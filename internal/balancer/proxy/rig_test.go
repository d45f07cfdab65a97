// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// testEngine is an engine with services on this host's loopback, and its files.
type testEngine struct {
	t   *testing.T
	dir string
	// files is nil where all can be written.
	files *durable.Files
	Engine
}

// newTestEngine makes an engine, which ends with the test.
func newTestEngine(t *testing.T) *testEngine {
	t.Helper()
	testenv.Root(t)
	testenv.Program(t, "haproxy")
	r := &testEngine{t: t, dir: t.TempDir() + "/proxy"}
	r.open()
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// open makes an engine in the rig's directory.
func (r *testEngine) open() {
	r.t.Helper()
	engine, err := New(Options{Dir: r.dir, Files: r.files, Log: slog.New(slog.NewTextHandler(r.t.Output(), nil))})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Engine = engine
}

// awaitCounts returns the counters once that many requests of a service are among them. HAProxy counts a request when
// it has ended, which may be after the client has its answer.
func (r *testEngine) awaitCounts(s lb.Service, requests uint64) (stats Stats) {
	r.t.Helper()
	testenv.Eventually(r.t, testenv.WaitLimit, fmt.Sprintf("%d requests of %s are counted", requests, s.Name), func() bool {
		var err error
		if stats, err = r.Stats(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		return stats.Services[s.Key()].Requests == requests
	})
	return stats
}

// apply applies, and fails the test where that fails.
func (r *testEngine) apply(services ...lb.Service) {
	r.t.Helper()
	r.applyDesired(desired(services...))
}

// applyObserved likewise applies a service of whose backends something was observed.
func (r *testEngine) applyObserved(s lb.Service, observed lb.Observations) {
	r.t.Helper()
	r.applyDesired(Desired{Services: []Service{{Service: s, Observed: observed}}})
}

func (r *testEngine) applyDesired(d Desired) {
	r.t.Helper()
	if err := r.Apply(r.t.Context(), d); err != nil {
		r.t.Fatal(err)
	}
}

func desired(services ...lb.Service) (d Desired) {
	for _, s := range services {
		d.Services = append(d.Services, Service{Service: s})
	}
	return d
}

// newService makes a service at an address of this host's that nothing else has, with backends.
func newService(t *testing.T, p lb.Proxy, backends ...lb.Backend) lb.Service {
	t.Helper()
	vip := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(250)), byte(1 + rand.IntN(250))})
	return lb.Service{Name: "web", VIP: vip, Port: testenv.Port(t), Protocol: lb.TCP, Mode: lb.ModeProxy,
		Scheduler: lb.WeightedRoundRobin,
		Proxy:     &p, Backends: backends}
}

// url returns a service's address.
func url(s lb.Service, scheme, path string) string {
	return fmt.Sprintf("%s://%s%s", scheme, netip.AddrPortFrom(s.VIP, s.Port), path)
}

// newBackend makes a web server that answers with its name and some of the request.
func newBackend(t *testing.T, name string) lb.Backend {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Backend", name)
		fmt.Fprintf(w, "%s for %s proto %s", name, r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(server.Close)
	at := server.Listener.Addr().(*net.TCPAddr).AddrPort()
	return lb.Backend{Name: name, Address: at.Addr(), Port: at.Port(), Weight: 1}
}

// client makes one that trusts an authority, and connects to a service whatever host it asks for.
func client(t *testing.T, ca *testcert.Authority, s lb.Service) *http.Client {
	t.Helper()
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, netip.AddrPortFrom(s.VIP, s.Port).String())
		}}
	if ca != nil {
		contents, err := os.ReadFile(ca.File)
		if err != nil {
			t.Fatal(err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(contents)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get asks, and returns the answer and its text.
func get(c *http.Client, url string) (*http.Response, string, error) {
	answer, err := c.Get(url)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer, string(text), err
}

// mustGet is get, where it must work.
func mustGet(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	answer, text, err := get(c, url)
	if err != nil {
		t.Fatal(err)
	}
	return answer, text
}
