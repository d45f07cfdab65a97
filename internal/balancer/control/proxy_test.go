// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
	"github.com/jeoul/jeoul/internal/test/testcert"
)

// haproxy stands for the proxy engine, and records the calls that it gets.
type haproxy struct {
	w        *world
	mu       sync.Mutex
	checkErr error
	applyErr error
	// takes is how long Apply takes.
	takes    time.Duration
	stats    proxy.Stats
	statsErr error
	state    proxy.State
	// renewErr is the error of RenewCertificates.
	renewErr error
	changes  chan struct{}
}

// shown writes a desired state as world.Apply does.
func shown(d proxy.Desired) string {
	var b strings.Builder
	for _, s := range d.Services {
		fmt.Fprintf(&b, " %s:", s.Name)
		for i, backend := range s.Backends {
			observed := s.Observed.Of(i)
			b.WriteString(" " + backend.Name)
			for _, mark := range []struct {
				on   bool
				text string
			}{{backend.Draining, "~"}, {observed.Unhealthy != "", "!"}, {observed.Standby, "^"}, {slices.Contains(s.Out, i), "#"},
				{backend.Weight != 1, fmt.Sprintf("*%d", backend.Weight)}} {
				if mark.on {
					b.WriteString(mark.text)
				}
			}
		}
	}
	return b.String()
}

func (h *haproxy) Validate(_ context.Context, d proxy.Desired) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checkErr
}

func (h *haproxy) Apply(_ context.Context, d proxy.Desired) error {
	h.mu.Lock()
	takes := h.takes
	h.mu.Unlock()
	time.Sleep(takes)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	_, err := proxy.Render(d, proxy.Host{Dir: "/run/proxy"})
	if h.applyErr != nil {
		err = h.applyErr
	}
	if err != nil {
		h.w.note("fail to proxy%s", shown(d))
		return err
	}
	h.w.note("proxy%s", shown(d))
	return nil
}

func (h *haproxy) Stats(context.Context) (proxy.Stats, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stats, h.statsErr
}

func (h *haproxy) State() proxy.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

func (h *haproxy) Changes() <-chan struct{} { return h.changes }

func (h *haproxy) RenewCertificates(context.Context) error {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.note("renew")
	return h.renewErr
}

// is gives the engine another state.
func (h *haproxy) is(state proxy.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = state
	signal(h.changes)
}

func (h *haproxy) failRenewal(err error) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.renewErr = err
}

func (h *haproxy) slow(takes time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.takes = takes
}

func (h *haproxy) fail(check, apply error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkErr, h.applyErr = check, apply
}

// shopProxied is a service of mode proxy, whose backend is one of web's, too, and one that is reached by the kernel
// alone.
const shopProxied = `
  - name: shop
    vip: 192.0.2.101
    port: 80
    mode: proxy
    proxy: {speaks: http}
    check: {type: tcp}
    backends:
      - {name: s1, address: 192.0.2.1, port: 8080}
      - {name: s7, address: 198.51.100.7}
`

// runningProxied is running, with a proxy engine and health checks.
func runningProxied(t *testing.T, file string) (w *world, c *Controller, h *haproxy, asked *checks, stop func() error) {
	t.Helper()
	w = newWorld(t)
	w.answer("192.0.2.1", "192.0.2.2")
	h, asked = &haproxy{w: w, changes: make(chan struct{}, 1)}, newChecks()
	opt := w.controller(web).opt
	opt.Proxy, opt.Checks = h, asked
	c = New(opt, parse(t, file))
	stop = w.run(c)
	return w, c, h, asked, stop
}

func TestProxyStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, h, _, stop := runningProxied(t, web+shopProxied)
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=1 web02=2", "add 192.0.2.100", "add 192.0.2.101",
			"proxy shop: s1 s7",
			"announce 192.0.2.100 on eth9", "announce 192.0.2.101 on eth9")
		w.quiet()
		h.is(proxy.State{Version: "2.6.12", Program: "/usr/sbin/haproxy", PID: 17, Workers: 1})
		status := statusOf(t, c)
		if len(status.Problems) > 0 || status.Proxy == nil || status.Proxy.PID != 17 ||
			status.Services[1].Backends[1].State != lb.Up {
			t.Errorf("status %+v", status)
		}
		w.expectLog("INFO", "the proxy runs: HAProxy 2.6.12, process 17")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestProxyAbsent: without an engine a configuration with the mode is refused, at its line.
