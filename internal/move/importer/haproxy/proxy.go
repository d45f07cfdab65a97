// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// asProxy reports whether a listening section speaks HTTP and becomes services in mode proxy.
func (r *reader) asProxy(s *section) bool {
	return (r.Mode == "" || r.Mode == lb.ModeProxy) && !r.HTTPAsTCP && (s.http() || s.main.http())
}

// needsEngine reports whether the services of a section need mode proxy: those that speak HTTP, terminate TLS, use TLS
// to servers, or use the PROXY protocol.
func (r *reader) needsEngine(s *section) bool {
	switch {
	case r.Mode != "":
		return r.Mode == lb.ModeProxy
	case r.asProxy(s):
		return true
	case s.http():
		return false
	}
	if slices.ContainsFunc(s.lines, func(l line) bool {
		return l.is("bind") && (slices.Contains(l.words, "ssl") || slices.Contains(l.words, "accept-proxy"))
	}) {
		return true
	}
	first := slices.IndexFunc(s.main.lines, func(l line) bool { return l.is("server") && len(l.words) > 2 })
	if first < 0 {
		return false
	}
	// The parameters of default-server are read later, with the settings.
	words := s.main.lines[first].words[3:]
	for _, l := range s.main.all() {
		if l.is("default-server") {
			words = slices.Concat(l.words[1:], words)
		}
	}
	var one server
	return one.parse(words) == nil && (one.ssl || one.sendProxy > 0)
}

// whyNotProxy returns the reason why a section cannot become services in mode proxy, or "".
func (r *reader) whyNotProxy(s, to *section) string {
	if s.misroutes != "" {
		return s.misroutes
	}
	switch {
	case to == nil && slices.ContainsFunc(s.lines, func(l line) bool { return l.is("stats") }):
		return "is HAProxy's page of statistics; see `jeoul status`, and metrics"
	case to == nil:
		return "has no backend"
	case to == s && !slices.ContainsFunc(s.lines, func(l line) bool {
		return l.is("server") || l.is("server-template")
	}):
		return "has no server, but HAProxy's own pages; see `jeoul status`, and metrics"
	}
	return ""
}

// borrowServers gives a section without servers the servers of another one, if its routes have some, or if the section
// only redirects clients to TLS.
func (r *reader) borrowServers(s *section) {
	if s.main != nil {
		return
	}
	if s.unserved = len(s.routes) > 0; s.unserved {
		s.main = s.routes[0].to
		return
	}
	if !slices.ContainsFunc(s.all(), func(l line) bool { return redirectsTLS(s, l) }) {
		return
	}
	for _, other := range r.sections {
		if other != s && other.listens() && other.http() && slices.ContainsFunc(other.lines, func(l line) bool {
			return l.is("bind") && slices.Contains(l.words, "ssl")
		}) {
			if s.main = r.target(other); s.main != nil {
				r.Approximate(s.at, "a service has backends: those of %s, which get no request here", other.name)
				return
			}
		}
	}
}

// proxy puts a service in mode proxy.
func (r *reader) proxy(service *draft.Service, s *section, l line, front, back settings) {
	p := &lb.Proxy{Speaks: lb.SpeaksTCP, Timeouts: front.requests.clientTimes(back.requests)}
	service.Mode, service.Proxy, service.MSS = lb.ModeProxy, p, 0
	p.Certificates, p.AcceptProxy = r.certificates(l), slices.Contains(l.words, "accept-proxy")
	p.Retries, p.Frontend, p.Back = back.requests.retries, front.requests.front, back.requests.back
	if !s.http() && !s.main.http() {
		p.Timeouts.Request, p.Timeouts.KeepAlive = 0, 0
		p.Frontend, p.Back = withoutHTTP(p.Frontend), withoutHTTP(p.Back)
		return
	}
	p.Speaks = lb.SpeaksHTTP
	p.NoForwardedFor = !front.requests.forward && !back.requests.forward
	p.NoHTTP2 = len(p.Certificates) > 0 && noHTTP2(l)
	p.RedirectTLS = (front.requests.redirect || back.requests.redirect) && len(p.Certificates) == 0
	p.SecurityHeaders = front.requests.security || back.requests.security
	p.Cookie = back.requests.cookie
	p.RequestHeaders = headersOf(front.requests.request, back.requests.request)
	p.ResponseHeaders = headersOf(front.requests.response, back.requests.response)
}

