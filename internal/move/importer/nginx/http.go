// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

const noKey = "no key is like it; where it is needed, proxy.frontend and proxy.backend take lines of HAProxy's"

// http makes services in mode proxy from the servers of the module http, one for each address and port.
func (r *reader) http(n *node) {
	if r.Mode != "" && r.Mode != lb.ModeProxy {
		r.leave(n, "balances requests, which mode proxy does: leave --mode out")
		return
	}
	h := &reader{Draft: r.Draft, upstreams: map[string]*upstream{}, requests: true}
	h.Carry(n.at)
	for _, c := range n.children {
		if c.words[0] == "upstream" {
			h.upstream(c)
		}
	}
	var webs []*web
	var places []*place
	for _, c := range n.children {
		switch c.words[0] {
		case "upstream", "allow", "deny":
		case "server":
			w := h.web(c, n)
			webs, places = append(webs, w), h.listensAll(places, w)
		default:
			h.httpDirective(c)
		}
	}
	for _, p := range places {
		h.serve(p, places)
	}
	for _, w := range webs {
		if !w.served {
			h.leave(w.node, cmp.Or(w.why, "no address that it listens on could be carried over"))
		}
	}
	for _, u := range h.all {
		if !u.used {
			h.leave(u.node, "no server that is carried over passes requests to it")
		}
	}
	if child("client_max_body_size", n) == nil && slices.ContainsFunc(webs, func(w *web) bool { return w.served }) {
		h.Approximate(n.at,
			"nginx refuses requests whose body is larger than client_max_body_size (1m where it is not written), and Jeoul bounds no body")
	}
}

// guards are directives that refuse or answer requests and have no counterpart. Without them, a server would serve
// requests that it must not, or send them elsewhere.
var guards = []string{"auth_basic", "auth_request", "auth_jwt", "auth_delay", "internal", "limit_except",
	"ssl_verify_client", "satisfy", "limit_req", "limit_conn", "valid_referers", "secure_link",
	"if", "rewrite", "try_files", "access_by_lua_block", "access_by_lua_file", "content_by_lua_block",
	"content_by_lua_file", "rewrite_by_lua_block", "rewrite_by_lua_file", "js_content",
	"perl", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass", "proxy_method", "modsecurity",
	"stub_status", "dav_methods", "mp4", "flv", "empty_gif", "random_index"}

// guarded returns a directive in a block, or in its inner blocks, that refuses or answers requests, or nil. With inner,
// deny is such a directive as well, because it then applies to only some of the server's requests.
func guarded(n *node, inner bool) *node {
	for _, c := range n.children {
		if slices.Contains(guards, c.words[0]) && c.word(1) != "off" || inner && c.words[0] == "deny" {
			return c
		}
		if c.words[0] == "location" && errorPage(n, c) {
			continue
		}
		if found := guarded(c, true); found != nil {
			return found
		}
	}
	return nil
}

// errorPage reports whether a location serves a server's error page.
func errorPage(server, location *node) bool {
	if location.word(1) != "=" {
		return false
	}
	return slices.ContainsFunc(server.children, func(c *node) bool {
		return c.words[0] == "error_page" && c.words[len(c.words)-1] == location.word(2)
	})
}

// web reads a server of the module http.
func (r *reader) web(n, http *node) *web {
	w := &web{node: n, http: http}
	guard := guarded(n, false)
	for _, c := range http.children {
		if guard == nil && slices.Contains(guards, c.words[0]) && c.word(1) != "off" {
			guard = c
		}
	}
	var bad *node
	if w.rules, bad = r.clients(n, http); bad != nil {
		guard = bad
	}
	r.answer(w)
	for _, c := range n.children {
		if c.words[0] == "server_name" {
			r.hosts(w, c)
		}
	}
	switch {
	case guard != nil:
		w.why = fmt.Sprintf(
			"`%s` at %s refuses requests, or answers them, which Jeoul does not; keep nginx in front of these backends",
			guard.words[0], guard.at)
		return w
	case w.answer == "" && w.why == "" && child("location", n) == nil:
		w.why = "answers requests itself"
	}
	r.Carry(n.at)
	for _, c := range n.children {
		r.webDirective(w, c)
	}
	slices.SortStableFunc(w.locations, func(a, b location) int { return cmp.Compare(len(b.path), len(a.path)) })
	if n := len(w.locations); w.why == "" && w.answer == "" && (n == 0 || w.locations[n-1].path != "/") {
		w.why = "answers requests for other paths than those of its locations itself"
	}
	return w
}

