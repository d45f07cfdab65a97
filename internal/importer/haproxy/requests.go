// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/importer/draft"
	"github.com/jeoul/jeoul/internal/lb"
)

// requests is what a section says of connections and requests that mode proxy does.
type requests struct {
	forward  bool // option forwardfor
	retries  *uint8
	timeouts lb.ProxyTimeouts
	cookie   string
	redirect bool
	security bool
	// request and response are header fields, and front and back lines that stand as they are.
	request, response []lb.Header
	front, back       string
}

// over gives what is not set the values of defaults.
func (q requests) over(all requests) requests {
	q.forward = q.forward || all.forward
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

// clientTimes are the times of a section's clients, and those of the section of its servers.
func (q requests) clientTimes(back requests) lb.ProxyTimeouts {
	t, of := q.timeouts, back.timeouts
	t.Connect, t.Server, t.Tunnel, t.Queue = of.Connect, of.Server, of.Tunnel, of.Queue
	return t
}

// proxySetting reads a line of a section whose services are of mode proxy; false: setting reads it.
func (r *reader) proxySetting(s *section, l line) bool {
	if !s.proxied {
		return false
	}
	q := &s.settings.requests
	if l.no || s.direct && l.words[0] == "source" {
		return false
	}
	switch l.words[0] {
	case "use_backend", "default_backend":
		return r.leads(s, l)
	case "maxconn", "rate-limit":
		return r.bounds(s, l) && !s.direct
	case "timeout":
		return r.proxyTimeout(q, l) && !s.direct
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
	case "log", "compression", "monitor-uri":
		return r.asItStands(s, l)
	case "acl":
		return r.proxyACL(s, l)
	case "redirect", "http-request", "http-response", "http-after-response":
		r.rule(s, q, l)
		return true
	case "option":
		return r.proxyOption(s, q, l)
	}
	return false
}

// leads reads where requests go.
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

// bounds reads what a section's clients may do.
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
		r.Approximate(l.at, "holds for each service by itself, where HAProxy counts all that a section listens on together")
	}
	r.Carry(l.at)
	return true
}

// several says whether a section, or one that has it as defaults, listens on more than one address.
func (r *reader) several(s *section) bool {
	return slices.ContainsFunc(r.sections, func(one *section) bool {
		return one.proxied && (one == s || s.kind == "defaults" && one.defaults == s) && one.places() > 1
	})
}

// places is on how many addresses a section listens.
func (s *section) places() (n int) {
	for _, l := range s.lines {
		if l.is("bind") && len(l.words) > 1 {
			n += strings.Count(l.words[1], ",") + 1
		}
	}
	return n
}

// proxyTimeout reads how long a side of a connection may take.
func (r *reader) proxyTimeout(q *requests, l line) bool {
	if len(l.words) < 3 {
		return false
	}
	t := &q.timeouts
	into := map[string]*time.Duration{"connect": &t.Connect, "client": &t.Client, "server": &t.Server, "http-request": &t.Request,
		"http-keep-alive": &t.KeepAlive, "tunnel": &t.Tunnel, "queue": &t.Queue}[l.words[1]]
	d, err := draft.Time(l.words[2], time.Millisecond)
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
	return l.words[1] != "connect" // which checks go by, too
}

// cookie reads by which a client is kept at a server.
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

// sendFrom has HAProxy send from an address.
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

// asItStands has a line of clients stand as it is.
func (r *reader) asItStands(s *section, l line) bool {
	if l.is("log", "global") {
		if strings.Contains("\n"+r.Engine.Global, "\nlog ") {
			r.Carry(l.at)
			return true
		}
		r.Left(l.at, "no log of the section global was carried over")
		return true
	}
	text, ok := verbatim(l.words)
	if !ok || len(l.words) < 2 || s.kind == "backend" || len(s.settings.requests.front) > mostLines || l.is("log") && !logs(l) {
		return false
	}
	addLine(&s.settings.requests.front, text)
	r.Carry(l.at)
	return true
}

// proxyACL reads one of what clients ask for; false: it is of clients.
func (r *reader) proxyACL(s *section, l line) bool {
	if len(l.words) < 3 || l.words[2] == "src" {
		return false
	}
	if !s.used[l.words[1]] && !(len(l.words) == 3 && l.words[2] == "ssl_fc") {
		r.Left(l.at, "no route goes by it, as far as they are carried over")
		return true
	}
	r.Carry(l.at)
	return true
}

// proxyOption reads an option that mode proxy has.
func (r *reader) proxyOption(s *section, q *requests, l line) bool {
	switch {
	case l.is("option", "forwardfor"):
		q.forward = true
		if len(l.words) > 2 {
			r.Approximate(l.at, "each client's address goes into X-Forwarded-For; exceptions and other names have no key")
		}
	case l.is("option", "redispatch") && !s.direct: // as always
	case (l.is("option", "httplog") || l.is("option", "tcplog")) && strings.Contains("\n"+r.Engine.Global, "\nlog "):
	default:
		return false
	}
	r.Carry(l.at)
	return true
}

