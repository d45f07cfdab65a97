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

	"github.com/jeoul/jeoul/internal/importer/draft"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/remark"
)

const noKey = "no key is like it; where it is needed, proxy.frontend and proxy.backend take lines of HAProxy's"

// web is a server of the module http.
type web struct {
	node, http *node
	names      []string
	locations  []location
	redirect   bool
}

// location is where a server passes requests to by the beginning of their path.
type location struct {
	at   remark.At
	node *node
	path string
	to   *upstream
	tls  bool
}

// place is an address that servers listen on.
type place struct {
	at   remark.At
	vip  netip.AddrPort
	tls  bool
	webs []*web
	// listen has the words of the first of its lines.
	listen *node
}

// http makes services of mode proxy of the servers of the module http: one for each address and port.
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
	var places []*place
	for _, c := range n.children {
		switch c.words[0] {
		case "upstream":
		case "server":
			places = h.web(places, c, n)
		default:
			h.httpDirective(c)
		}
	}
	for _, p := range places {
		h.serve(p, places)
	}
	for _, u := range h.all {
		if !u.used {
			h.leave(u.node, "no server that is carried over passes requests to it")
		}
	}
}

// guards are directives without which a server would serve what it must not.
var guards = []string{"auth_basic", "auth_request", "auth_jwt", "deny", "internal", "limit_except", "ssl_verify_client", "satisfy"}

// guarded returns a directive of a block, or of those in it, that keeps requests out, or nil.
func guarded(n *node) *node {
	for _, c := range n.children {
		if slices.Contains(guards, c.words[0]) && c.word(1) != "off" {
			return c
		}
		if found := guarded(c); found != nil {
			return found
		}
	}
	return nil
}

// web reads a server, and notes it at the addresses that it listens on.
func (r *reader) web(places []*place, n, http *node) []*place {
	w := &web{node: n, http: http}
	guard := guarded(n)
	for _, c := range http.children {
		if guard == nil && slices.Contains(guards, c.words[0]) && c.word(1) != "off" {
			guard = c
		}
	}
	if guard != nil {
		r.leave(n, fmt.Sprintf("`%s` at %s keeps requests out, which Jeoul does not; keep nginx in front of these backends", guard.words[0], guard.at))
		return places
	}
	r.Carry(n.at)
	for _, c := range n.children {
		r.webDirective(w, c)
	}
	slices.SortStableFunc(w.locations, func(a, b location) int { return cmp.Compare(len(b.path), len(a.path)) })
	if len(w.locations) == 0 && !w.redirect {
		r.Left(n.at, "passes requests to no upstream that could be carried over")
		return places
	}
	for _, c := range n.children {
		if c.words[0] == "listen" {
			places = r.listensAt(places, w, c)
		}
	}
	if child("listen", n) == nil {
		r.Left(n.at, "listens nowhere")
	}
	return places
}

// webDirective reads a directive of a server.
func (r *reader) webDirective(w *web, c *node) {
	switch name := c.words[0]; {
	case name == "listen": // by listensAt
	case name == "server_name":
		for _, host := range c.words[1:] {
			switch below, dot := strings.CutPrefix(host, "."); {
			case dot:
				w.names = append(w.names, below, "*."+below)
			case host == "_", host == "":
			case strings.HasPrefix(host, "~"), strings.HasSuffix(host, "*"):
				r.Left(c.at, "routes go by whole names and by all below one, not by %s", host)
			default:
				w.names = append(w.names, strings.ToLower(host))
			}
		}
		r.Carry(c.at)
	case name == "location":
		r.location(w, c)
	case name == "return" && (c.word(1) == "301" || c.word(1) == "302" || c.word(1) == "308") && strings.HasPrefix(c.word(2), "https://$"):
		w.redirect = true
		if c.word(1) != "301" {
			r.Approximate(c.at, "clients are sent to TLS by 301")
		}
		r.Carry(c.at)
	case name == "ssl_certificate_key":
		if certificate := child("ssl_certificate", w.node); certificate != nil && certificate.word(1) != c.word(1) {
			r.Left(c.at, "Jeoul takes a certificate and its key from one file: join them by `cat CERTIFICATE KEY > FILE`, and name FILE under certificates")
		}
		r.Carry(c.at)
	default:
		r.httpDirective(c)
	}
}