func TestProxyAbsent(t *testing.T) {
	w := newWorld(t)
	err := w.controller(web + strings.ReplaceAll(shopProxied, "    check: {type: tcp}\n", "")).Start()
	if want := "f:14: services[1].mode: this program has no proxy engine; use another mode"; err == nil ||
		err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestRespondsDuringProxyChange: a change of the proxy that takes its time within the engine's bound is no hang of the
// daemon, which systemd's watchdog would kill; one that takes longer is.
func TestRespondsDuringProxyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, h, asked, stop := runningProxied(t, web+shopProxied)
		responds := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return c.Responds(ctx)
		}
		h.slow(50 * time.Second)
		asked.say(t, c, failing("refuses"), "s7")
		time.Sleep(settleDelay + 20*time.Second)
		if err := responds(10 * time.Second); err != nil {
			t.Errorf("during a change: %v", err)
		}
		time.Sleep(30 * time.Second)
		h.slow(time.Hour)
		asked.say(t, c, healthy(), "s7")
		time.Sleep(settleDelay + engineBound - 10*time.Second)
		if err := responds(5 * time.Second); err != nil {
			t.Errorf("within the bound: %v", err)
		}
		time.Sleep(20 * time.Second)
		if err := responds(time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beyond the bound: %v, want that it does not respond", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestProxyFollows: verdicts and operations reach the engine, and nothing else does.
func TestProxyFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _, asked, stop := runningProxied(t, web+shopProxied)
		w.quiet()
		asked.say(t, c, failing("refuses"), "s7")
		time.Sleep(settleDelay)
		w.expect("proxy shop: s1 s7!", "apply web: web01=1 web02=2")
		expectProblems(t, c)
		asked.say(t, c, healthy(), "s7")
		time.Sleep(settleDelay)
		w.expect("proxy shop: s1 s7", "apply web: web01=1 web02=2")
		must(t, c, "drain shop/s1")
		w.expect("proxy shop: s1~ s7", "apply web: web01=1 web02=2")
		must(t, c, "enable shop/s1", "weight shop/s1 20")
		w.expect("proxy shop: s1 s7", "apply web: web01=1 web02=2", "proxy shop: s1*20 s7",
			"apply web: web01=1 web02=2")
		must(t, c, "drain web/web01")
		w.expect("apply web: web01=1~ web02=2")
		w.found("192.0.2.1", 9)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=9~ web02=2")
		stop()
	})
}

// TestProxyOut: a backend that is disabled, or out at the deadline of its drain, stays in the engine's state, where its
// connections end, also if a route names it.
func TestProxyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := web + strings.ReplaceAll(shopProxied, "{speaks: http}",
			"{speaks: http, routes: [{paths: [/api], backends: [s1]}]}")
		w, c, _, asked, stop := runningProxied(t, file)
		w.quiet()
		must(t, c, "disable shop/s1")
		w.expect("proxy shop: s1~# s7", "apply web: web01=1 web02=2")
		must(t, c, "enable shop/s1")
		w.expect("proxy shop: s1 s7", "apply web: web01=1 web02=2")
		w.mustReload(c, strings.Replace(file, "{name: s7,", "{name: s8, address: 198.51.100.8}\n      - {name: s7,", 1))
		w.quiet()
		must(t, c, "drain shop/s8 10s")
		w.expect("proxy shop: s1 s8~ s7", "apply web: web01=1 web02=2")
		time.Sleep(11 * time.Second)
		w.expect("proxy shop: s1 s8~# s7", "apply web: web01=1 web02=2")
		asked.say(t, c, failing("refuses"), "s7")
		time.Sleep(settleDelay)
		w.expect("proxy shop: s1 s8~# s7!", "apply web: web01=1 web02=2")
		w.mustReload(c, file) // which no longer has it
		w.expect("watch 192.0.2.1 192.0.2.2", "proxy shop: s1 s7!", "apply web: web01=1 web02=2",
			"watch 192.0.2.1 192.0.2.2", "announce 192.0.2.100 on eth9", "announce 192.0.2.101 on eth9")
		stop()
	})
}

// TestProxyAlone: verdicts on proxied backends do not concern a data plane that has no service.
func TestProxyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _, asked, stop := runningProxied(t, "interface: eth9\nservices:"+shopProxied)
		w.quiet()
		asked.say(t, c, failing("refuses connections"), "s1")
		time.Sleep(settleDelay)
		w.expect("proxy shop: s1! s7")
		if b := statusOf(t, c).Services[0].Backends[0]; b.Health == nil || b.Health.State != lb.Failing {
			t.Errorf("the status has %+v", b)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestProxyFails: where the engine or the data plane fails, the previous state is in force in both.
func TestProxyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, h, _, stop := runningProxied(t, web+shopProxied)
		w.quiet()
		h.fail(nil, errors.New("HAProxy is gone"))
		if _, err := do(t, c, "drain shop/s1"); err == nil || !strings.Contains(err.Error(), "HAProxy is gone") {
			t.Errorf("error %v", err)
		}
		w.expect("fail to proxy shop: s1~ s7")
		if b := statusOf(t, c).Services[1].Backends[0]; b.State != lb.Up {
			t.Errorf("backend %+v", b)
		}
		h.fail(nil, nil)
		w.failApply(errors.New("no rights"))
		if _, err := do(t, c, "drain shop/s1"); err == nil {
			t.Error("no error")
		}
		w.expect("proxy shop: s1~ s7", "fail to apply web: web01=1 web02=2", "proxy shop: s1 s7")
		stop()
	})
}