// token is a name of a header field (RFC 9110, section 5.6.2).
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// Bounds of header fields in Jeoul's configuration.
const (
	mostHeaders   = 32
	longestHeader = 1000
)

// mostLines bounds lines that stand as they are, in bytes.
const mostLines = 16 << 10

// rule reads a rule of requests or responses.
func (r *reader) rule(s *section, q *requests, l line) {
	const noKey = "no key is like it; where it is needed, proxy.frontend and proxy.backend take lines of HAProxy's"
	words := l.words
	action := ""
	if len(words) > 1 {
		action = words[1]
	}
	switch {
	case s.kind == "backend" && s.among:
		r.Left(l.at, "is of the requests to this section alone, and a service's rules are of all its requests")
	case redirectsTLS(s, l):
		q.redirect = true
		if i := slices.Index(words, "code"); i < 0 || i+1 == len(words) || words[i+1] != "301" {
			r.Approximate(l.at, "clients are sent to TLS by 301")
		}
		r.Carry(l.at)
	case l.is("http-request", "deny"):
		r.deny(s, l)
	case securityHeader(l):
		q.security = true
		r.Carry(l.at)
	case l.words[0] == "redirect" || len(words) < 3:
		r.Left(l.at, noKey)
	case action == "del-header" && len(words) == 3 && token.MatchString(words[2]):
		r.header(q, l, lb.Header{Name: words[2]})
	case (action == "set-header" || action == "add-header") && strings.EqualFold(words[2], "X-Forwarded-Proto"):
		r.Needless(l.at, "each request gets it")
	case (action == "set-header" || action == "add-header") && len(words) == 4 && token.MatchString(words[2]):
		value, ok := literal(words[3])
		if !ok || value == "" || len(value)+len(words[2]) > longestHeader {
			r.Left(l.at, "a header's value is text that stays as it is; proxy.frontend takes a line of HAProxy's")
			return
		}
		if action == "add-header" {
			r.Approximate(l.at, "the field is set: what it had before is replaced")
		}
		r.header(q, l, lb.Header{Name: words[2], Value: value})
	default:
		r.Left(l.at, noKey)
	}
}

// securityHeader says whether a line sets one of the fields that security_headers stands for, unless a backend has.
func securityHeader(l line) bool {
	return slices.ContainsFunc(lb.SecurityHeadersOf(true), func(h lb.Header) bool {
		return slices.Equal(l.words, []string{"http-after-response", "set-header", h.Name, h.Value, "unless", "{", "res.hdr(" + h.Name + ")", "-m", "found", "}"})
	})
}

func (r *reader) header(q *requests, l line, h lb.Header) {
	into := &q.request
	if l.words[0] != "http-request" {
		into = &q.response
	}
	if len(*into) == mostHeaders {
		r.Left(l.at, "a service sets up to %d header fields", mostHeaders)
		return
	}
	*into = append(*into, h)
	r.Carry(l.at)
}

// literal returns the text that a format of HAProxy's always is.
func literal(format string) (string, bool) {
	text := strings.ReplaceAll(format, "%%", "")
	if strings.Contains(text, "%") || strings.ContainsFunc(format, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return "", false
	}
	return strings.TrimSpace(strings.ReplaceAll(format, "%%", "%")), true
}

// deny refuses requests: those of clients' addresses as Jeoul does, and others by the line as it stands.
func (r *reader) deny(s *section, l line) {
	if s.kind == "backend" {
		r.Left(l.at, "is of a section of servers; until deny or a line in proxy.frontend says otherwise, these requests are served")
		return
	}
	if len(l.words) > 3 && (l.words[2] == "if" || l.words[2] == "unless") {
		if _, _, ok := condition(s, l.words[3:]); ok {
			r.reject(s, l, l.words[2:])
			return
		}
	}
	if _, ok := verbatim(unbraced(l.words)); !ok || !selfContained(l.words) || len(s.settings.requests.front) > mostLines {
		r.Left(l.at, "goes by names or files; until deny or a line in proxy.frontend says otherwise, these requests are served")
		return
	}
	addLine(&s.settings.requests.front, strings.Join(l.words, " "))
	r.Carry(l.at)
}

// unbraced are words but the marks of conditions.
func unbraced(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains([]string{"{", "}", "!{", "!", "||"}, w) })
}

// selfContained says whether a condition goes by no name and no file.
func selfContained(words []string) bool {
	within := true
	for i, word := range words {
		switch {
		case word == "if" || word == "unless":
			if i+1 == len(words) {
				return false
			}
			within = false
		case word == "{" || word == "!{":
			within = true
		case word == "}":
			within = false
		case word == "-f" || word == "-M" || word == "-u":
			return false
		case !within && word != "!" && word != "or" && word != "||":
			return false
		}
	}
	return true
}

// redirectsTLS says whether a line sends clients without TLS to TLS.
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
			if acl.is("acl") && len(acl.words) == 3 && acl.words[2] == "ssl_fc" && (text == "if !"+acl.words[1] || text == "unless "+acl.words[1]) {
				return true
			}
		}
		return false
	}
}