// webDirective reads a directive of a server.
func (r *reader) webDirective(w *web, c *node) {
	switch name := c.words[0]; {
	case name == "listen", name == "allow", name == "deny": // read elsewhere
	case name == "server_name":
		r.Carry(c.at)
	case name == "location" && w.answer != "":
		r.needless(c, "the server answers each request before it looks at locations")
	case name == "location" && errorPage(w.node, c):
		r.leave(c, "the page by which nginx answers errors: Jeoul has its own, and sends requests for it to the backends")
	case name == "location":
		if why := r.location(w, c); why != "" && w.why == "" {
			w.why = fmt.Sprintf("the location at %s %s", c.at, why)
		}
	case name == "return", name == "ssl_reject_handshake": // read by answer
	case name == "error_page":
		r.Left(c.at, "Jeoul answers errors by pages of its own")
	case name == "ssl_certificate_key":
		if certificate := child("ssl_certificate", w.node); certificate != nil && certificate.word(1) != c.word(1) {
			r.Left(c.at, "Jeoul takes a certificate and its key from one file: join them by `cat CERTIFICATE KEY > FILE`, and name FILE under certificates")
		}
		r.Carry(c.at)
	default:
		r.httpDirective(c)
	}
}

// hosts reads the names of a server.
func (r *reader) hosts(w *web, c *node) {
	for _, host := range c.words[1:] {
		switch below, dot := strings.CutPrefix(strings.ToLower(host), "."); {
		case dot:
			w.names = append(w.names, below, "*."+below)
		case host == "_", host == "":
		case strings.HasPrefix(host, "~"), strings.HasSuffix(host, "*"), strings.Contains(host, "$"):
			w.names = append(w.names, host)
			w.why = cmp.Or(w.why, fmt.Sprintf("goes by %s at %s, and routes go by whole names and by all below one",
				host, c.at))
		default:
			w.names = append(w.names, strings.ToLower(host))
		}
	}
}

// location reads a location. It returns the reason if the location cannot be carried over.
func (r *reader) location(w *web, c *node) string {
	prefix, exact := c.word(len(c.words)-1), c.word(1) == "="
	pass := child("proxy_pass", c)
	switch {
	case strings.HasPrefix(c.word(1), "@"):
		r.leave(c, "gets requests from error_page and try_files alone")
		return ""
	case len(c.words) > 2 && !exact && c.word(1) != "^~" || !strings.HasPrefix(prefix, "/"):
		return "goes by an expression, and routes go by the beginning of a path"
	case pass == nil || child("return", c) != nil:
		return "answers requests itself, and passes them to no upstream"
	case child("location", c) != nil:
		return "has locations within it"
	case exact && strings.Trim(prefix, "/") == "" && !passesRest(w.node, pass):
		return "is of the path / alone, and routes go by the beginning of a path"
	}
	one := location{at: c.at, node: c, path: "/" + strings.Trim(prefix, "/")}
	if why := r.passes(&one, pass); why != "" {
		return why
	}
	switch {
	case exact:
		r.Approximate(c.at, "becomes the path and all below it")
	case prefix != "/":
		r.Approximate(c.at,
			"paths are compared up to a slash: %s is it and all below it, and nothing else that begins so", one.path)
	}
	r.Carry(c.at)
	if !setsHost(c) && !setsHost(w.node) && !setsHost(w.http) {
		r.Approximate(pass.at, "backends get the Host that the client sent, in place of the upstream's name")
	}
	for _, inner := range c.children {
		r.httpDirective(inner)
	}
	w.locations = append(w.locations, one)
	return ""
}

