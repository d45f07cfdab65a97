// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// over replaces unset settings by those of the defaults.
func (q requests) over(all requests) requests {
	q.forward = q.forward || all.forward && !q.noForward
	if q.retries == nil {
		q.retries = all.retries
	}
	q.cookie = cmp.Or(q.cookie, all.cookie)
	q.redirect = q.redirect || all.redirect
	q.security = q.security || all.security
	t, o := &q.timeouts, all.timeouts
	t.Connect, t.Client, t.Server = cmp.Or(t.Connect, o.Connect), cmp.Or(t.Client, o.Client), cmp.Or(t.Server, o.Server)
	t.Request, t.KeepAlive = cmp.Or(t.Request, o.Request), cmp.Or(t.KeepAlive, o.KeepAlive)
	t.Tunnel, t.Queue = cmp.Or(t.Tunnel, o.Tunnel), cmp.Or(t.Queue, o.Queue)
	q.request, q.response = slices.Concat(all.request, q.request), slices.Concat(all.response, q.response)
	q.front, q.back = joined(all.front, q.front), joined(all.back, q.back)
	return q
}

func joined(a, b string) string { return strings.Trim(a+"\n"+b, "\n") }

// clientTimes returns the timeouts for a section's clients, together with the timeouts for servers of the section back.
func (q requests) clientTimes(back requests) lb.ProxyTimeouts {
	t, of := q.timeouts, back.timeouts
	t.Connect, t.Server, t.Tunnel, t.Queue = of.Connect, of.Server, of.Tunnel, of.Queue
	return t
}

// proxySetting reads a line of a section whose services are in mode proxy; false: setting must read it.
func (r *reader) proxySetting(s *section, l line) bool {
	if !s.proxied {
		return false
	}
	q := &s.settings.requests
	if l.no && l.is("option") && len(l.words) == 2 && !s.direct {
		return r.optionOff(s, q, l)
	}
	if l.no || s.direct && l.words[0] == "source" {
		return false
	}
	switch l.words[0] {
	case "use_backend", "default_backend":
		return r.leads(s, l)
	case "maxconn", "rate-limit":
		return r.bounds(s, l) && !s.direct
	case "timeout":
		return r.proxyTimeout(s, q, l) && !s.direct
	case "retries":
		if n, _, err := draft.Number(l.words[min(1, len(l.words)-1)], 100); err == nil {
			most := uint8(n)
			q.retries = &most
			r.Carry(l.at)
			return !s.direct
		}
	case "cookie":
		return r.cookie(q, l)
	case "dynamic-cookie-key":
		r.Needless(l.at, "cookies' values are made by a key of Jeoul's: clients with one from before get another")
		return true
	case "source":
		return r.sendFrom(q, l)
	case "log", "compression", "monitor-uri", "errorfile", "errorloc", "errorloc302", "errorloc303", "monitor-net":
		return r.keepClientLine(s, l)
	case "http-reuse":
		return !s.among && !s.direct && r.keepVerbatim(&section{kind: "backend"}, q, l) == ""
	case "stick-table":
		if s.kind == "frontend" {
			if why := r.keepVerbatim(s, q, l); why != "" {
				r.Left(l.at, "%s", why)
			}
			return true
		}
	case "tcp-request":
		if _, ok := s.connections(); ok && l.is("tcp-request", "connection") || s.direct {
			return false
		}
		r.rule(s, q, l)
		return true
	case "redirect", "http-request", "http-response", "http-after-response", "tcp-response":
		r.rule(s, q, l)
		return true
	case "option":
		return r.proxyOption(s, q, l)
	}
	return false
}

// leads reads a use_backend or default_backend.
func (r *reader) leads(s *section, l line) bool {
	if len(l.words) < 3 {
		return false
	}
	differs, carried := s.led[l.at]
	switch {
	case !carried:
		r.Left(l.at, "routes go by the host and the beginning of the path alone, and a name of a section; its requests go on to what is below")
		return true
	case differs != "":
		r.Approximate(l.at, "%s", differs)
	}
	r.Carry(l.at)
	return true
}

// bounds reads the limits on a section's clients.
func (r *reader) bounds(s *section, l line) bool {
	into, most := &s.settings.maxconn, uint64(1<<28)
	value := l.last()
	if l.is("rate-limit") {
		into, most = &s.settings.rate, 10_000_000
	}
	n, _, err := draft.Number(value, most)
	if err != nil {
		return false
	}
	*into = n
	if r.several(s) {
		r.Approximate(l.at,
			"holds for each service by itself, where HAProxy counts all that a section listens on together")
	}
	r.Carry(l.at)
	return true
}

// several reports whether a section, or one that uses it as defaults, listens on more than one address.
func (r *reader) several(s *section) bool {
	return slices.ContainsFunc(r.sections, func(one *section) bool {
		return one.proxied && (one == s || s.kind == "defaults" && one.defaults == s) && one.places() > 1
	})
}