// location reads where requests of a path go.
func (r *reader) location(w *web, c *node) {
	prefix, exact := c.word(len(c.words)-1), c.word(1) == "="
	pass := child("proxy_pass", c)
	switch {
	case len(c.words) > 2 && !exact && c.word(1) != "^~" || !strings.HasPrefix(prefix, "/"):
		r.leave(c, "routes go by the beginning of a path; these requests go to the backends of other locations")
		return
	case pass == nil:
		r.leave(c, "passes requests to no upstream; they go to the backends of other locations")
		return
	}
	one := location{at: c.at, node: c, path: "/" + strings.Trim(prefix, "/")}
	if why := r.passes(&one, pass); why != "" {
		r.leave(c, why)
		return
	}
	if prefix != "/" {
		r.Approximate(c.at, "paths are compared up to a slash: %s is it and all below it", one.path)
	}
	r.Carry(c.at)
	if !setsHost(c) && !setsHost(w.node) && !setsHost(w.http) {
		r.Approximate(pass.at, "backends get the Host that the client sent, in place of the upstream's name")
	}
	for _, inner := range c.children {
		r.httpDirective(inner)
	}
	w.locations = append(w.locations, one)
}

func setsHost(n *node) bool {
	return slices.ContainsFunc(n.children, func(c *node) bool { return c.words[0] == "proxy_set_header" && strings.EqualFold(c.word(1), "Host") })
}

// passes reads proxy_pass, or says why it cannot be had.
func (r *reader) passes(one *location, pass *node) string {
	scheme, rest, _ := strings.Cut(pass.word(1), "://")
	name, uri, slash := strings.Cut(rest, "/")
	switch {
	case scheme != "http" && scheme != "https" || strings.Contains(rest, "$"):
		return "proxy_pass names no upstream that stays the same"
	case slash && (uri != "" || one.path != "/"):
		return "proxy_pass changes the path, which Jeoul does not; these requests go to the backends of other locations"
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
		one.to = &upstream{node: pass, scheduler: lb.WeightedRoundRobin, backends: []lb.Backend{b}, lines: []remark.At{pass.at}}
	}
	one.to.used = true
	r.Carry(one.to.node.at, pass.at)
	return ""
}

// netJoin gives a host the port of its scheme.
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

// httpDirective speaks of a directive that serve reads, or that has no like.
func (r *reader) httpDirective(c *node) {
	switch name := c.words[0]; {
	case name == "proxy_pass", name == "ssl_certificate", name == "proxy_connect_timeout", name == "proxy_read_timeout", name == "client_header_timeout",
		name == "keepalive_timeout", name == "http2":
		r.Carry(c.at)
	case name == "proxy_set_header" && knownHeader(c):
		r.Carry(c.at)
	case name == "proxy_http_version", name == "proxy_send_timeout", name == "proxy_buffering", name == "proxy_buffers", name == "proxy_buffer_size", name == "proxy_redirect",
		name == "sendfile", name == "tcp_nopush", name == "tcp_nodelay", name == "types", name == "default_type", name == "types_hash_max_size",
		name == "server_tokens", name == "ssl_session_cache", name == "ssl_session_timeout", name == "proxy_cache_bypass", name == "server_names_hash_bucket_size":
		r.needless(c, "is of nginx's own connections, files and pages")
	case name == "access_log", name == "error_log", name == "log_format":
		r.leave(c, "Jeoul logs no requests; it counts them: `jeoul status`, and metrics")
	default:
		r.leave(c, noKey)
	}
}

// knownHeader says whether what a header is set to is what mode proxy does, or asks for.
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

// listensAt notes a server at an address.
func (r *reader) listensAt(places []*place, w *web, c *node) []*place {
	if slices.Contains(c.words, "proxy_protocol") || slices.Contains(c.words, "quic") {
		r.Left(c.at, "clients come by the PROXY protocol or QUIC; write accept_proxy by hand, and QUIC is not served")
		return places
	}
	vip, port, err := r.listens(c.word(1), lb.TCP)
	if err != nil {
		r.Left(c.at, "%v", err)
		return places
	}
	at := netip.AddrPortFrom(vip, port)
	i := slices.IndexFunc(places, func(p *place) bool { return p.vip == at })
	if i < 0 {
		i = len(places)
		places = append(places, &place{at: c.at, vip: at, listen: c})
	}
	p := places[i]
	p.tls = p.tls || slices.Contains(c.words, "ssl")
	if slices.Contains(c.words, "default_server") {
		p.webs = slices.Insert(p.webs, 0, w) // the first gets what no name fits
	} else {
		p.webs = append(p.webs, w)
	}
	r.Carry(c.at)
	return places
}

