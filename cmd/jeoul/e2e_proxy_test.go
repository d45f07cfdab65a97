// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The ports of the services of mode proxy on a stage, and of another one on the same VIP whose packets the data plane
// forwards.
const (
	proxyPort, proxyTLSPort, besidePort = 80, 443, 8081
)

// proxyStage is a balancer with services of mode proxy, and web servers behind them.
type proxyStage struct {
	*lab.Lab
	*balancer
	hook   lb.Hook
	webs   map[string]*e2e.Web
	client *http.Client
	ca     *testcert.Authority
}

// newProxyStage builds the laboratory, and starts everything.
func newProxyStage(t *testing.T, hook lb.Hook) *proxyStage {
	t.Helper()
	testenv.Program(t, "haproxy")
	l := newLab(t, lab.Spec{Clients: 1, Servers: 3})
	p := &proxyStage{Lab: l, balancer: newBalancer(t, l.Balancer), hook: hook, webs: map[string]*e2e.Web{}}
	files := e2e.MakeFiles(t, l.Dir, kilo)
	for _, server := range l.Servers {
		p.webs[server.Name] = e2e.StartWeb(t, server, files, webPort)
	}
	p.ca = testcert.NewAuthority(t)
	p.certify(t, "first")
	trusted := x509.NewCertPool()
	if text, err := os.ReadFile(p.ca.File); err != nil || !trusted.AppendCertsFromPEM(text) {
		t.Fatalf("read %s: %v", p.ca.File, err)
	}
	p.client = &e2e.NewBrowser(l.Clients[0]).Client
	p.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: trusted, ServerName: "localhost"}
	p.reconfigure(t, l.Servers[0])
	p.start(t)
	return p
}

func (p *proxyStage) pem() string { return filepath.Join(p.Balancer.Dir, "www.pem") }

// certify writes a certificate for a name.
func (p *proxyStage) certify(t *testing.T, name string) {
	t.Helper()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	p.ca.Write(t, pkix.Name{CommonName: name}, time.Hour, certificate, key)
	var both []byte
	for _, path := range []string{certificate, key} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, text...)
	}
	if err := os.WriteFile(p.pem(), both, 0o600); err != nil {
		t.Fatal(err)
	}
}

// reconfigure writes the configuration, in which a server gets the requests for one host.
func (p *proxyStage) reconfigure(t *testing.T, routed *lab.Host) {
	t.Helper()
	var backends []entry
	for _, server := range p.Servers {
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String(), "port": webPort})
	}
	service := func(name string, port int, more entry) entry {
		s := entry{"name": name, "vip": p.VIP4.String(), "port": port, "mode": string(lb.ModeProxy),
			"backends": backends,
			// 13 failures in a row: a live server that gets no processor for 2 s stays healthy.
			"check": entry{"type": "http", "path": "/who", "interval": "500ms", "fast": "200ms", "fall": 13,
				"rise": 1}}
		for key, value := range more {
			s[key] = value
		}
		return s
	}
	speaks := entry{"speaks": "http",
		"routes": []entry{{"hosts": []string{"one.example.com"}, "backends": []string{routed.Name}}}}
	p.configure(t, p.hook, entry{"fullnat": entry{"addresses": []string{p.FullNAT.String()}}, "services": []entry{
		service("web", proxyPort, entry{"proxy": speaks}),
		service("shop", proxyTLSPort,
			entry{"proxy": entry{"speaks": "http", "certificates": []string{p.pem()}, "security_headers": true}}),
		service("beside", besidePort, entry{"mode": string(lb.FullNAT)}),
	}})
}

// ask makes a request, and returns the server's name and the response, whose body has been read.
func (p *proxyStage) ask(scheme, host string, port int) (server string, response *http.Response, err error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet,
		fmt.Sprintf("%s://%s:%d/who", scheme, p.VIP4, port), nil)
	if err != nil {
		return "", nil, err
	}
	request.Host = host
	response, err = p.client.Do(request)
	if err != nil {
		return "", nil, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "", response, err
	}
	if response.StatusCode != http.StatusOK {
		return "", response, fmt.Errorf("%s", response.Status)
	}
	return response.Header.Get("Lab-Server"), response, nil
}

// askMany sends a number of requests, and counts the servers that answer.
func (p *proxyStage) askMany(t *testing.T, n int, scheme, host string, port int) map[string]int {
	t.Helper()
	from := map[string]int{}
	for range n {
		server, _, err := p.ask(scheme, host, port)
		if err != nil {
			t.Fatalf("%s to port %d: %v", scheme, port, err)
		}
		from[server]++
	}
	return from
}

