// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// defaultScheduler is the scheduler of a service that names none. The proxy has no Maglev.
func defaultScheduler(m lb.Mode) lb.Scheduler {
	if m.Proxied() {
		return lb.WeightedRoundRobin
	}
	return lb.Maglev
}

// checkProxy looks at a service of mode proxy, and refuses a proxy's keys in other modes.
func (p *parser) checkProxy(i int) {
	s := &p.cfg.Services[i]
	if p.Bad(ServiceField(i, "mode")) {
		return
	}
	if !s.Mode.Proxied() {
		if field := ServiceField(i, "proxy"); p.Written(field) {
			p.Fail(field, "only the mode %s has it, and this service has %s; remove it, or write mode: %s",
				lb.ModeProxy, s.Mode, lb.ModeProxy)
		}
		s.Proxy = nil
		return
	}
	if s.Proxy == nil {
		s.Proxy = &lb.Proxy{}
	}
	if field := ServiceField(i, "protocol"); s.Protocol != lb.TCP && !p.Bad(field) {
		p.Fail(field, "the mode %s ends connections, and %s has none; write another mode, such as %s", s.Mode,
			s.Protocol, lb.NAT)
	}
	p.refusePacketKeys(i)
	p.checkProxyTLS(i)
	p.checkProxyHTTP(i)
	p.checkRoutes(i)
}

// packetKeys are the keys of a service that act on packets, and why a proxy has none.
var packetKeys = []struct{ name, why string }{
	{"mss", "the proxy's connections are the kernel's, which sets it by the route"},
	{"hash", "its schedulers go by none that can be chosen"},
	{"table_size", "the proxy has no hash table"},
	{"persistence.group", "the proxy remembers the clients of each service alone"},
	{"limits.burst", "the proxy counts whole seconds"},
	{"limits.refuse", "what is beyond a limit of the proxy waits in the kernel's queue"},
}

// refusePacketKeys refuses keys that have no effect in mode proxy.
func (p *parser) refusePacketKeys(i int) {
	s := &p.cfg.Services[i]
	for _, key := range packetKeys {
		if field := ServiceField(i, key.name); p.Written(field) && !p.Bad(field) {
			p.Fail(field, "the mode %s has none: %s; remove the line", s.Mode, key.why)
		}
	}
	for j, b := range s.Backends {
		if b.Lower != 0 && !p.hasProblem(i, j, "lower") {
			p.Fail(BackendField(i, j, "lower"),
				"the mode %s has none: a full backend takes connections again as soon as it has fewer than upper; remove it", s.Mode)
		}
	}
	field := ServiceField(i, "scheduler")
	switch {
	case !p.Written(field):
		s.Scheduler = defaultScheduler(s.Mode)
	case s.Scheduler == lb.Maglev && !p.Bad(field):
		p.Fail(field, "the mode %s has no %s; remove the line for %s, or write %s, which sends a client to one backend",
			s.Mode, s.Scheduler, defaultScheduler(s.Mode), lb.SourceHash)
	}
}

// proxyField returns the path of a key of a service's proxy.
func proxyField(i int, name string) string {
	return yamlfile.Join(ServiceField(i, "proxy"), name)
}

// checkProxyTLS refuses keys that need TLS in a service without it.
func (p *parser) checkProxyTLS(i int) {
	proxy, field := p.cfg.Services[i].Proxy, func(name string) string { return proxyField(i, name) }
	if p.Bad(field("certificates")) {
		return
	}
	if p.Written(field("http2")) && len(proxy.Certificates) == 0 {
		p.Fail(field("http2"),
			"HTTP/2 is offered over TLS, and the service is without; add certificates, or remove the line")
	}
	if proxy.RedirectTLS && len(proxy.Certificates) > 0 {
		p.Fail(field("redirect_tls"),
			"the service has certificates, so its requests come over TLS already; redirect in a service of port 80, and remove the line here")
	}
	if proxy.BackendCA != "" && proxy.BackendTLS != lb.BackendTLSVerified && !p.Bad(field("backend_tls")) {
		p.Fail(field("backend_ca"), "nothing is verified against it; write backend_tls: %s, or remove the line",
			lb.BackendTLSVerified)
	}
}