// places returns the number of addresses that a section listens on.
func (s *section) places() (n int) {
	for _, l := range s.lines {
		if l.is("bind") && len(l.words) > 1 {
			n += strings.Count(l.words[1], ",") + 1
		}
	}
	return n
}

// proxyTimeout reads a timeout of a connection to a client or a server.
func (r *reader) proxyTimeout(s *section, q *requests, l line) bool {
	if len(l.words) < 3 {
		return false
	}
	t := &q.timeouts
	into := map[string]*time.Duration{"connect": &t.Connect, "client": &t.Client, "server": &t.Server,
		"http-request":    &t.Request,
		"http-keep-alive": &t.KeepAlive, "tunnel": &t.Tunnel, "queue": &t.Queue}[l.words[1]]
	d, err := draft.Time(l.words[2], time.Millisecond)
	if into == nil && slices.Contains([]string{"client-fin", "server-fin", "tarpit"}, l.words[1]) && !s.direct {
		of := &section{kind: "frontend"}
		if l.words[1] == "server-fin" {
			of.kind = "backend"
		}
		return r.keepVerbatim(of, q, l) == ""
	}
	if into == nil || err != nil {
		return false
	}
	const longest = 24 * time.Hour
	if d == 0 || d > longest {
		d = longest
		r.Approximate(l.at, "Jeoul has up to %s", longest)
	}
	*into = max(d, time.Millisecond).Truncate(time.Millisecond)
	r.Carry(l.at)
	return l.words[1] != "connect" // checks use it, too
}

// cookie reads the cookie that keeps a client on a server.
func (r *reader) cookie(q *requests, l line) bool {
	switch {
	case len(l.words) < 3 || !slices.Contains(l.words, "insert"):
		r.Left(l.at, "Jeoul's proxy makes the cookie itself (insert), and does not change one of the backends'")
	case !token.MatchString(l.words[1]) || len(l.words[1]) > 64:
		r.Left(l.at, "%q cannot be the name of a cookie", l.words[1])
	default:
		q.cookie = l.words[1]
		r.Carry(l.at)
	}
	return true
}

// sendFrom makes HAProxy send from an address.
func (r *reader) sendFrom(q *requests, l line) bool {
	if len(l.words) == 2 {
		host, _ := draft.SplitPort(l.words[1])
		if addr, err := r.Address(host); err == nil && !addr.IsUnspecified() && addr.Zone() == "" {
			addLine(&q.back, "source "+addr.String())
			r.Carry(l.at)
			return true
		}
	}
	r.Left(l.at, "in mode proxy backends see the address that the kernel chooses; proxy.backend takes a line of HAProxy's")
	return true
}

// keepClientLine keeps a line for clients verbatim.
func (r *reader) keepClientLine(s *section, l line) bool {
	if l.is("log", "global") {
		if strings.Contains("\n"+r.Engine.Global, "\nlog ") {
			r.Carry(l.at)
			return true
		}
		r.Left(l.at, "no log of the section global was carried over")
		return true
	}
	text, ok := verbatim(l.words)
	if !ok || len(l.words) < 2 || s.kind == "backend" || len(s.settings.requests.front) > mostLines ||
		l.is("log") && !logs(l) {
		return false
	}
	addLine(&s.settings.requests.front, text)
	r.Carry(l.at)
	return true
}

// Options that are kept verbatim in the lines for clients, and in those for backends.
var (
	clientOptions = []string{"http-buffer-request", "accept-invalid-http-request", "disable-h2-upgrade",
		"http-ignore-probes", "independent-streams", "http-server-close",
		"httpclose", "http-keep-alive", "http-no-delay", "originalto", "http-use-proxy-header",
		"http-restrict-req-hdr-names"}
	backendOptions = []string{"accept-invalid-http-response", "abortonclose", "checkcache", "persist",
		"prefer-last-server", "http-pretend-keepalive"}
)

// proxyOption reads an option that mode proxy supports.
func (r *reader) proxyOption(s *section, q *requests, l line) bool {
	name := ""
	if len(l.words) > 1 {
		name = l.words[1]
	}
	logged := strings.Contains("\n"+r.Engine.Global, "\nlog ")
	switch {
	case name == "forwardfor" && len(l.words) > 2:
		return r.keepVerbatim(&section{kind: "frontend"}, q, l) == ""
	case name == "forwardfor":
		q.forward, q.noForward = true, false
		r.Approximate(l.at, "each request gets X-Forwarded-Proto, too")
		return true
	case name == "redispatch" && !s.direct: // mode proxy always does so
	case (name == "httplog" || name == "tcplog") && logged:
	case slices.Contains(backendOptions, name) && !s.among && !s.direct:
		return r.keepVerbatim(&section{kind: "backend"}, q, l) == ""
	case slices.Contains(clientOptions, name) && !(s.kind == "backend" && s.among) && !s.direct:
		return r.keepVerbatim(s, q, l) == ""
	default:
		return false
	}
	r.Carry(l.at)
	return true
}

