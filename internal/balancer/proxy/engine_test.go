// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/process"
	"github.com/jeoul/jeoul/internal/host/clock"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testdisk"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

func TestServesHTTPS(t *testing.T) {
	t.Parallel()
	r, ca := newTestEngine(t), testcert.NewAuthority(t)
	first, second := filepath.Join(t.TempDir(), "first of two.pem"), filepath.Join(t.TempDir(), "b.pem")
	writePEM(t, first, ca.Config(t, "a.test", time.Hour))
	writePEM(t, second, ca.Config(t, "b.test", time.Hour))
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP, Certificates: []string{first, second}, SecurityHeaders: true,
		RequestHeaders:  []lb.Header{{Name: "X-Forwarded-Proto", Value: `100% "it's" #1 $HOME \`}},
		ResponseHeaders: []lb.Header{{Name: "X-Backend"}},
		Routes: []lb.Route{{Hosts: []string{"b.test"}, Paths: []string{"/api"}, Backends: []string{"w2"}},
			{Hosts: []string{"*.test"}, Backends: []string{"w1"}}}},
		newBackend(t, "w1"), newBackend(t, "w2"))
	plain := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP, RedirectTLS: true})
	plain.Name = "plain"
	r.apply(s, plain)

	c := client(t, ca, s)
	for _, q := range []struct{ url, backend string }{{"https://a.test/", "w1"}, {"https://b.test/api", "w2"},
		{"https://b.test/api/x", "w2"}, {"https://b.test/apis", "w1"}} {
		answer, text := mustGet(t, c, q.url)
		if !strings.HasPrefix(text, q.backend+" for 127.0.0.1") ||
			!strings.HasSuffix(text, `proto 100% "it's" #1 $HOME \`) {
			t.Errorf("%s: %q, want of %s", q.url, text, q.backend)
		}
		if answer.ProtoMajor != 2 || answer.TLS.PeerCertificates[0].DNSNames[0] != answer.Request.URL.Host {
			t.Errorf("%s: HTTP/%d, certificate of %v", q.url, answer.ProtoMajor,
				answer.TLS.PeerCertificates[0].DNSNames)
		}
		if h := answer.Header; h.Get("X-Backend") != "" || h.Get("X-Frame-Options") != "SAMEORIGIN" ||
			!strings.HasPrefix(h.Get("Strict-Transport-Security"), "max-age=") {
			t.Errorf("%s: headers %v", q.url, h)
		}
	}
	answer, _ := mustGet(t, client(t, nil, plain), "http://a.test/x")
	if answer.StatusCode != http.StatusMovedPermanently || answer.Header.Get("Location") != "https://a.test/x" {
		t.Errorf("redirect: %d to %q", answer.StatusCode, answer.Header.Get("Location"))
	}
	stats := r.awaitCounts(s, 4)
	if c := stats.Services[s.Key()]; c.Connections < 2 || c.Responses[2] != 4 || c.BytesIn == 0 {
		t.Errorf("counts %+v", c)
	}
	if c := stats.Backends[s.BackendKey(s.Backends[1])]; c.Requests != 2 {
		t.Errorf("counts of w2: %+v", c)
	}
	if state := r.State(); state.PID == 0 || state.Workers != 1 || state.Version == "" || state.Problem != "" {
		t.Errorf("state %+v", state)
	}
}