// needHTTP are the keys of a proxy that act on requests.
var needHTTP = []string{"http2", "routes", "forwarded_for", "security_headers", "request_headers", "response_headers",
	"redirect_tls", "cookie",
	"timeouts.request", "timeouts.keep_alive"}

// checkProxyHTTP refuses keys that need HTTP in a service without it.
func (p *parser) checkProxyHTTP(i int) {
	if p.cfg.Services[i].Proxy.Speaks == lb.SpeaksHTTP || p.Bad(proxyField(i, "speaks")) {
		return
	}
	for _, name := range needHTTP {
		if field := proxyField(i, name); p.Written(field) && !p.Bad(field) {
			p.Fail(field,
				"acts on requests, and the proxy passes bytes on without understanding them (speaks: %s); write speaks: %s, or remove it", lb.SpeaksTCP, lb.SpeaksHTTP)
		}
	}
}

// checkRoutes checks routes against the backends, and against each other.
func (p *parser) checkRoutes(i int) {
	s := &p.cfg.Services[i]
	names := map[string]bool{}
	for _, b := range s.Backends {
		names[b.Name] = true
	}
	for k, r := range s.Proxy.Routes {
		at := yamlfile.Element(proxyField(i, "routes"), k)
		if !s.Discovery.On() { // which may find it
			for n, name := range r.Backends {
				if name != "" && !names[name] {
					p.Fail(yamlfile.Element(yamlfile.Join(at, "backends"), n),
						"%s has no backend %s; name one of its backends", s.Name, yamlfile.Quote(name))
				}
			}
		}
		p.checkReached(at, s.Proxy.Routes[:k], r, func(k int) string {
			return yamlfile.Element(proxyField(i, "routes"), k)
		})
	}
}

// pair is a host and a path of a route; empty stands for any.
type pair struct{ host, path string }

// pairs returns all pairs of a route.
func pairs(r lb.Route) (all []pair) {
	for _, host := range orAny(r.Hosts) {
		for _, path := range orAny(r.Paths) {
			all = append(all, pair{host, path})
		}
	}
	return all
}

func orAny(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

// checkReached refuses a route that earlier routes shadow, completely or for one of its hosts and paths.
func (p *parser) checkReached(at string, before []lb.Route, r lb.Route, place func(int) string) {
	if slices.Contains(r.Hosts, "") || slices.Contains(r.Paths, "") { // refused by itself
		return
	}
	for _, want := range pairs(r) {
		for k, earlier := range before {
			if !slices.ContainsFunc(pairs(earlier), func(have pair) bool { return have.covers(want) }) {
				continue
			}
			if equal := slices.Contains(pairs(earlier), want); equal {
				p.Fail(at, "%s is the earlier route's already (%s); name it in one of the two", want, p.Place(place(k)))
			} else {
				p.Fail(at, "no request for %s gets here: the earlier route takes all of them (%s); write this one before it", want, p.Place(place(k)))
			}
			return
		}
	}
}

// covers reports whether every request that fits the other fits this one.
func (h pair) covers(o pair) bool { return coversHost(h.host, o.host) && coversPath(h.path, o.path) }

func coversHost(have, want string) bool {
	below, all := strings.CutPrefix(have, "*")
	return have == "" || have == want || all && strings.HasSuffix(want, below)
}

func coversPath(have, want string) bool {
	return have == "" || have == "/" || have == want || strings.HasPrefix(want, have+"/")
}

// String describes the requests that match.
func (h pair) String() string { return cmp.Or(h.host, "any host") + cmp.Or(h.path, "/") }
