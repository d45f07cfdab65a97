// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// clients renders the section of a service's clients.
func (c *service) clients(t *sectionWriter) {
	timeouts := c.p.Timeouts.WithDefaults(c.p.Speaks)
	t.section("service "+c.Name, "frontend", c.name+clientsOf)
	c.bind(t)
	t.add("proxy.speaks", "mode", c.mode())
	if c.logs {
		t.add("", "log", "global")
		t.add("", "option", c.mode()+"log")
	}
	t.add("proxy.timeouts.client", "timeout", "client", milliseconds(timeouts.Client))
	if c.http {
		t.add("proxy.timeouts.request", "timeout", "http-request", milliseconds(timeouts.Request))
		t.add("proxy.timeouts.keep_alive", "timeout", "http-keep-alive", milliseconds(timeouts.KeepAlive))
		// A reload must not end an idle connection on which a client may be sending its next request: the old worker
		// answers that request, and closes the connection then.
		t.add("", "option", "idle-close-on-response")
	}
	if c.Limits.Connections > 0 {
		t.add("limits.connections", "maxconn", strconv.FormatUint(uint64(c.Limits.Connections), 10))
	}
	if c.Limits.Rate > 0 {
		t.add("limits.rate", "rate-limit", "sessions", strconv.FormatUint(uint64(c.Limits.Rate), 10))
	}
	c.accessRules(t)
	if c.Scheduler == lb.Maglev && !c.BySource() {
		// HAProxy hashes the connection that it sees, which may be that of a proxy in front of it.
		t.add("scheduler", "tcp-request", "connection", "set-var-fmt(sess.flow)", "%ci:%cp")
	}
	if c.http {
		c.requestRules(t)
	}
	t.verbatim("proxy.frontend", c.p.Frontend, nil)
	for i, route := range c.p.Routes {
		c.route(t, i, route)
	}
	t.add("backends", "default_backend", c.name+allOf)
}

// mode is HAProxy's name of the application protocol.
func (c *service) mode() string {
	if c.http {
		return "http"
	}
	return "tcp"
}

// bind renders the line of the address and the certificates, the first of which is served if SNI matches none.
func (c *service) bind(t *sectionWriter) {
	words := []string{"bind", netip.AddrPortFrom(c.VIP, c.Port).String()}
	field := "vip"
	if c.host.NonlocalBind {
		words = append(words, "transparent")
	}
	if c.MSS > 0 {
		words = append(words, "mss", strconv.Itoa(int(c.MSS)))
	}
	if c.p.AcceptProxy {
		words = append(words, "accept-proxy")
	}
	if len(c.p.Certificates) > 0 {
		field = "proxy.certificates"
		words = append(words, "ssl")
		for i, path := range c.p.Certificates {
			if !strings.HasPrefix(path, "/") {
				t.setError(fmt.Sprintf("proxy.certificates[%d]", i),
					fmt.Errorf("%q: %w by a relative path; write an absolute one", path, ErrCertificate))
			}
			copied := c.host.certificate(path)
			words = append(words, "crt", copied)
			c.out.Certificates[copied] = path
		}
		if c.http && c.p.NoHTTP2 {
			words = append(words, "alpn", "http/1.1")
		} else if c.http {
			words = append(words, "alpn", "h2,http/1.1")
		}
	}
	t.add(field, words...)
}

// accessRules renders the rules that reject clients. The longest matching prefix decides, so both lists are one map,
// whose file is named by a hash of its content.
func (c *service) accessRules(t *sectionWriter) {
	if !c.RestrictsClients() {
		return
	}
	var list []string
	for _, p := range c.Allow {
		list = append(list, p.String()+" allow\n")
	}
	for _, p := range c.Deny {
		list = append(list, p.String()+" deny\n")
	}
	slices.Sort(list)
	contents := strings.Join(list, "")
	path := c.host.extra("clients", contents)
	c.out.Files[path] = contents
	fallback := "allow"
	if len(c.Allow) > 0 {
		fallback = "deny"
	}
	// The address in a PROXY header is known only to the session's rules, after the header has been read.
	at := "connection"
	if c.p.AcceptProxy {
		at = "session"
	}
	t.add("deny", "tcp-request", at, "reject", "unless", "{", "src,map_ip("+path+","+fallback+")", "-m", "str",
		"allow", "}")
}