// requestLoad sends requests continuously until it is stopped, and counts failures.
type requestLoad struct {
	stop   chan struct{}
	done   sync.WaitGroup
	mu     sync.Mutex
	asked  int
	failed []error
	from   map[string]int
	// ended is the number of requests of each loader that have ended.
	ended [2]int
}

func (p *proxyStage) startLoad(t *testing.T) *requestLoad {
	c := &requestLoad{stop: make(chan struct{}), from: map[string]int{}}
	for loader := range c.ended {
		c.done.Go(func() {
			for {
				select {
				case <-c.stop:
					return
				default:
				}
				server, _, err := p.ask("http", "", proxyPort)
				c.mu.Lock()
				c.asked, c.from[server] = c.asked+1, c.from[server]+1
				c.ended[loader]++
				if err != nil {
					c.failed = append(c.failed, err)
				}
				c.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { c.end(t) })
	return c
}

// await waits until a number of further requests have ended, and counts the servers that have answered them.
func (c *requestLoad) await(t *testing.T, n int) map[string]int {
	t.Helper()
	c.mu.Lock()
	from := c.asked + n
	c.from = map[string]int{}
	c.mu.Unlock()
	testenv.Eventually(t, e2e.WaitLimit, "requests have ended", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.asked >= from
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.from)
}

// awaitInFlight waits until the requests that are under way have ended: each loader has one at a time.
func (c *requestLoad) awaitInFlight(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	before := c.ended
	c.mu.Unlock()
	testenv.Eventually(t, e2e.WaitLimit, "the requests under way have ended", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.ended[0] > before[0] && c.ended[1] > before[1]
	})
}

// end stops the load; none of its requests may have failed.
func (c *requestLoad) end(t *testing.T) {
	t.Helper()
	select {
	case <-c.stop:
		return
	default:
	}
	close(c.stop)
	c.done.Wait()
	if len(c.failed) > 0 {
		t.Errorf("%d of %d requests failed, such as: %v", len(c.failed), c.asked, c.failed[0])
	}
	t.Logf("%d requests", c.asked)
}

func (p *proxyStage) operate(t *testing.T, order ops.Order) {
	t.Helper()
	if order.By = "the test"; order.Verb != ops.Undo {
		order.Service = "web"
	}
	if _, err := api.NewClient(p.socket).Operate(t.Context(), order); err != nil {
		t.Fatal(err)
	}
}

// TestProxy serves clients through the proxy engine: over HTTP and HTTPS, beside a service of the data plane on the
// same VIP, through drains, weights, reloads and a backend's death, and without any process of ours.
func TestProxy(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		p := newProxyStage(t, hook)
		first, second := p.Servers[0].Name, p.Servers[1].Name
		for _, asked := range []struct {
			scheme string
			port   int
		}{{"http", proxyPort}, {"https", proxyTLSPort}, {"http", besidePort}} {
			if from := p.askMany(t, 12, asked.scheme, "", asked.port); len(from) < 2 || asked.port != besidePort &&
				len(from) != 3 {
				t.Errorf("%s to port %d was answered by %v", asked.scheme, asked.port, from)
			}
		}
		if from := p.askMany(t, 6, "http", "one.example.com", proxyPort); from[first] != 6 {
			t.Errorf("the route leads to %v, want %s", from, first)
		}
		if _, response, err := p.ask("https", "", proxyTLSPort); err != nil ||
			response.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("security headers: %v, %v", response, err)
		}
		p.eventually(t, "the status has counted the requests", func(s *ops.Status) bool {
			return s.Services[0].Proxy != nil && s.Services[0].Proxy.Requests >= 18 &&
				s.Services[0].Proxy.Responses.Successful >= 18
		})
		p.certify(t, "second")
		p.testChanges(t, second)
		testenv.Eventually(t, e2e.WaitLimit, "clients are shown the new certificate", func() bool {
			_, response, err := p.ask("https", "", proxyTLSPort)
			return err == nil && response.TLS.PeerCertificates[0].Subject.CommonName == "second"
		})
		// One reload is permitted, because a busy host's HAProxy may answer too late; servers and certificates change
		// without a reload.
		if reloads := p.status(t).Proxy.Reloads; reloads > 1 {
			t.Errorf("HAProxy was reloaded %d times", reloads)
		}
		p.testServerDeath(t, second)
		p.testRestart(t)
		master := p.status(t).Proxy.PID
		stop(t, p.daemon)
		if processRuns(master) {
			t.Errorf("HAProxy's process %d runs after the stop", master)
		}
		if left, _ := filepath.Glob(filepath.Join(p.host.Dir, "state", "*.proxy")); len(left) > 0 {
			t.Errorf("the stop has left %v", left)
		}
		p.testDetach(t)
	})
}