// TestProxyHeader: a backend gets a PROXY header of version 2 with the client's address, and clients that are denied
// get nothing.
func TestProxyHeader(t *testing.T) {
	t.Parallel()
	r := newTestEngine(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	at := listener.Addr().(*net.TCPAddr).AddrPort()
	s := newService(t, lb.Proxy{SendProxy: 2}, lb.Backend{Name: "raw", Address: at.Addr(), Port: at.Port(), Weight: 1})
	s.Persistence, s.Scheduler = lb.Persistence{Timeout: time.Minute, Prefix: 32}, lb.Maglev
	denied := newService(t, lb.Proxy{}, s.Backends...)
	denied.Deny = append(denied.Deny, netip.MustParsePrefix("127.0.0.0/8"))
	denied.Allow = append(denied.Allow, netip.MustParsePrefix("126.0.0.0/7"), netip.MustParsePrefix("127.0.0.3/32"))
	r.apply(s, denied)

	conn, err := net.Dial("tcp", strings.TrimPrefix(url(s, "", ""), "://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write([]byte("hello\n"))
	there, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	there.SetReadDeadline(time.Now().Add(testenv.WaitLimit))
	head := make([]byte, 28)
	in := bufio.NewReader(there)
	if _, err := in.Read(head); err != nil ||
		!bytes.HasPrefix(head, []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01")) {
		t.Errorf("PROXY header % x, %v", head, err)
	}
	if text, err := in.ReadString('\n'); text != "hello\n" {
		t.Errorf("%q, %v", text, err)
	}
	refused, err := net.Dial("tcp", strings.TrimPrefix(url(denied, "", ""), "://"))
	if err == nil {
		defer refused.Close()
		refused.SetReadDeadline(time.Now().Add(testenv.WaitLimit))
		if _, err = refused.Read(head); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a denied client: %v", err)
		}
	}
	stats, err := r.Stats(t.Context())
	if c := stats.Services[denied.Key()]; err != nil || c.Denied != 1 {
		t.Errorf("counts %+v, %v", c, err)
	}
}

// clientLoop sends a service requests again and again, over connections that are kept open.
type clientLoop struct {
	done     context.CancelFunc
	wait     sync.WaitGroup
	requests atomic.Int64
	mu       sync.Mutex
	failed   []string
}

func startClientLoop(t *testing.T, ca *testcert.Authority, s lb.Service, url string) *clientLoop {
	ctx, cancel := context.WithCancel(context.Background())
	a := &clientLoop{done: cancel}
	for i := range 3 {
		c := client(t, ca, s)
		if i > 0 {
			c.Transport.(*http.Transport).DisableKeepAlives = true
		}
		a.wait.Go(func() {
			for clock.Sleep(ctx, 5*time.Millisecond) == nil {
				answer, text, err := get(c, url)
				if a.requests.Add(1); err != nil || answer.StatusCode != http.StatusOK {
					a.mu.Lock()
					a.failed = append(a.failed, fmt.Sprint(err, text))
					a.mu.Unlock()
				}
			}
		})
	}
	t.Cleanup(cancel)
	return a
}

// stop stops asking, and returns the failures.
func (a *clientLoop) stop() []string {
	a.done()
	a.wait.Wait()
	return a.failed
}

func TestChangesLoseNothing(t *testing.T) {
	t.Parallel()
	r, ca := newTestEngine(t), testcert.NewAuthority(t)
	certificate := filepath.Join(t.TempDir(), "a.pem")
	renewed := []([]byte){encoded(t, ca.Config(t, "a.test", time.Hour)),
		encoded(t, ca.Config(t, "a.test", 2*time.Hour))}
	renew := func(i int) {
		t.Helper()
		if err := os.WriteFile(certificate, renewed[i%2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	renew(0)
	backends := []lb.Backend{newBackend(t, "w1"), newBackend(t, "w2"), newBackend(t, "w3")}
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP, Certificates: []string{certificate},
		Routes: []lb.Route{{Paths: []string{"/a"}, Backends: []string{"w2"}}}}, backends[:2]...)
	r.apply(s)
	all := startClientLoop(t, ca, s, "https://a.test/")
	state := r.State()
	for i := range 20 {
		s.Backends = slices.Clone(backends) // added
		s.Backends[0].Weight = uint16(1 + i%5)
		r.apply(s)
		s.Backends = slices.Clone(s.Backends)
		s.Backends[0].Draining = true
		r.apply(s)
		s.Backends = s.Backends[:2] // removed
		r.apply(s)
		renew(i + 1)
		if err := r.RenewCertificates(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i == 0 && r.State().Reloads != state.Reloads {
			t.Errorf("servers and certificates were changed by %d reloads", r.State().Reloads-state.Reloads)
		}
		if i%4 != 0 {
			continue // a reload is dear in a test: 50 of them were tried
		}
		p := *s.Proxy
		p.Routes = []lb.Route{{Paths: []string{fmt.Sprintf("/%d", i)}, Backends: []string{"w2"}}}
		s.Proxy = &p
		r.apply(s)
		if _, text := mustGet(t, client(t, ca, s), fmt.Sprintf("https://a.test/%d", i)); !strings.HasPrefix(text,
			"w2") {
			t.Errorf("the new route leads to %q", text)
		}
	}
	answer, _ := mustGet(t, client(t, ca, s), "https://a.test/")
	if left := time.Until(answer.TLS.PeerCertificates[0].NotAfter); left > time.Hour {
		t.Errorf("the certificate is valid for %v: it is not the last", left)
	}
	if failed := all.stop(); len(failed) > 0 {
		t.Errorf("%d of %d requests failed, the first: %s", len(failed), all.requests.Load(), failed[0])
	}
	t.Logf("%d requests, %d reloads", all.requests.Load(), r.State().Reloads)
}

func TestKilledComesBack(t *testing.T) {
	t.Parallel()
	r := newTestEngine(t)
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP}, newBackend(t, "w1"))
	r.apply(s)
	c := client(t, nil, s)
	mustGet(t, c, "http://a.test/")
	before, err := r.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"master", "worker"} {
		state := r.State()
		workers := children(t, state.PID)
		victim := state.PID
		if who == "worker" {
			victim = workers[0].PID
		}
		killed := time.Now()
		if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, testenv.WaitLimit, "another HAProxy serves after the "+who+" was killed", func() bool {
			_, text, err := get(c, "http://a.test/")
			return err == nil && strings.HasPrefix(text, "w1") && r.State().PID != state.PID && r.State().PID != 0
		})
		t.Logf("back %v after the %s was killed", time.Since(killed).Round(time.Millisecond), who)
		testenv.Eventually(t, testenv.WaitLimit, "the killed HAProxy's workers are gone", func() bool {
			return !slices.ContainsFunc(workers, process.ID.IsRunning)
		})
	}
	after, err := r.Stats(t.Context())
	if a, b := after.Services[s.Key()], before.Services[s.Key()]; err != nil || a.Connections < b.Connections ||
		a.Requests <= b.Requests {
		t.Errorf("counts went from %+v to %+v, %v", b, a, err)
	}
}