// serve makes the service of an address.
func (r *reader) serve(p *place, all []*place) {
	first := r.main(p, all)
	if first == nil {
		r.Left(p.at, "no server here passes requests to an upstream")
		return
	}
	s := r.NewService(p.at)
	s.VIP, s.Port, s.Mode = p.vip.Addr(), p.vip.Port(), lb.ModeProxy
	s.Scheduler = first.to.scheduler
	s.SlowStart = min(first.to.slowStart, time.Hour)
	s.Proxy = &lb.Proxy{Speaks: lb.SpeaksHTTP}
	r.settle(s, p, first)
	names := map[*upstream][]string{}
	for _, w := range slices.Concat(p.webs[1:], p.webs[:1]) {
		hosts := w.names
		if w == p.webs[0] {
			hosts = nil
		} else if len(hosts) == 0 {
			r.Left(w.node.at, "gets no request: it has no name, and is not the first at %s", p.vip)
			continue
		}
		for _, one := range w.locations {
			if one.tls != first.tls {
				r.Left(one.at, "a service speaks to all its backends alike, by TLS or without")
				continue
			}
			route := lb.Route{Hosts: slices.Clone(hosts), Backends: r.join(s, names, one.to)}
			if one.path != "/" {
				route.Paths = []string{one.path}
			}
			s.AddRoute(one.at, route)
			r.alike(first, one)
		}
		if n := len(w.locations); n > 0 && w.locations[n-1].path != "/" {
			r.Approximate(w.node.at, "requests for other paths are answered by nginx itself; here they go to one of all backends")
		}
	}
	r.join(s, names, first.to)
	if len(names) == 1 { // all requests go to the same backends
		s.Proxy.Routes, s.RouteAt = nil, nil
	}
	if !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Weight != s.Backends[0].Weight }) && s.Scheduler == lb.WeightedRoundRobin {
		s.Scheduler = lb.RoundRobin
	}
}

// alike remarks on what a location has in another way than the one that a service goes by.
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

// main is the location whose upstream says how a service balances: the first that has some, or where a place does no more
// than to send clients to TLS, that of another.
func (r *reader) main(p *place, all []*place) *location {
	for _, w := range p.webs {
		if len(w.locations) > 0 {
			return &w.locations[len(w.locations)-1]
		}
	}
	for _, other := range all {
		for _, w := range other.webs {
			if other.tls && len(w.locations) > 0 {
				r.Approximate(p.at, "a service has backends: those of the server at %s, which get no request here", w.node.at)
				return &w.locations[len(w.locations)-1]
			}
		}
	}
	return nil
}

// join gives a service the backends of an upstream, each address and port once, and returns their names.
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

// settle gives a service what its servers say beside their upstreams.
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
	if redirects > 0 && !p.tls {
		if proxy.RedirectTLS = redirects == len(p.webs); !proxy.RedirectTLS {
			r.Left(p.at, "some of the servers here send clients to TLS, and redirect_tls is of all of them")
		}
	}
	blocks := []*node{first.node, p.webs[0].node, p.webs[0].http}
	proxy.NoHTTP2 = p.tls && len(proxy.Certificates) > 0 && !slices.Contains(p.listen.words, "http2") && !on(child("http2", blocks...))
	proxy.NoForwardedFor = true
	for _, c := range slices.Concat(first.node.children, p.webs[0].node.children, p.webs[0].http.children) {
		if c.words[0] == "proxy_set_header" && strings.EqualFold(c.word(1), "X-Forwarded-For") && knownHeader(c) {
			proxy.NoForwardedFor = false
		}
	}
	for name, into := range map[string]*time.Duration{"proxy_connect_timeout": &proxy.Timeouts.Connect, "proxy_read_timeout": &proxy.Timeouts.Server,
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
		r.Approximate(first.at, "certificates of backends are not verified, as nginx does where proxy_ssl_verify does not say so; backend_tls: verify does")
	}
	if p.tls && len(proxy.Certificates) == 0 {
		r.Left(p.at, "ends TLS without a certificate that could be carried over")
		s.Backends, s.Proxy = nil, &lb.Proxy{}
		r.Services = slices.DeleteFunc(r.Services, func(have *draft.Service) bool { return have == s })
	}
}
