// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// proxied is a file with a service of mode proxy; more are its further lines, of which the first is line 7.
func proxied(more ...string) string {
	return "interface: eth0\nservices:\n  - name: web\n    vip: 192.0.2.100\n    port: 80\n    mode: proxy\n    " +
		strings.Join(append(more,
			"backends: [{name: web01, address: 192.0.2.1, port: 8080}, {name: web02, address: 192.0.2.1, port: 8081}, {name: web03, address: '2001:db8::3'}]"), "\n    ") + "\n"
}

func TestProxyUsual(t *testing.T) {
	cfg, err := Parse("f", []byte(proxied()))
	if err != nil {
		t.Fatal(err)
	}
	s := cfg.Services[0]
	if s.Mode != lb.ModeProxy || s.Proxy == nil || s.Scheduler != lb.WeightedRoundRobin || s.TableSize != 0 ||
		!s.Tracked() {
		t.Errorf("service %+v", s)
	}
	if diff := cmp.Diff([]string(nil), warningsOf(cfg)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	text, err := Write(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "scheduler") || strings.Contains(string(text), "proxy:") {
		t.Errorf("what holds anyway is written:\n%s", text)
	}
}

func warningsOf(cfg *Config) (lines []string) {
	for _, w := range cfg.Warnings {
		lines = append(lines, w.Error())
	}
	return lines
}

func TestProxyKeys(t *testing.T) {
	cfg, err := Parse("f", []byte(proxied(
		"proxy:", "  speaks: http", "  certificates: [/etc/ssl/a.pem, /etc/ssl/b.pem]", "  http2: false", "  routes:",
		"    - {hosts: [WWW.example.com], paths: [/api], backends: [web01]}",
		"    - {hosts: ['*.example.com'], backends: [web02, web01]}",
		"  forwarded_for: false", "  request_headers: ['X-A: b', 'x-gone:']", "  retries: 0",
		"  timeouts: {connect: 1s500ms, tunnel: 1h}",
		"  frontend: |", "    http-request deny if { path /x }", "    # more")))
	if err != nil {
		t.Fatal(err)
	}
	none := uint8(0)
	want := &lb.Proxy{Speaks: lb.SpeaksHTTP, Certificates: []string{"/etc/ssl/a.pem", "/etc/ssl/b.pem"}, NoHTTP2: true,
		Routes: []lb.Route{{Hosts: []string{"www.example.com"}, Paths: []string{"/api"},
			Backends: []string{"web01"}}, {Hosts: []string{"*.example.com"}, Backends: []string{"web02", "web01"}}},
		NoForwardedFor: true, RequestHeaders: []lb.Header{{Name: "X-A", Value: "b"}, {Name: "X-Gone"}}, Retries: &none,
		Timeouts: lb.ProxyTimeouts{Connect: 1500 * time.Millisecond, Tunnel: time.Hour},
		Frontend: "http-request deny if { path /x }\n# more"}
	if diff := cmp.Diff(want, cfg.Services[0].Proxy); diff != "" {
		t.Errorf("proxy (-want +got):\n%s", diff)
	}
}

func TestProxyProblems(t *testing.T) {
	http := func(more ...string) []string {
		lines := []string{"proxy:", "  speaks: http"}
		for _, line := range more {
			lines = append(lines, "  "+line)
		}
		return lines
	}
	tests := map[string]struct {
		lines []string
		want  string
	}{
		"udp": {[]string{"protocol: udp"},
			"f:7: services[0].protocol: the mode proxy ends connections, and udp has none; write another mode, such as nat"},
		"dscp": {[]string{"dscp: 5"},
			"f:7: services[0].dscp: only the mode dscp has one, and this service has proxy; remove the line"},
		"mss": {[]string{"mss: 1400"},
			"f:7: services[0].mss: the mode proxy has none: the proxy's connections are the kernel's, which sets it by the route; remove the line"},
		"hairpin": {[]string{"hairpin: false"},
			"f:7: services[0].hairpin: only the mode nat needs it, and this service has proxy; remove the line"},
		"untranslated": {[]string{"untranslated: [10.0.0.0/8]"},
			"f:7: services[0].untranslated: only the mode nat takes whatever its backends send from their ports for replies, and this service has proxy; remove the line"},
		"table": {[]string{"table_size: 1021"},
			"f:7: services[0].table_size: the mode proxy has none: the proxy has no hash table; remove the line"},
		"maglev": {[]string{"scheduler: maglev"},
			"f:7: services[0].scheduler: the mode proxy has no maglev; remove the line for wrr, or write sh, which sends a client to one backend"},
		"hash": {[]string{"hash: source"},
			"f:7: services[0].hash: the mode proxy has none: its schedulers go by none that can be chosen; remove the line"},
		"check": {[]string{"check: {type: tcp, via: vip}"},
			"f:7: services[0].check.via: in the mode proxy the backends do not have the VIP, and what is sent to it reaches them under their own addresses; remove the line"},
		"tcp": {[]string{"proxy: {cookie: A}"},
			"f:7: services[0].proxy.cookie: acts on requests, and the proxy passes bytes on without understanding them (speaks: tcp); write speaks: http, or remove it"},
		"ca": {[]string{"proxy: {backend_ca: /ca}"},
			"f:7: services[0].proxy.backend_ca: nothing is verified against it; write backend_tls: verify, or remove the line"},
		"http2": {http("http2: true"),
			"f:9: services[0].proxy.http2: HTTP/2 is offered over TLS, and the service is without; add certificates, or remove the line"},
		"redirect": {http("redirect_tls: true", "certificates: [/a]"),
			"f:9: services[0].proxy.redirect_tls: the service has certificates, so its requests come over TLS already; redirect in a service of port 80, and remove the line here"},
		"speaks": {[]string{"proxy: {speaks: spdy}"},
			`f:7: services[0].proxy.speaks: unknown protocol of a proxy "spdy": use one of tcp, http`},
		"version": {[]string{"proxy: {send_proxy: 3}"},
			`f:7: services[0].proxy.send_proxy: "3" is not a whole number from 1 to 2`},
		"relative": {[]string{"proxy: {certificates: [a.pem]}"},
			`f:7: services[0].proxy.certificates[0]: "a.pem" is not an absolute path; write one such as /etc/ssl/ca.pem`},
		"host": {http("routes: [{hosts: ['http://a'], backends: [web01]}]"),
			`f:9: services[0].proxy.routes[0].hosts[0]: "http://a" is not a host, without scheme and port; write one such as www.example.com, or *.example.com for all below it`},
		"path": {http("routes: [{paths: [/a/], backends: [web01]}]"),
			`f:9: services[0].proxy.routes[0].paths[0]: "/a/" ends with a slash, and a path is compared up to one: write /a`},
		"backend": {http("routes: [{paths: [/a], backends: [web01, web09]}]"),
			`f:9: services[0].proxy.routes[0].backends[1]: web has no backend "web09"; name one of its backends`},
		"no backend": {http("routes: [{paths: [/a]}]"), "f:9: services[0].proxy.routes[0].backends: missing; add it"},
		"same route": {http("routes:", "  - {hosts: [a, b], paths: [/x], backends: [web01]}",
			"  - {hosts: [b], paths: [/y, /x], backends: [web02]}"),
			"f:11: services[0].proxy.routes[1]: b/x is the earlier route's already (services[0].proxy.routes[0] (line 10)); name it in one of the two"},
		"hidden route": {http("routes:", "  - {hosts: ['*.a'], backends: [web01]}",
			"  - {hosts: [b.a], paths: [/y], backends: [web02]}"),
			"f:11: services[0].proxy.routes[1]: no request for b.a/y gets here: the earlier route takes all of them (services[0].proxy.routes[0] (line 10)); write this one before it"},
		"lower": {[]string{"limits: {refuse: reset}"},
			"f:7: services[0].limits.refuse: the mode proxy has none: what is beyond a limit of the proxy waits in the kernel's queue; remove the line"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f", []byte(proxied(test.lines...)))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestProxyElsewhere: other modes have none of it.
func TestProxyElsewhere(t *testing.T) {
	_, err := Parse("f", []byte(services(line("a", "192.0.2.101", 1, "mode: nat, proxy: {speaks: http}"))))
	if want := "f:3: services[0].proxy: only the mode proxy has it, and this service has nat; remove it, or write mode: proxy"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestRoutesCover: a route after another that leaves it something is none that is refused.
func TestRoutesCover(t *testing.T) {
	for _, test := range []struct {
		have, want pair
		covers     bool
	}{
		{pair{}, pair{"a", "/b"}, true},
		{pair{"", "/"}, pair{"a", ""}, true},
		{pair{"", "/b"}, pair{"a", "/b/c"}, true},
		{pair{"", "/b"}, pair{"a", "/bc"}, false},
		{pair{"", "/b"}, pair{"a", ""}, false},
		{pair{"*.a", ""}, pair{"b.a", ""}, true},
		{pair{"*.a", ""}, pair{"*.b.a", ""}, true},
		{pair{"*.a", ""}, pair{"a", ""}, false},
		{pair{"*.a", ""}, pair{"ba", ""}, false},
		{pair{"b.a", ""}, pair{"*.a", ""}, false},
		{pair{"a", ""}, pair{"", ""}, false},
	} {
		if got := test.have.covers(test.want); got != test.covers {
			t.Errorf("%v covers %v: %t", test.have, test.want, got)
		}
	}
}