// TestKilledWithoutRoom: servers that have changed since HAProxy's configuration could be written last are as they
// were asked for, also after HAProxy was killed and started with the older file; a change that needs another file is
// refused until there is room.
func TestKilledWithoutRoom(t *testing.T) {
	t.Parallel()
	disk := &testdisk.FileSystem{}
	r := &testEngine{t: t, dir: t.TempDir() + "/proxy",
		files: durable.New(durable.Options{FileSystem: disk, Fallback: &testdisk.Spare{}})}
	testenv.Root(t)
	testenv.Program(t, "haproxy")
	r.open()
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP}, newBackend(t, "w1"), newBackend(t, "w2"))
	r.apply(s)
	disk.Fail(&testdisk.Faults[0], 0)
	alone := s
	alone.Backends = s.Backends[1:]
	r.apply(alone)
	c := client(t, nil, s)
	onlySecond := func(when string) {
		t.Helper()
		for range 6 {
			if _, text, err := get(c, "http://a.test/"); err != nil || !strings.HasPrefix(text, "w2") {
				t.Errorf("%s, %q answers: %v", when, text, err)
			}
		}
	}
	onlySecond("without room")
	state := r.State()
	if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, testenv.WaitLimit, "another HAProxy serves", func() bool {
		_, _, err := get(c, "http://a.test/")
		return err == nil && r.State().PID != state.PID && r.State().PID != 0
	})
	onlySecond("killed")
	// Another process goes on with that, and may change servers.
	if err := r.Detach(); err != nil {
		t.Error(err)
	}
	r.open()
	r.apply(s)
	r.apply(alone)
	onlySecond("with another process")
	other := alone
	other.Proxy = &lb.Proxy{Speaks: lb.SpeaksHTTP, SecurityHeaders: true}
	if err := r.Apply(t.Context(), desired(other)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a change that needs a reload: %v", err)
	}
	onlySecond("after a change that was refused")
	disk.Fail(nil, 0)
	r.apply(other)
	if answer, _ := mustGet(t, client(t, nil, s), "http://a.test/"); answer.Header.Get("X-Content-Type-Options") == "" {
		t.Error("with room again, the change is not in force")
	}
}

// TestTemporaryFilesHaveNoRoom: the files that HAProxy is to judge are written beside its directory, and do not stay
// there.
func TestTemporaryFilesHaveNoRoom(t *testing.T) {
	r := newTestEngine(t)
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP}, newBackend(t, "w1"))
	t.Setenv("TMPDIR", "/proc/sys") // where no file can be made
	r.apply(s)
	mustGet(t, client(t, nil, s), "http://a.test/")
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(r.dir), "jeoul-proxy-*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v: %v", left, err)
	}
}