// passesRest reports whether a server's location / passes requests to the same place.
func passesRest(server, pass *node) bool {
	return slices.ContainsFunc(server.children, func(c *node) bool {
		if c.words[0] != "location" || c.word(1) == "=" || c.words[len(c.words)-1] != "/" {
			return false
		}
		rest := child("proxy_pass", c)
		return rest != nil && rest.word(1) == pass.word(1)
	})
}

// setsHost and setsProto report whether a block sets a request header.
func setsHost(n *node) bool  { return sets(n, "Host") }
func setsProto(n *node) bool { return sets(n, "X-Forwarded-Proto") }

func sets(n *node, header string) bool {
	return slices.ContainsFunc(n.children, func(c *node) bool {
		return c.words[0] == "proxy_set_header" && strings.EqualFold(c.word(1), header)
	})
}

// passes reads proxy_pass. It returns the reason if it cannot be carried over.
func (r *reader) passes(one *location, pass *node) string {
	scheme, rest, _ := strings.Cut(pass.word(1), "://")
	name, uri, slash := strings.Cut(rest, "/")
	switch {
	case scheme != "http" && scheme != "https" || strings.Contains(rest, "$"):
		return "passes requests to no upstream that stays the same"
	case slash && (uri != "" || one.path != "/"):
		return "changes the path by proxy_pass, which Jeoul does not"
	}
	one.tls = scheme == "https"
	if one.to = r.upstreams[name]; one.to == nil {
		b := lb.Backend{Weight: 1}
		if host, port := draft.SplitPort(name); port == "" {
			name = netJoin(host, one.tls)
		}
		if err := r.place(&b, name); err != nil {
			return err.Error()
		}
		one.to = &upstream{node: pass, scheduler: lb.WeightedRoundRobin, backends: []lb.Backend{b},
			lines: []remark.At{pass.at}}
	}
	one.to.used = true
	r.Carry(one.to.node.at, pass.at)
	return ""
}