// optionOff disables an option of the defaults.
func (r *reader) optionOff(s *section, q *requests, l line) bool {
	name := l.words[1]
	whole := line{at: l.at, words: []string{"no", "option", name}}
	switch {
	case name == "forwardfor":
		q.forward, q.noForward = false, true
		r.Carry(l.at)
	case slices.Contains(backendOptions, name) && !s.among:
		return r.keepVerbatim(&section{kind: "backend"}, q, whole) == ""
	case slices.Contains(clientOptions, name) && !(s.kind == "backend" && s.among):
		return r.keepVerbatim(s, q, whole) == ""
	default:
		return false
	}
	return true
}

// token matches the name of a header field (RFC 9110, section 5.6.2).
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// Limits of header fields in Jeoul's configuration.
const (
	mostHeaders   = 32
	longestHeader = 1000
)

// mostLines limits the verbatim lines, in bytes.
const mostLines = 16 << 10

// rule converts a rule on connections, requests or responses to a key, or keeps it verbatim. A key's rule precedes
// verbatim ones, so a rule that follows a verbatim one is kept verbatim, too.
func (r *reader) rule(s *section, q *requests, l line) {
	if s.kind == "backend" && s.among {
		r.Left(l.at, "is of the requests to this section alone, and a service's rules are of all its requests")
		return
	}
	if !s.raw(l) && r.byKey(s, q, l) {
		return
	}
	if why := r.keepVerbatim(s, q, l); why != "" {
		r.Left(l.at, "no key is like it, and as it stands it cannot be carried over: %s", why)
	}
}

// byKey carries a rule over as a key; false: there is no key for it.
func (r *reader) byKey(s *section, q *requests, l line) bool {
	words, action := l.words, l.action()
	_, refuses := s.denies(l)
	sets := action == "set-header" || action == "add-header"
	switch {
	case redirectsTLS(s, l):
		q.redirect = true
		if i := slices.Index(words, "code"); i < 0 || i+1 == len(words) || words[i+1] != "301" {
			r.Approximate(l.at, "clients are sent to TLS by 301")
		}
		r.Carry(l.at)
	case refuses && !s.allowsBefore(l):
		r.Approximate(l.at,
			"becomes allow or deny: the connections of these clients are closed, in place of an answer of 403")
	case s.forwards(l): // forwarded_for does the same
		r.Carry(l.at)
	case securityHeader(l):
		q.security = true
		r.Carry(l.at)
	case action == "del-header" && len(words) == 3 && token.MatchString(words[2]):
		return r.header(q, l, lb.Header{Name: words[2]})
	case sets && len(words) == 4 && token.MatchString(words[2]):
		value, ok := literal(words[3])
		if !ok || value == "" || len(value)+len(words[2]) > longestHeader || action == "add-header" {
			return false
		}
		return r.header(q, l, lb.Header{Name: words[2], Value: value})
	default:
		return false
	}
	return true
}

// securityHeader reports whether a line sets one of the header fields of security_headers, unless a backend has set it.
func securityHeader(l line) bool {
	return slices.ContainsFunc(lb.SecurityHeadersOf(true), func(h lb.Header) bool {
		return slices.Equal(l.words, []string{"http-after-response", "set-header", h.Name, h.Value, "unless", "{",
			"res.hdr(" + h.Name + ")", "-m", "found", "}"})
	})
}

// header sets or removes a header field; false: the configuration takes no more.
func (r *reader) header(q *requests, l line, h lb.Header) bool {
	into := &q.request
	if l.words[0] != "http-request" {
		into = &q.response
	}
	if len(*into) == mostHeaders {
		return false
	}
	*into = append(*into, h)
	r.Carry(l.at)
	return true
}

// literal returns the text of a log-format string without variables.
func literal(format string) (string, bool) {
	text := strings.ReplaceAll(format, "%%", "")
	if strings.Contains(text, "%") || strings.ContainsFunc(format, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return "", false
	}
	return strings.TrimSpace(strings.ReplaceAll(format, "%%", "%")), true
}

// redirectsTLS reports whether a line redirects clients without TLS to TLS.
func redirectsTLS(s *section, l line) bool {
	words := l.words
	if l.is("http-request") {
		words = words[1:]
	}
	if len(words) < 3 || !slices.Equal(words[:3], []string{"redirect", "scheme", "https"}) {
		return false
	}
	if words = words[3:]; len(words) > 1 && words[0] == "code" {
		words = words[2:]
	}
	switch text := strings.Join(words, " "); text {
	case "", "if !{ ssl_fc }", "if ! { ssl_fc }", "unless { ssl_fc }":
		return true
	default:
		for _, acl := range s.all() {
			if acl.is("acl") && len(acl.words) == 3 && acl.words[2] == "ssl_fc" &&
				(text == "if !"+acl.words[1] || text == "unless "+acl.words[1]) {
				return true
			}
		}
		return false
	}
}