// TestChangeCutShortWithoutRoom: a process that ends in the middle of a change of servers, wherever, while the disk is
// full, is followed by one that has HAProxy finish it without a reload, which would need a file.
func TestChangeCutShortWithoutRoom(t *testing.T) {
	t.Parallel()
	disk := &testdisk.FileSystem{}
	r := &testEngine{t: t, dir: t.TempDir() + "/proxy",
		files: durable.New(durable.Options{FileSystem: disk, Fallback: &testdisk.Spare{}})}
	testenv.Root(t)
	testenv.Program(t, "haproxy")
	r.open()
	t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP}, newBackend(t, "w1"), newBackend(t, "w2"))
	r.apply(s)
	pid, commands := r.State().PID, 1
	for cut := 0; cut < commands; cut++ {
		next := s
		next.Backends = []lb.Backend{s.Backends[1], newBackend(t, "w3")}
		disk.Fail(&testdisk.Faults[0], 0)
		commands = interruptChange(t, r.Engine.(*engine), desired(next), cut)
		if err := r.Detach(); err != nil {
			t.Error(err)
		}
		r.open()
		r.apply(next)
		served := map[string]bool{}
		for range 6 {
			_, text := mustGet(t, client(t, nil, s), "http://a.test/")
			served[text[:2]] = true
		}
		if !served["w2"] || !served["w3"] || len(served) != 2 {
			t.Errorf("cut short after %d of %d commands, it ends at %v", cut, commands, served)
		}
		if now := r.State().PID; now != pid {
			t.Errorf("cut short after %d of %d commands, HAProxy is process %d, and was %d", cut, commands, now, pid)
		}
		disk.Fail(nil, 0)
		r.apply(s)
		pid = r.State().PID
	}
	if commands < 3 {
		t.Errorf("a server that comes and one that goes are %d commands", commands)
	}
}

// interruptChange has an engine begin a change of servers, and end after some commands of it. It returns how many there
// are.
func interruptChange(t *testing.T, e *engine, d Desired, after int) int {
	t.Helper()
	back, err := e.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer back()
	c, err := e.prepare(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	s, can := compareRenderings(e.running.Rendering, c.rendering, e.running.Draining)
	if !can {
		t.Fatal("the change needs a reload")
	}
	if err := errors.Join(e.markPending(c.rendering), e.runCommands(t.Context(), s.commands()[:after])); err != nil {
		t.Fatal(err)
	}
	return len(s.commands())
}

// children returns a process's.
func children(t *testing.T, pid int) (ids []process.ID) {
	t.Helper()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(list)) {
		var child int
		fmt.Sscan(field, &child)
		id, err := process.Of(child)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended since it was listed
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func TestAdoption(t *testing.T) {
	t.Parallel()
	r := newTestEngine(t)
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP}, newBackend(t, "w1"), newBackend(t, "w2"))
	r.apply(s)
	mustGet(t, client(t, nil, s), "http://a.test/")
	before := r.State()
	counted, err := r.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Detach(); err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(t.Context(), desired(s)); !errors.Is(err, ErrEnded) {
		t.Errorf("a change after Leave: %v", err)
	}
	r.open()
	r.apply(s)
	if after := r.State(); after.PID != before.PID || after.Reloads != before.Reloads ||
		!after.Started.Equal(before.Started) || after.Version != before.Version {
		t.Errorf("adopted as %+v, left as %+v", after, before)
	}
	s.Backends = s.Backends[:1]
	r.apply(s)
	if r.State().Reloads != before.Reloads {
		t.Error("a server left an adopted HAProxy by a reload")
	}
	again, err := r.Stats(t.Context())
	if a, b := again.Services[s.Key()], counted.Services[s.Key()]; err != nil || a.Requests < b.Requests ||
		a.Requests == 0 {
		t.Errorf("counts went from %+v to %+v, %v", b, a, err)
	}
	// A process that is killed notes nothing, and a file other than the applied one is not trusted.
	r.Engine.(*engine).unwatch()
	if err := os.WriteFile(filepath.Join(r.dir, "haproxy.cfg"), []byte("global\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.apply(s)
	if r.State().Reloads != before.Reloads+1 || r.State().PID != before.PID {
		t.Errorf("after the file was changed: %+v, before %+v", r.State(), before)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files after Stop: %v", err)
	}
	// It has ended, but there is a process until its parent has reaped it, which is the engine that started it.
	testenv.Eventually(t, testenv.WaitLimit, "HAProxy is gone after Stop", func() bool {
		return syscall.Kill(before.PID, 0) != nil
	})
}

func TestBadInputChangesNothing(t *testing.T) {
	t.Parallel()
	r, ca := newTestEngine(t), testcert.NewAuthority(t)
	good, expired := filepath.Join(t.TempDir(), "good.pem"), filepath.Join(t.TempDir(), "old.pem")
	writePEM(t, good, ca.Config(t, "a.test", time.Hour))
	writePEM(t, expired, ca.Config(t, "a.test", -time.Hour))
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP, Certificates: []string{good}}, newBackend(t, "w1"))
	r.apply(s)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		change      func(*lb.Service, *lb.Proxy)
		field, want string
		applyOnly   bool
	}{
		"a snippet that HAProxy refuses": {change: func(_ *lb.Service, p *lb.Proxy) {
			p.Frontend = "option httpclose\nno such thing"
		}, field: "proxy.frontend", want: "refuses the configuration"},
		"an expired certificate": {change: func(_ *lb.Service, p *lb.Proxy) {
			p.Certificates = []string{good, expired}
		}, field: "proxy.certificates[1]", want: "expired at"},
		"no certificate": {change: func(_ *lb.Service, p *lb.Proxy) {
			p.Certificates = []string{"/nowhere.pem"}
		}, field: "proxy.certificates[0]", want: "no such file"},
		"a port that is taken": {change: func(s *lb.Service, _ *lb.Proxy) {
			at := taken.Addr().(*net.TCPAddr).AddrPort()
			s.VIP, s.Port = at.Addr(), at.Port()
		}, want: "cannot bind", applyOnly: true},
	} {
		bad, p := s, *s.Proxy
		bad.Proxy = &p
		c.change(&bad, &p)
		for _, do := range []func(context.Context, Desired) error{r.Validate, r.Apply} {
			err := do(t.Context(), desired(bad))
			if c.applyOnly {
				c.applyOnly = false
				continue
			}
			var at *FieldError
			if !errors.As(err, &at) || at.Field != c.field || at.Service != bad.Key() ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v (%+v), want one about %s with %q", name, err, at, c.field, c.want)
			}
		}
		if _, text := mustGet(t, client(t, ca, s), "https://a.test/"); !strings.HasPrefix(text, "w1") {
			t.Errorf("after %s: %q", name, text)
		}
	}
	// A renewal that is no good: the one before is served, and the fault is reported.
	writePEM(t, good, ca.Config(t, "a.test", -time.Hour))
	if err := r.RenewCertificates(t.Context()); !errors.Is(err, ErrCertificate) || r.State().Problem == "" {
		t.Errorf("%v, state %+v", err, r.State())
	}
	mustGet(t, client(t, ca, s), "https://a.test/")
	r.apply()
	if state := r.State(); state.PID != 0 {
		t.Errorf("without services: %+v", state)
	}
}