// netJoin appends the default port of the scheme to a host.
func netJoin(host string, tls bool) string {
	port := "80"
	if tls {
		port = "443"
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}

// httpDirective carries over a directive that serve reads, and remarks on others.
func (r *reader) httpDirective(c *node) {
	switch name := c.words[0]; {
	case name == "proxy_pass", name == "ssl_certificate", name == "proxy_connect_timeout", name == "proxy_read_timeout",
		name == "client_header_timeout",
		name == "keepalive_timeout", name == "http2":
		r.Carry(c.at)
	case name == "proxy_set_header" && knownHeader(c):
		r.Carry(c.at)
	case name == "proxy_send_timeout":
		r.Approximate(c.at,
			"a silence of the backend and one towards it are bounded by one time, that of proxy_read_timeout")
	case name == "proxy_redirect" && (c.word(1) == "off" || c.word(1) == "default"):
		r.Approximate(c.at, "Location of an answer stays as the backend wrote it")
	case name == "access_log", name == "error_log":
		r.leave(c, "Jeoul logs no requests; it counts them: `jeoul status`, and metrics")
	default:
		if why, needless := Keywords.Why(inHTTP, name); needless {
			r.needless(c, why)
			return
		}
		r.leave(c, noKey)
	}
}

// knownHeader reports whether mode proxy sets a header to the same value, or can be configured to.
func knownHeader(c *node) bool {
	switch strings.ToLower(c.word(1)) {
	case "host":
		return c.word(2) == "$host" || c.word(2) == "$http_host"
	case "x-forwarded-for":
		return c.word(2) == "$proxy_add_x_forwarded_for" || c.word(2) == "$remote_addr"
	case "x-forwarded-proto":
		return c.word(2) == "$scheme"
	case "upgrade", "connection":
		return true
	}
	return false
}

// listensAll adds a server to the addresses that it listens on.
func (r *reader) listensAll(places []*place, w *web) []*place {
	listens := 0
	for _, c := range w.node.children {
		if c.words[0] == "listen" {
			places, listens = r.listensAt(places, w, c), listens+1
		}
	}
	if listens == 0 { // nginx's default when root starts it
		places = r.listensAt(places, w, &node{at: w.node.at, words: []string{"listen", "80"}})
	}
	return places
}

// listenFlags are parameters of listen that serve and listens read.
var listenFlags = []string{"default_server", "default", "ssl", "http2", "spdy", "proxy_protocol", "quic"}

// listensAt adds a server to the addresses of a listen directive.
func (r *reader) listensAt(places []*place, w *web, c *node) []*place {
	ats, err := r.listens(c, lb.TCP)
	if err != nil {
		r.Left(c.at, "%v", err)
		return places
	}
	for _, word := range c.words[min(2, len(c.words)):] {
		if !slices.Contains(listenFlags, word) {
			r.listenParameter(c, word)
		}
	}
	for _, at := range ats {
		i := slices.IndexFunc(places, func(p *place) bool { return p.vip == at })
		if i < 0 {
			i = len(places)
			places = append(places, &place{at: c.at, vip: at, listen: c})
		}
		p := places[i]
		p.tls = p.tls || slices.Contains(c.words, "ssl")
		if slices.Contains(c.words, "proxy_protocol") || slices.Contains(c.words, "quic") {
			p.why = "clients come by the PROXY protocol or QUIC; write accept_proxy by hand, and QUIC is not served"
		}
		if slices.Contains(c.words, "default_server") || slices.Contains(c.words, "default") {
			p.webs = slices.Insert(p.webs, 0, w) // the first one gets requests that match no name
		} else {
			p.webs = append(p.webs, w)
		}
	}
	r.Carry(c.at)
	return places
}

// whyNot returns the reason why no service can be made from an address, or "".
func (p *place) whyNot() string {
	if p.why != "" {
		return p.why
	}
	for i, w := range p.webs {
		if w.why != "" && (i == 0 || len(w.names) > 0) {
			return fmt.Sprintf(
				"the server at %s, which listens here, cannot be carried over, and its requests would go to others: %s",
				w.node.at, w.why)
		}
		if !slices.EqualFunc(w.rules, p.webs[0].rules, sameRule) {
			return fmt.Sprintf("the server at %s serves other clients than the one at %s, and a service has one list",
				w.node.at, p.webs[0].node.at)
		}
	}
	return ""
}

func sameRule(a, b draft.Rule) bool {
	return slices.Equal(a.Networks, b.Networks) && a.Others == b.Others && a.Serve == b.Serve
}

// serve makes the service of an address.
func (r *reader) serve(p *place, all []*place) {
	if why := p.whyNot(); why != "" {
		r.Forget(p.at)
		r.Left(p.at, "%s", why)
		return
	}
	first := r.main(p, all)
	if first == nil {
		r.Forget(p.at)
		r.Left(p.at, "no server here passes requests to an upstream")
		return
	}
	s := r.NewService(p.at)
	s.VIP, s.Port, s.Mode = p.vip.Addr(), p.vip.Port(), lb.ModeProxy
	s.Scheduler = first.to.scheduler
	s.SlowStart = min(first.to.slowStart, time.Hour)
	s.Proxy = &lb.Proxy{Speaks: lb.SpeaksHTTP}
	var noClients bool
	if s.Allow, s.Deny, noClients = draft.Access(s.VIP, p.webs[0].rules); noClients {
		s.Unsafe = noClient
	} else if len(s.Allow)+len(s.Deny) > 0 {
		r.Approximate(p.at, "connections of clients that are not served are closed, in place of an answer of 403")
	}
	r.settle(s, p, first)
	names := map[*upstream][]string{}
	r.route(s, p, first, names)
	r.join(s, names, first.to)
	if len(names) == 1 && s.Proxy.Frontend == "" { // all requests go to the same backends
		s.Proxy.Routes, s.RouteAt = nil, nil
	}
	evenly(s)
}

// names returns the server names at an address in nginx's order of precedence: exact names, then wildcards, longest
// first, and then the default server.
func (p *place) names() (list []name) {
	taken := map[string]bool{}
	for _, w := range p.webs {
		for _, host := range w.names {
			if !taken[host] {
				list = append(list, name{host, w})
			}
			taken[host] = true
		}
	}
	slices.SortStableFunc(list, func(a, b name) int {
		below := func(n name) int {
			if strings.HasPrefix(n.host, "*.") {
				return 1 + 1<<16 - len(n.host)
			}
			return 0
		}
		return cmp.Compare(below(a), below(b))
	})
	return append(list, name{"", p.webs[0]})
}

// route makes the routes of an address, and the rules for servers with a fixed answer.
func (r *reader) route(s *draft.Service, p *place, first *location, names map[*upstream][]string) {
	list := p.names()
	for _, w := range p.webs {
		if w.served = true; w != p.webs[0] && len(w.names) == 0 {
			r.Needless(w.node.at, "gets no request: it has no name, and is not the first at %s", p.vip)
		}
	}
	// Consecutive names of one server become one route. The first server's names need no route, unless a wildcard of
	// another server would take their requests.
	for i := 0; i < len(list); {
		n := i + 1
		for n < len(list) && list[n].of == list[i].of && list[n].host != "" && len(list[i].host) > 0 {
			n++
		}
		var hosts []string
		for _, one := range list[i:n] {
			if one.host != "" {
				hosts = append(hosts, one.host)
			}
		}
		if w := list[i].of; w.answer == "" && (w != p.webs[0] || hosts == nil || belowAnother(hosts, list[n:])) {
			r.routesOf(s, w, hosts, first, names)
		}
		i = n
	}
	r.answers(s, p, list)
}

// belowAnother reports whether one of the hosts matches a wildcard in later.
func belowAnother(hosts []string, later []name) bool {
	return slices.ContainsFunc(later, func(n name) bool {
		below, all := strings.CutPrefix(n.host, "*")
		return all && slices.ContainsFunc(hosts, func(h string) bool { return strings.HasSuffix(h, below) })
	})
}

// routesOf makes the routes of a server for some of its names.
func (r *reader) routesOf(s *draft.Service, w *web, hosts []string, first *location, names map[*upstream][]string) {
	for _, one := range w.locations {
		if one.tls != first.tls {
			s.Unsafe = fmt.Sprintf(
				"backends of the location at %s are spoken to by TLS and others are not, or the reverse; a service speaks to all alike", one.at)
		}
		for some := range slices.Chunk(append(slices.Clone(hosts), "")[:max(len(hosts), 1)], mostHosts) {
			route := lb.Route{Backends: slices.Clone(r.join(s, names, one.to))}
			if some[0] != "" {
				route.Hosts = slices.Clone(some)
			}
			if one.path != "/" {
				route.Paths = []string{one.path}
			}
			s.AddRoute(one.at, route)
		}
		r.alike(first, one)
	}
}

// mostHosts is the maximum number of hosts in a route.
const mostHosts = 100

// alike remarks on settings of a location that differ from those of the service's main location.
func (r *reader) alike(first *location, one location) {
	if one.to.scheduler != first.to.scheduler {
		r.Approximate(one.to.node.at, "all backends of a service are balanced alike, and here as those of %s", first.at)
	}
	for _, name := range []string{"proxy_connect_timeout", "proxy_read_timeout"} {
		if c := child(name, one.node); c != nil && c != child(name, first.node) {
			r.Left(c.at, "times are of all of a service, and those of the location at %s count", first.at)
		}
	}
}

// main returns the location whose upstream determines a service's balancing. It is of the first server with locations
// or, at an address that only redirects to TLS, of a server at another address.
func (r *reader) main(p *place, all []*place) *location {
	for _, w := range p.webs {
		if len(w.locations) > 0 {
			return &w.locations[len(w.locations)-1]
		}
	}
	for _, other := range all {
		for _, w := range other.webs {
			if other.tls && len(w.locations) > 0 {
				r.Approximate(p.at, "a service has backends: those of the server at %s, which get no request here",
					w.node.at)
				return &w.locations[len(w.locations)-1]
			}
		}
	}
	return nil
}

// join adds the backends of an upstream to a service, without duplicates, and returns their names.
func (r *reader) join(s *draft.Service, names map[*upstream][]string, u *upstream) []string {
	if have, done := names[u]; done {
		return have
	}
	places := map[netip.AddrPort]string{}
	for _, b := range s.Backends {
		places[netip.AddrPortFrom(b.Address, b.Port)] = b.Name
	}
	weights := map[netip.AddrPort]uint16{}
	for _, b := range s.Backends {
		weights[netip.AddrPortFrom(b.Address, b.Port)] = b.Weight
	}
	for j, b := range u.backends {
		at := netip.AddrPortFrom(b.Address, b.Port)
		if places[at] == "" {
			b.Name = draft.Name(fmt.Sprintf("%s-%d", b.Address, b.Port))
			places[at] = b.Name
			s.Add(u.lines[j], b)
		} else if weight, other := weights[at]; other && weight != b.Weight {
			r.Approximate(u.lines[j], "a backend has one weight in a service, and here %d", weight)
		}
		names[u] = append(names[u], places[at])
	}
	if names[u] == nil {
		names[u] = []string{}
	}
	return names[u]
}

// settle sets the service's settings that come from its servers and not from their upstreams.
func (r *reader) settle(s *draft.Service, p *place, first *location) {
	proxy := s.Proxy
	redirects := 0
	for _, w := range p.webs {
		if w.redirect {
			redirects++
		}
		if file := child("ssl_certificate", w.node, w.http); p.tls && file != nil {
			if text := file.word(1); path.IsAbs(text) && !slices.Contains(proxy.Certificates, text) {
				proxy.Certificates = append(proxy.Certificates, text)
			} else if !path.IsAbs(text) {
				r.Left(file.at, "not an absolute path; name the file under certificates")
			}
		}
	}
	proxy.RedirectTLS = redirects == len(p.webs) && !p.tls
	blocks := []*node{first.node, p.webs[0].node, p.webs[0].http}
	proxy.NoHTTP2 = p.tls && len(proxy.Certificates) > 0 && !slices.Contains(p.listen.words, "http2") &&
		!on(child("http2", blocks...))
	proxy.NoForwardedFor = true
	for _, c := range slices.Concat(first.node.children, p.webs[0].node.children, p.webs[0].http.children) {
		if c.words[0] == "proxy_set_header" && strings.EqualFold(c.word(1), "X-Forwarded-For") && knownHeader(c) {
			proxy.NoForwardedFor = false
			if !setsProto(first.node) && !setsProto(p.webs[0].node) && !setsProto(p.webs[0].http) {
				r.Approximate(c.at, "each request gets X-Forwarded-Proto, too")
			}
		}
	}
	for name, into := range map[string]*time.Duration{"proxy_connect_timeout": &proxy.Timeouts.Connect,
		"proxy_read_timeout":    &proxy.Timeouts.Server,
		"client_header_timeout": &proxy.Timeouts.Request, "keepalive_timeout": &proxy.Timeouts.KeepAlive} {
		if c := child(name, blocks...); c != nil {
			if d, err := draft.Time(c.word(1), time.Second); err == nil && d >= time.Millisecond {
				*into = min(d, 24*time.Hour).Truncate(time.Millisecond)
			} else {
				r.Left(c.at, "no length of time that Jeoul has")
			}
		}
	}
	if first.tls {
		proxy.BackendTLS = lb.BackendTLSUnverified
		r.Approximate(first.at,
			"certificates of backends are not verified, as nginx does where proxy_ssl_verify does not say so; backend_tls: verify does")
	}
	if p.tls && len(proxy.Certificates) == 0 {
		r.Left(p.at, "ends TLS without a certificate that could be carried over")
		s.Backends, s.Proxy = nil, &lb.Proxy{}
		r.Services = slices.DeleteFunc(r.Services, func(have *draft.Service) bool { return have == s })
	}
}