// withoutHTTP returns the lines without those for HTTP only: defaults may have both.
func withoutHTTP(lines string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(lines, "\n"), func(text string) bool {
		words := strings.Fields(text)
		return len(words) > 1 && (strings.HasPrefix(words[0], "http-") || words[0] == "compression" ||
			words[0] == "monitor-uri" || words[0] == "redirect" ||
			words[0] == "option" && slices.Contains(httpOptions, words[1]))
	}), "\n")
}

// headersOf returns the headers of two sections without duplicates.
func headersOf(lists ...[]lb.Header) (all []lb.Header) {
	for _, h := range slices.Concat(lists...) {
		if !slices.Contains(all, h) && len(all) < mostHeaders {
			all = append(all, h)
		}
	}
	return all
}

// toServers sets the protocols that a service speaks to its backends, from one of its servers.
func toServers(service *draft.Service, one server) {
	service.Proxy.SendProxy = one.sendProxy
	switch {
	case !one.ssl:
	case one.verify:
		service.Proxy.BackendTLS, service.Proxy.BackendCA = lb.BackendTLSVerified, one.ca
	default:
		service.Proxy.BackendTLS = lb.BackendTLSUnverified
	}
}

// routes adds a service's routes to other sections. main has the backends' names of the section for all other requests.
func (r *reader) routes(service *draft.Service, s *section, main []string) {
	if len(s.routes) == 0 {
		return
	}
	names := map[*section][]string{s.main: main}
	for _, route := range s.routes {
		if _, have := names[route.to]; !have {
			names[route.to] = r.more(service, s, route.to)
		}
		for _, when := range route.when {
			when.Backends = slices.Clone(names[route.to])
			service.AddRoute(route.at, when)
		}
	}
	if s.unserved {
		service.RefuseUnrouted("http-request deny deny_status 503")
		return
	}
	rest := s.at
	for _, l := range s.all() {
		if l.is("default_backend") || l.is("use_backend") && len(l.words) == 2 && !strings.Contains(l.words[1], "%[") {
			rest = l.at
		}
	}
	service.AddRoute(rest, lb.Route{Backends: main})
}

// more adds the servers of another section to a service. They share the service's balancing and checks.
func (r *reader) more(service *draft.Service, s, to *section) []string {
	back := to.effective()
	list := r.serversOf(to, back)
	main := map[string]bool{}
	for _, l := range s.main.all() {
		main[strings.Join(l.words, " ")] = true
	}
	for _, l := range to.lines {
		if slices.Contains(common, l.words[0]) && !main[strings.Join(l.words, " ")] {
			r.Left(l.at, "all backends of a service are balanced, asked and kept alike, and here as in the section at %s", s.main.at)
		}
	}
	if len(s.main.servers) > 0 && len(list) > 0 && !list[0].like(s.main.servers[0]) {
		for _, one := range list {
			r.Left(one.at, "is spoken to in another way than %s; a service speaks to all its backends alike",
				s.main.servers[0].name)
		}
		return nil
	}
	return r.backends(service, to.name, back, list)
}

// common are lines that apply to all backends of a service.
var common = []string{"balance", "cookie", "option", "timeout", "retries", "stick", "stick-table", "http-check",
	"tcp-check"}

// joiner adds servers to a service in mode proxy. There an address and port is one backend, and names are unique.
type joiner struct {
	names  map[string]int
	places map[netip.AddrPort]string
}

func newJoiner(service *draft.Service) *joiner {
	j := &joiner{map[string]int{}, map[netip.AddrPort]string{}}
	for _, b := range service.Backends {
		j.names[b.Name], j.places[netip.AddrPortFrom(b.Address, b.Port)] = 1, b.Name
	}
	return j
}

// join gives a backend a unique name; false: a backend with its address and port exists, and its name is returned.
func (j *joiner) join(section string, b *lb.Backend) (string, bool) {
	at := netip.AddrPortFrom(b.Address, b.Port)
	if name, have := j.places[at]; have {
		return name, false
	}
	name := draft.Name(b.Name)
	if j.names[name] > 0 {
		name = draft.Name(section + "-" + name)
	}
	for base := name; j.names[name] > 0; name = fmt.Sprintf("%s-%d", base, j.names[base]) {
		j.names[base]++
	}
	j.names[name], j.places[at], b.Name = 1, name, name
	return name, true
}