func TestNoProgram(t *testing.T) {
	t.Parallel()
	engine, err := New(Options{Dir: t.TempDir() + "/proxy"})
	if err != nil {
		t.Fatal(err)
	}
	d := simple(lb.Proxy{})
	d.Engine.Program = "/nowhere/haproxy"
	var at *FieldError
	if err := engine.Validate(t.Context(), d); !errors.Is(err, ErrNoProgram) || !errors.As(err, &at) || !at.Engine ||
		at.Field != "program" {
		t.Errorf("%v", err)
	}
	if err := engine.Detach(); err != nil {
		t.Error(err)
	}
}

// TestRunsOnAsItsProgram: another configured program is used from the next start on, and not claimed before.
func TestRunsOnAsItsProgram(t *testing.T) {
	t.Parallel()
	r, other := newTestEngine(t), filepath.Join(t.TempDir(), "haproxy")
	if err := os.Symlink(testenv.Program(t, "haproxy"), other); err != nil {
		t.Fatal(err)
	}
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP}, newBackend(t, "w1"))
	r.apply(s)
	first := r.State()
	d := desired(s)
	d.Engine.Program = other
	for reloads := range 2 {
		r.applyDesired(d)
		state, saved := r.State(), r.Engine.(*engine).running.Program
		if state.PID != first.PID || state.Reloads != reloads || state.Program != first.Program ||
			saved != first.Program || !strings.Contains(state.Problem, "not as "+other) {
			t.Errorf("after %d reloads: %+v, saved %s", reloads, state, saved)
		}
		d.Engine.HardStop = time.Hour
	}
	r.apply()
	r.applyDesired(d)
	if state := r.State(); state.Program != other || state.Problem != "" {
		t.Errorf("started again: %+v", state)
	}
}

// TestDirectoryThatCannotBe: a balancer that has nothing for the engine starts wherever its state is, and one that has
// gets the reason for which it cannot be served there.
func TestDirectoryThatCannotBe(t *testing.T) {
	for dir, says := range map[string]string{
		"/" + strings.Repeat("a", maxDirName): "has more than 80 bytes",
		"/run/a (copy)":                       "must be absolute and of letters",
		"run":                                 "must be absolute",
	} {
		e, err := New(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Apply(t.Context(), Desired{}); err != nil {
			t.Errorf("%s, nothing to serve: %v", dir, err)
		}
		d := Desired{Services: []Service{{}}}
		for _, err := range []error{e.Validate(t.Context(), d), e.Apply(t.Context(), d)} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", dir, err, says)
			}
		}
		if err := e.Stop(t.Context()); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