// TestProxyRefusal: a refusal by HAProxy is shown at its place in the file.
func TestProxyRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, h, _, stop := runningProxied(t, web+shopProxied)
		w.quiet()
		key := parse(t, web+shopProxied).Services[1].Key()
		for _, test := range []struct {
			err  error
			want string
		}{
			{&proxy.FieldError{Service: key, Field: "proxy.speaks", Err: errors.New("no such word")},
				"f:15: services[1].proxy.speaks: no such word"},
			{&proxy.FieldError{Service: key, Err: errors.New("cannot bind")}, "f:11: services[1]: cannot bind"},
			{fmt.Errorf("check: %w", &proxy.FieldError{Field: "global", Engine: true,
				Err: errors.New("unknown keyword")}), "f:2: proxy.global: unknown keyword"},
			{errors.New("no HAProxy here"), "no HAProxy here"},
		} {
			h.fail(test.err, nil)
			if err := finished(t, w.reload(c, web+shopProxied)); err == nil || err.Error() != test.want {
				t.Errorf("error %v, want %s", err, test.want)
			}
		}
		w.expect()
		stop()
	})
}

// TestProxyMoves: a service that gets the mode is proxied before packets are left to the kernel, and one that loses it
// until they are not any more.
func TestProxyMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, _, _, stop := runningProxied(t, web+shopProxied)
		w.quiet()
		plain := strings.NewReplacer("    mode: proxy\n    proxy: {speaks: http}\n    check: {type: tcp}\n",
			"    mode: nat\n    hairpin: false\n").Replace(shopProxied)
		w.mustReload(c, web+strings.ReplaceAll(plain, "198.51.100.7", "192.0.2.2"))
		w.expect("watch 192.0.2.1 192.0.2.2", "forward IPv4 on eth9", "proxy shop: s1 s7",
			"apply web: web01=1 web02=2 shop: s1=1 s7=2", "proxy",
			"watch 192.0.2.1 192.0.2.2", "announce 192.0.2.100 on eth9", "announce 192.0.2.101 on eth9")
		w.quiet()
		w.mustReload(c, web+shopProxied)
		w.expect("watch 192.0.2.1 192.0.2.2", "proxy shop: s1 s7", "apply web: web01=1 web02=2", "forward nothing",
			"watch 192.0.2.1 192.0.2.2", "announce 192.0.2.100 on eth9", "announce 192.0.2.101 on eth9")
		stop()
	})
}

// TestProxyCounts: the status shows the engine's counters, the last ones where it does not answer, and its fault.
func TestProxyCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, h, _, stop := runningProxied(t, web+shopProxied)
		w.quiet()
		s := parse(t, web+shopProxied).Services[1]
		h.mu.Lock()
		h.stats = proxy.Stats{Services: map[lb.ServiceKey]proxy.Counts{s.Key(): {Connections: 5, Active: 2, Requests: 9,
			Responses: [6]uint64{0, 0, 8, 0, 0, 1}, BytesIn: 10, BytesOut: 20}},
			Backends: map[lb.BackendKey]proxy.Counts{s.BackendKey(s.Backends[0]): {Connections: 3, Active: 1,
				Requests: 9, Failed: 4, BytesIn: 7, BytesOut: 8}}}
		h.mu.Unlock()
		want := func(status ops.Status) {
			t.Helper()
			is, b := status.Services[1], status.Services[1].Backends[0]
			got := []uint64{is.Proxy.Connections, uint64(is.Active), is.Proxy.Requests, is.Proxy.Responses.Successful,
				is.Proxy.Responses.ServerError,
				b.Connections, uint64(b.Active), b.Proxied.Failed, b.Bytes, b.ReturnedBytes}
			if diff := cmp.Diff([]uint64{5, 2, 9, 8, 1, 3, 1, 4, 7, 8}, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		}
		want(statusOf(t, c))
		h.mu.Lock()
		h.statsErr, h.stats = errors.New("no answer"), proxy.Stats{}
		h.mu.Unlock()
		want(statusOf(t, c))
		h.is(proxy.State{PID: 17})
		synctest.Wait()
		h.is(proxy.State{Problem: "HAProxy was killed; it is started again"})
		expectProblems(t, c, "the proxy: HAProxy was killed; it is started again")
		w.expectLog("WARN", "the proxy has ended: HAProxy, process 17")
		stop()
	})
}