// processRuns reports whether a process exists that is no zombie.
func processRuns(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

// testDetach kills a daemon without a service of the data plane: `jeoul detach` removes its remains.
func (p *proxyStage) testDetach(t *testing.T) {
	p.configure(t, p.hook,
		entry{"services": []entry{{"name": "web", "vip": p.VIP6.String(), "port": proxyPort,
			"mode":     string(lb.ModeProxy),
			"backends": []entry{{"name": "web01", "address": p.Servers[0].IPv4.String()}}}}})
	p.start(t)
	testenv.Eventually(t, e2e.WaitLimit, "an IPv4 server answers at an IPv6 VIP", func() bool {
		seen, err := e2e.NewBrowser(p.Clients[0]).Who(t.Context(), netip.AddrPortFrom(p.VIP6, proxyPort))
		return err == nil && seen.Server == p.Servers[0].Name
	})
	master := p.status(t).Proxy.PID
	kill(t, p.daemon)
	if !processRuns(master) {
		t.Errorf("HAProxy's process %d is gone with the daemon", master)
	}
	if err := jeoul(t, p.host, &p.log, "detach", "-c", p.config, "--state-dir",
		filepath.Join(p.host.Dir, "state")).Wait(); err != nil {
		t.Errorf("detach: %v", err)
	}
	if processRuns(master) {
		t.Errorf("HAProxy's process %d runs after a detach", master)
	}
}

// testChanges makes operators' changes, under requests none of which may fail.
func (p *proxyStage) testChanges(t *testing.T, second string) {
	c := p.startLoad(t)
	c.await(t, 20)
	p.operate(t, ops.Order{Verb: ops.Drain, Backend: second})
	c.awaitInFlight(t)
	if from := c.await(t, 20); from[second] != 0 {
		t.Errorf("%s is drained, and has got %v", second, from)
	}
	p.operate(t, ops.Order{Verb: ops.Enable, Backend: second})
	p.operate(t, ops.Order{Verb: ops.Weight, Backend: second, Weight: 8})
	c.awaitInFlight(t)
	if from := c.await(t, 40); from[second] < 20 {
		t.Errorf("%s has a weight of 8 beside 1 and 1, and has got %v", second, from)
	}
	p.reconfigure(t, p.Servers[2])
	// From its log: the generation also grows with every observation of backends.
	reloaded := func() int { return strings.Count(p.log.String(), "reloaded "+p.config) }
	before := reloaded()
	p.sendSIGHUP(t)
	testenv.Eventually(t, e2e.WaitLimit, "the reload is in force", func() bool { return reloaded() > before })
	if from := p.askMany(t, 4, "http", "one.example.com", proxyPort); from[p.Servers[2].Name] != 4 {
		t.Errorf("the changed route leads to %v", from)
	}
	p.operate(t, ops.Order{Verb: ops.Undo})
	c.await(t, 10)
	c.end(t)
}

// testServerDeath ends a server: once that is detected, no request goes there, nor fails.
func (p *proxyStage) testServerDeath(t *testing.T, name string) {
	web := p.webs[name]
	if err := web.Process.Signal(syscall.SIGTERM); err != nil { // not by a kill, which its worker would survive
		t.Fatal(err)
	}
	<-web.Process.Done()
	p.eventually(t, name+" is found to be dead", func(s *ops.Status) bool {
		return slices.ContainsFunc(s.Services[0].Backends, func(b ops.Backend) bool {
			return b.Name == name && b.State == lb.Unhealthy
		})
	})
	if from := p.askMany(t, 12, "http", "", proxyPort); from[name] != 0 || len(from) != 2 {
		t.Errorf("%s is dead, and answers come from %v", name, from)
	}
}

// testRestart kills the daemon: HAProxy continues to serve, and the next daemon takes it over. A killed HAProxy is
// started again.
func (p *proxyStage) testRestart(t *testing.T) {
	before := p.status(t).Proxy
	c := p.startLoad(t)
	kill(t, p.daemon)
	c.await(t, 10)
	p.daemon = jeoul(t, p.host, &p.log, p.arguments()...)
	p.eventually(t, "the daemon runs again", func(s *ops.Status) bool { return s.Proxy != nil && s.Proxy.PID != 0 })
	c.await(t, 10)
	c.end(t)
	if now := p.status(t).Proxy; now.PID != before.PID {
		t.Errorf("HAProxy was process %d, and is %d after a restart of the daemon", before.PID, now.PID)
	}
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.eventually(t, "HAProxy was started again", func(s *ops.Status) bool {
		return s.Proxy.PID != 0 && s.Proxy.PID != before.PID
	})
	testenv.Eventually(t, e2e.WaitLimit, "it serves", func() bool {
		_, _, err := p.ask("http", "", proxyPort)
		return err == nil
	})
	if !strings.Contains(p.log.String(), "HAProxy") {
		t.Error("the log says nothing of it")
	}
}
