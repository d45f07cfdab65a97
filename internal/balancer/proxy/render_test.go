// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/snippet"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is the host of golden files.
var golden = Host{Dir: "/run/jeoul/eth0/proxy", Root: true, NonlocalBind: true}

func TestRenderGolden(t *testing.T) {
	t.Parallel()
	retries := uint8(1)
	for name, d := range map[string]Desired{
		"tcp": {Services: []Service{{Service: lb.Service{Name: "db", VIP: netip.MustParseAddr("2001:db8::1"), Port: 5432,
			Protocol: lb.TCP, Mode: lb.ModeProxy,
			Scheduler: lb.WeightedLeastConnections, Persistence: lb.Persistence{Timeout: time.Hour, Prefix: 64},
			Limits: lb.Limits{Connections: 500, Rate: 100}, MSS: 1400,
			Allow: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")},
			Deny:  []netip.Prefix{netip.MustParsePrefix("2001:db8:bad::/48")},
			Proxy: &lb.Proxy{SendProxy: 2, Retries: &retries, Timeouts: lb.ProxyTimeouts{Connect: time.Second}},
			Backends: []lb.Backend{
				{Name: "db1", Address: netip.MustParseAddr("2001:db8::11"), Port: 5432, Weight: 1000, Upper: 100},
				{Name: "db2", Address: netip.MustParseAddr("2001:db8::12"), Port: 5432, Weight: 500, Draining: true},
				{Name: "db3", Address: netip.MustParseAddr("2001:db8::13"), Port: 5432, Weight: 1},
				{Name: "db4", Address: netip.MustParseAddr("2001:db8::14"), Port: 5432, Weight: 1, Backup: true},
			}}, Observed: lb.Observations{2: {Unhealthy: "does not answer"}, 3: {Standby: true}}}}},
		"http": {Engine: lb.ProxyEngine{Threads: 4, CPUMap: []string{"auto:1/1-4 0-3"}, Connections: 10000, User: "web",
			Global: "log 127.0.0.1:514 local0\n"},
			Services: []Service{{Service: lb.Service{Name: "web", VIP: netip.MustParseAddr("192.0.2.1"), Port: 443,
				Protocol: lb.TCP, Mode: lb.ModeProxy, Scheduler: lb.Maglev,
				Proxy: &lb.Proxy{Speaks: lb.SpeaksHTTP, Certificates: []string{"/etc/a.pem", "/etc/b c.pem"},
					SecurityHeaders: true, RedirectTLS: true,
					Cookie: "srv", BackendTLS: lb.BackendTLSVerified, AcceptProxy: true,
					RequestHeaders:  []lb.Header{{Name: "X-From", Value: "100% it's # \"me\""}, {Name: "Proxy"}},
					ResponseHeaders: []lb.Header{{Name: "Server"}},
					Routes: []lb.Route{{Hosts: []string{"api.example.com", "*.api.example.com"},
						Paths: []string{"/v1", "/static/"}, Backends: []string{"w2"}},
						{Paths: []string{"/"}, Backends: []string{"w1", "w2"}}},
					Frontend: "http-request deny if { path /secret }\n", Back: "# nothing\noption abortonclose"},
				Backends: []lb.Backend{
					{Name: "w1", Address: netip.MustParseAddr("198.51.100.1"), Port: 8443, Weight: 1},
					{Name: "w2", Address: netip.MustParseAddr("198.51.100.2"), Port: 8443, Weight: 3},
				}}}}},
		"failover": {Services: []Service{{Service: lb.Service{Name: "web\nglobal", VIP: netip.MustParseAddr("192.0.2.1"),
			Port: 80, Protocol: lb.TCP, Scheduler: lb.Failover,
			Backends: []lb.Backend{
				{Name: "w1", Address: netip.MustParseAddr("198.51.100.1"), Port: 80, Weight: 1},
				{Name: "w2", Address: netip.MustParseAddr("198.51.100.2"), Port: 80, Weight: 3},
			}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Render(d, golden)
			if err != nil {
				t.Fatal(err)
			}
			got := r.String()
			for _, path := range sortedKeys(r.Files) {
				got += "\n# " + path + "\n" + r.Files[path]
			}
			path := filepath.Join("testdata", name+".cfg")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (- want, + got):\n%s", path, diff)
			}
		})
	}
}

// simple is a service with a proxy of one's own.
func simple(p lb.Proxy) Desired {
	return Desired{Services: []Service{{Service: lb.Service{Name: "web", VIP: netip.MustParseAddr("192.0.2.1"), Port: 80,
		Protocol: lb.TCP, Mode: lb.ModeProxy,
		Scheduler: lb.RoundRobin, Proxy: &p,
		Backends: []lb.Backend{{Name: "w1", Address: netip.MustParseAddr("198.51.100.1"), Port: 80, Weight: 1}}}}}}
}

// TestOwnAuthorities: with the operator's authorities no name is sent to backends, whose certificates may have any.
// Without the parameter, HAProxy 3.3 and newer would send that of the Host header, and verify the certificate by it.
func TestOwnAuthorities(t *testing.T) {
	t.Parallel()
	for speaks, want := range map[lb.Speaks]string{lb.SpeaksHTTP: " sni var(txn.jeoul_no_name)", lb.SpeaksTCP: ""} {
		r, err := Render(simple(lb.Proxy{Speaks: speaks, BackendTLS: lb.BackendTLSVerified, BackendCA: "/etc/ca.pem"}),
			golden)
		if err != nil {
			t.Fatal(err)
		}
		want = " ssl verify required ca-file " + golden.authorities("/etc/ca.pem") + want + " weight 1\n"
		if !strings.Contains(r.String(), want) {
			t.Errorf("%s: no server has %q in\n%s", speaks, want, r.String())
		}
	}
}

// TestRouteWithoutBackend: a route may name backends that are not there, since discovery has not found them.
func TestRouteWithoutBackend(t *testing.T) {
	t.Parallel()
	r, err := Render(simple(lb.Proxy{Speaks: lb.SpeaksHTTP, Routes: []lb.Route{
		{Paths: []string{"/a"}, Backends: []string{"gone", "w1"}}, {Paths: []string{"/b"}, Backends: []string{"gone"}},
	}}), golden)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, b := range r.Blocks {
		if b.Pool != "" {
			got[b.Pool] = len(b.Servers)
		}
	}
	want := map[string]int{"192.0.2.1_80.route0": 1, "192.0.2.1_80.route1": 0, "192.0.2.1_80.all": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("servers of the sections (- want, + got):\n%s", diff)
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	http := lb.SpeaksHTTP
	engine := func(e lb.ProxyEngine) Desired { d := simple(lb.Proxy{}); d.Engine = e; return d }
	for name, c := range map[string]struct {
		d     Desired
		field string
		err   error
	}{
		"newline in a header": {simple(lb.Proxy{Speaks: http,
			RequestHeaders: []lb.Header{{Name: "A", Value: "b\nfrontend x"}}}), "proxy.request_headers[0]", ErrValue},
		"space in its name": {simple(lb.Proxy{Speaks: http, ResponseHeaders: []lb.Header{{Name: "A b", Value: "c"}}}),
			"proxy.response_headers[0]", ErrValue},
		"cookie": {simple(lb.Proxy{Speaks: http, Cookie: "a b"}), "proxy.cookie", ErrValue},
		"host": {simple(lb.Proxy{Speaks: http,
			Routes: []lb.Route{{Hosts: []string{"a", "b:80"}, Backends: []string{"w1"}}}}),
			"proxy.routes[0].hosts[1]", ErrValue},
		"path": {simple(lb.Proxy{Speaks: http,
			Routes: []lb.Route{{Paths: []string{"api"}, Backends: []string{"w1"}}}}),
			"proxy.routes[0].paths[0]", ErrValue},
		"routes of TCP": {simple(lb.Proxy{Routes: []lb.Route{{Backends: []string{"w1"}}}}), "proxy.routes", nil},
		"certificate": {simple(lb.Proxy{Certificates: []string{"a.pem"}}), "proxy.certificates[0]",
			ErrCertificate},
		"section": {simple(lb.Proxy{Frontend: "option dontlognull\n  backend x"}), "proxy.frontend",
			ErrSnippet},
		"quoted section": {simple(lb.Proxy{Back: `"back"end x`}), "proxy.back", ErrSnippet},
		"condition":      {simple(lb.Proxy{Back: ".if 1"}), "proxy.back", ErrSnippet},
		"end of line":    {simple(lb.Proxy{Back: `option \`}), "proxy.back", ErrSnippet},
		"a key's":        {engine(lb.ProxyEngine{Global: "nbthread 4"}), "global", ErrSnippet},
		"Jeoul's":        {engine(lb.ProxyEngine{Global: "daemon"}), "global", ErrSnippet},
		"one address": {Desired{Services: append(simple(lb.Proxy{}).Services, simple(lb.Proxy{}).Services...)},
			"", nil},
		"user": {engine(lb.ProxyEngine{User: "a\nb"}), "user", ErrValue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Render(c.d, golden)
			var at *FieldError
			if !errors.As(err, &at) || at.Field != c.field || c.err != nil && !errors.Is(err, c.err) {
				t.Fatalf("%v (%+v), want one about %s that is %v", err, at, c.field, c.err)
			}
			if at.Engine == (at.Service != lb.ServiceKey{}) {
				t.Errorf("the error is about engine %v and service %v", at.Engine, at.Service)
			}
		})
	}
}

// wordsOf splits a line by the rules of the configuration manual, section 2.2: the test's own reading of them.
func wordsOf(t *testing.T, text string) (words []string) {
	t.Helper()
	var word strings.Builder
	within, single, double := false, false, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case single && c != '\'':
			word.WriteByte(c)
		case c == '\'' && !double:
			single, within = !single, true
		case c == '"':
			double, within = !double, true
		case c == '\\':
			i++
			word.WriteByte(text[i])
			within = true
		case c == '$':
			t.Fatalf("a variable in %q", text)
		case !double && c == '#':
			i = len(text)
		case !double && (c == ' ' || c == '\t'):
			if within {
				words = append(words, word.String())
				word.Reset()
				within = false
			}
		default:
			word.WriteByte(c)
			within = true
		}
	}
	if within {
		words = append(words, word.String())
	}
	return words
}

// FuzzValues puts values everywhere where a configuration can have one: the file has as many lines as with harmless
// ones, and each value is one word, as it was.
func FuzzValues(f *testing.F) {
	for _, v := range []string{"a b", "a\nglobal", "it's", `"`, `\`, "#", "$HOME", "${x}", "%[src]", "", "a\r", "é",
		"-f", "if", "}", "'; x"} {
		f.Add(v)
	}
	desired := func(value string) Desired {
		d := simple(lb.Proxy{Speaks: lb.SpeaksHTTP, Certificates: []string{"/a.pem"}, BackendTLS: lb.BackendTLSVerified,
			BackendCA:      "/" + value,
			RequestHeaders: []lb.Header{{Name: "A", Value: "x" + value}},
			Routes:         []lb.Route{{Paths: []string{"/" + value}, Backends: []string{"w1"}}}})
		d.Services[0].Name = value
		return d
	}
	plain, err := Render(desired("v"), golden)
	if err != nil {
		f.Fatal(err)
	}
	lines := strings.Count(plain.String(), "\n")
	f.Fuzz(func(t *testing.T, value string) {
		if value == "" || strings.HasSuffix(value, "/") {
			return // a path of it makes one line less
		}
		r, err := Render(desired(value), golden)
		if err != nil {
			return
		}
		text := r.String()
		if n := strings.Count(text, "\n"); n != lines {
			t.Fatalf("%d lines, and %d with a harmless value:\n%s", n, lines, text)
		}
		found := map[string]bool{}
		for line := range strings.Lines(text) {
			for _, w := range wordsOf(t, strings.TrimSuffix(line, "\n")) {
				found[w] = true
			}
		}
		for _, want := range []string{"/" + value, "/" + value + "/", "x" + strings.ReplaceAll(value, "%", "%%")} {
			if !found[want] {
				t.Errorf("no word %q in\n%s", want, text)
			}
		}
	})
}

// FuzzSnippet: an accepted snippet begins no section, however it is written.
func FuzzSnippet(f *testing.F) {
	for _, v := range []string{"option x", "a\nglobal", "\tfrontend x", `b\ackend x`, "'listen' x", "a \\\n",
		"x\rglobal", "\u00a0global", "global#x", `#"0`} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		r, err := Render(simple(lb.Proxy{Back: lines}), golden)
		if err != nil {
			return
		}
		begun := 0
		for line := range strings.Lines(r.String()) {
			first, _, _ := strings.Cut(strings.Trim(line, " \t\n"), " ")
			first, _, _ = strings.Cut(first, "\t")
			if strings.HasPrefix(first, "#") {
				continue
			}
			for _, s := range snippet.Sections {
				if first == s || strings.HasPrefix(first, s+"#") {
					begun++
				}
			}
			if strings.ContainsAny(first, `'"\`) {
				t.Errorf("a first word that hides something: %q", line)
			}
		}
		if begun != 3 { // global, the clients', the backends'
			t.Errorf("%d sections in\n%s", begun, r.String())
		}
	})
}