// certificateFile returns the contents of the file of a certificate that is valid for so long.
func certificateFile(t *testing.T, ca *testcert.Authority, left time.Duration) (text []byte) {
	t.Helper()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	ca.Write(t, pkix.Name{CommonName: "localhost"}, left, certificate, key)
	for _, path := range []string{certificate, key} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, data...)
	}
	return text
}

// TestProxyCertificatesAlone: a file that cannot be used, or that the engine does not take, does not hold up the
// renewal of the others.
func TestProxyCertificatesAlone(t *testing.T) {
	ca := testcert.NewAuthority(t)
	var texts [][]byte
	for range 4 {
		texts = append(texts, certificateFile(t, ca, time.Hour))
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer("192.0.2.1", "192.0.2.2")
		h, files := &haproxy{w: w, changes: make(chan struct{}, 1)}, &files{at: map[string][]byte{}}
		opt := w.controller(web).opt
		opt.Proxy, opt.Checks, opt.ReadFile = h, newChecks(), files.read
		files.write("/a.pem", texts[0])
		files.write("/b.pem", texts[1])
		file := web + strings.ReplaceAll(shopProxied, "{speaks: http}",
			"{speaks: http, certificates: [/a.pem, /b.pem]}")
		stop := w.run(New(opt, parse(t, file)))
		w.quiet()
		files.remove("/b.pem")
		time.Sleep(renewInterval)
		w.expect()
		w.expectLog("WARN", "changed certificates are not taken", "/b.pem")
		files.write("/a.pem", texts[2])
		time.Sleep(renewInterval)
		w.expect("renew")
		w.expectLog("INFO", "the proxy has taken certificates that have changed: /a.pem")
		time.Sleep(10 * renewInterval)
		w.expect() // it has been taken
		files.write("/a.pem", texts[0])
		files.write("/b.pem", texts[3])
		h.failRenewal(proxy.RenewalErrors{"/a.pem": errors.New("too large")})
		time.Sleep(renewInterval)
		w.expect("renew")
		w.expectLog("WARN", "changed certificates are not taken", "too large")
		w.expectLog("INFO", "the proxy has taken certificates that have changed: /b.pem")
		h.failRenewal(nil)
		time.Sleep(renewInterval)
		w.expect("renew")
		w.expectLog("INFO", "the proxy has taken certificates that have changed: /a.pem")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestProxyCertificates: files that change are taken when they are good, and only then.
func TestProxyCertificates(t *testing.T) {
	ca := testcert.NewAuthority(t)
	year := 365 * 24 * time.Hour
	first, second := certificateFile(t, ca, year), certificateFile(t, ca, year)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer("192.0.2.1", "192.0.2.2")
		h, files := &haproxy{w: w, changes: make(chan struct{}, 1)}, &files{at: map[string][]byte{}}
		opt := w.controller(web).opt
		opt.Proxy, opt.Checks, opt.ReadFile = h, newChecks(), files.read
		file := web + strings.ReplaceAll(shopProxied, "{speaks: http}", "{speaks: http, certificates: [/a.pem]}")
		if err := New(opt, parse(t, file)).Start(); err == nil ||
			!strings.HasPrefix(err.Error(), "f:15: services[1].proxy.certificates[0]: /a.pem: file does not exist") {
			t.Errorf("error %v", err)
		}
		files.write("/a.pem", first)
		c := New(opt, parse(t, file))
		stop := w.run(c)
		w.quiet()
		files.write("/a.pem", second[:len(second)/2])
		time.Sleep(renewInterval)
		w.expect()
		w.expectLog("WARN", "changed certificates are not taken", "/a.pem")
		expectProblems(t, c, "/a.pem")
		files.write("/a.pem", second)
		must(t, c, "drain shop/s1") // which does not hand it in
		w.expect("proxy shop: s1~ s7", "apply web: web01=1 web02=2")
		time.Sleep(renewInterval)
		w.expect("renew")
		w.expectLog("INFO", "the proxy has taken certificates that have changed: /a.pem")
		expectProblems(t, c, "is not valid before") // by the clock of this test
		files.write("/a.pem", first)
		h.fail(nil, errors.New("HAProxy is gone"))
		if _, err := do(t, c, "enable shop/s1"); err == nil {
			t.Error("no error")
		}
		w.expect("fail to proxy shop: s1 s7")
		stop()
	})
}

// files are the files that a controller reads.
type files struct {
	mu sync.Mutex
	at map[string][]byte
}

func (f *files) read(path string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, there := f.at[path]
	if !there {
		return nil, os.ErrNotExist
	}
	return data, nil
}

func (f *files) remove(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, path)
}

func (f *files) write(path string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[path] = data
}