// requestRules renders the rules of requests and responses.
func (c *service) requestRules(t *sectionWriter) {
	tls := len(c.p.Certificates) > 0
	if !c.p.NoForwardedFor {
		t.add("proxy.no_forwarded_for", "option", "forwardfor")
		scheme := "http"
		if tls {
			scheme = "https"
		}
		t.add("", "http-request", "set-header", "X-Forwarded-Proto", scheme)
	}
	if c.p.RedirectTLS {
		t.add("proxy.redirect_tls", "http-request", "redirect", "scheme", "https", "code", "301", "unless", "{",
			"ssl_fc", "}")
	}
	c.headers(t, "proxy.request_headers", "http-request", c.p.RequestHeaders)
	if c.p.SecurityHeaders {
		c.security(t, tls)
	}
	c.headers(t, "proxy.response_headers", "http-after-response", c.p.ResponseHeaders)
}

func (c *service) headers(t *sectionWriter, field, rule string, headers []lb.Header) {
	for i, h := range headers {
		at := fmt.Sprintf("%s[%d]", field, i)
		if !isToken(h.Name) {
			t.setError(at, fmt.Errorf(
				"%q %w as the name of a header: it has letters, digits and some punctuation (RFC 9110, section 5.6.2)",
				h.Name, ErrValue))
			continue
		}
		if h.Value == "" {
			t.add(at, rule, "del-header", h.Name)
		} else {
			t.add(at, rule, "set-header", h.Name, literalFormat(h.Value))
		}
	}
}

// security adds security headers to responses that lack them.
func (c *service) security(t *sectionWriter, tls bool) {
	for _, h := range lb.SecurityHeadersOf(tls) {
		t.add("proxy.security_headers", "http-after-response", "set-header", h.Name, h.Value, "unless", "{", "res.hdr("+
			h.Name+")", "-m", "found", "}")
	}
}

// maxPatterns bounds the patterns in a line: HAProxy takes 64 words.
const maxPatterns = 40

// route renders a route's conditions. Conditions of one name are alternatives.
func (c *service) route(t *sectionWriter, i int, route lb.Route) {
	at := fmt.Sprintf("proxy.routes[%d]", i)
	name := "route" + strconv.Itoa(i)
	rule := []string{"use_backend", c.routeName(i)}
	conditions := []string{}
	if len(route.Hosts) > 0 {
		c.hosts(t, at, name+"host", route.Hosts)
		conditions = append(conditions, name+"host")
	}
	if len(route.Paths) > 0 {
		c.paths(t, at, name+"path", route.Paths)
		conditions = append(conditions, name+"path")
	}
	if len(conditions) > 0 {
		rule = append(append(rule, "if"), conditions...)
	}
	t.add(at, rule...)
}

func (c *service) hosts(t *sectionWriter, at, name string, hosts []string) {
	var exact, below []string
	for i, h := range hosts {
		if h == "" || strings.ContainsAny(h, " \t:/*") && !strings.HasPrefix(h, "*.") ||
			strings.ContainsAny(strings.TrimPrefix(h, "*"), "*:/ \t") {
			t.setError(fmt.Sprintf("%s.hosts[%d]", at, i),
				fmt.Errorf("%q %w as a host: write a name without port, or *. and a name", h, ErrValue))
		}
		if fallback, isWildcard := strings.CutPrefix(h, "*"); isWildcard {
			below = append(below, strings.ToLower(fallback))
		} else {
			exact = append(exact, strings.ToLower(h))
		}
	}
	alternatives(t, at+".hosts", name, "req.hdr(host),host_only,lower", "str", exact)
	alternatives(t, at+".hosts", name, "req.hdr(host),host_only,lower", "end", below)
}

func (c *service) paths(t *sectionWriter, at, name string, paths []string) {
	var whole, below []string
	for i, p := range paths {
		if !strings.HasPrefix(p, "/") {
			t.setError(fmt.Sprintf("%s.paths[%d]", at, i),
				fmt.Errorf("%q %w as the beginning of a path: begin it with a slash", p, ErrValue))
		}
		if strings.HasSuffix(p, "/") {
			below = append(below, p)
		} else {
			whole, below = append(whole, p), append(below, p+"/")
		}
	}
	alternatives(t, at+".paths", name, "path", "str", whole)
	alternatives(t, at+".paths", name, "path", "beg", below)
}

// alternatives renders conditions of one name.
func alternatives(t *sectionWriter, field, name, fetch, match string, values []string) {
	for some := range slices.Chunk(values, maxPatterns) {
		t.add(field, append([]string{"acl", name, fetch, "-m", match, "--"}, some...)...)
	}
}

// isToken reports whether a name is one by RFC 9110, section 5.6.2.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
