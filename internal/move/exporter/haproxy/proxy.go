// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/snippet"
	"github.com/jeoul/jeoul/internal/move/exporter/ledger"
)

// perCondition is the number of patterns in a line, which holds up to 64 words.
const perCondition = 40

// global writes the section global, if any setting needs it.
func global(l *ledger.Ledger, external bool) string {
	w := &writer{Ledger: l, text: &strings.Builder{}}
	if external {
		w.line("external-check")
		w.line("insecure-fork-wanted")
	}
	e := l.Proxy
	w.engine("threads", e.Threads > 0, "nbthread", strconv.Itoa(int(e.Threads)))
	for k, m := range e.CPUMap {
		w.engine(fmt.Sprintf("cpu_map[%d]", k), true, append([]string{"cpu-map"}, strings.Fields(m)...)...)
	}
	w.engine("connections", e.Connections > 0, "maxconn", strconv.FormatUint(uint64(e.Connections), 10))
	w.engine("hard_stop", e.HardStop > 0, "hard-stop-after", duration(e.HardStop))
	w.engine("user", e.User != "", "user", e.User)
	w.engine("group", e.Group != "", "group", e.Group)
	w.verbatim("proxy.global", e.Global, snippet.GlobalKeys)
	if w.text.Len() == 0 {
		return ""
	}
	return "global\n" + w.text.String() + "\n"
}

// engine carries over a key of the shared settings and writes its line, if the key is set.
func (w *writer) engine(key string, is bool, words ...string) {
	if is {
		w.Carry("proxy." + key)
		w.line(words...)
	}
}

// verbatim writes lines in HAProxy's own language, and leaves them out if they reach beyond their section.
func (w *writer) verbatim(field, lines string, ours map[string]string) {
	if lines == "" {
		return
	}
	if err := snippet.Check(lines, ours); err != nil {
		w.Left(field, "the lines are none for this section: %v", err)
		return
	}
	w.Carry(field)
	for text := range strings.Lines(lines) {
		if text = strings.TrimSpace(text); text != "" {
			w.text.WriteString("\t" + text + "\n")
		}
	}
}

// bindWords returns the parameters of bind for the protocols that clients of a service in mode proxy speak.
func (w *writer) bindWords() (words []string) {
	if w.proxy.AcceptProxy {
		words = append(words, "accept-proxy")
	}
	if len(w.proxy.Certificates) == 0 {
		return words
	}
	words = append(words, "ssl")
	for k, file := range w.proxy.Certificates {
		if more := append(words, "crt", file); fits(more) && len(more) < mostWords-5 {
			words = more
		} else {
			w.Left(config.ServiceField(w.i, fmt.Sprintf("proxy.certificates[%d]", k)),
				"certificates: more than a line of HAProxy's holds; name their directory there (crt DIRECTORY)")
		}
	}
	switch {
	case !w.speaksHTTP():
	case w.proxy.NoHTTP2:
		words = append(words, "alpn", "http/1.1")
	default:
		words = append(words, "alpn", "h2,http/1.1")
	}
	return words
}

// requests writes the rules for clients' requests and for the responses.
func (w *writer) requests() {
	p := w.proxy
	w.timeouts([]timeout{{"client", p.Timeouts.Client}, {"http-request", p.Timeouts.Request},
		{"http-keep-alive", p.Timeouts.KeepAlive}})
	if w.speaksHTTP() {
		if !p.NoForwardedFor {
			scheme := "http"
			if len(p.Certificates) > 0 {
				scheme = "https"
			}
			w.line("option", "forwardfor")
			w.line("http-request", "set-header", "X-Forwarded-Proto", scheme)
		}
		if p.RedirectTLS {
			w.line("http-request", "redirect", "scheme", "https", "code", "301", "unless", "{", "ssl_fc", "}")
		}
		w.headers("request_headers", "http-request", p.RequestHeaders)
		if p.SecurityHeaders {
			for _, h := range lb.SecurityHeadersOf(len(p.Certificates) > 0) {
				w.line("http-after-response", "set-header", h.Name, h.Value, "unless", "{", "res.hdr("+h.Name+")", "-m",
					"found", "}")
			}
		}
		w.headers("response_headers", "http-after-response", p.ResponseHeaders)
	}
	w.verbatim(config.ServiceField(w.i, "proxy.frontend"), p.Frontend, nil)
}

// headers writes the rules that set or remove header fields.
func (w *writer) headers(key, rule string, headers []lb.Header) {
	for k, h := range headers {
		words := []string{rule, "set-header", h.Name, escaped(h.Value)}
		if h.Value == "" {
			words = []string{rule, "del-header", h.Name}
		}
		if !fits(words) {
			w.Left(config.ServiceField(w.i, fmt.Sprintf("proxy.%s[%d]", key, k)),
				"%s: more than a line of HAProxy's holds", key)
			continue
		}
		w.line(words...)
	}
}

// route writes the conditions of a route and the section that matching requests go to.
func (w *writer) route(k int, section string, route lb.Route) {
	words := []string{"use_backend", section}
	name := fmt.Sprintf("route%d", k+1)
	if len(route.Hosts) > 0 {
		exact, below := parted(route.Hosts, func(h string) (string, bool) {
			rest, isWildcard := strings.CutPrefix(strings.ToLower(h), "*")
			return rest, isWildcard
		})
		w.acl(name+"host", "req.hdr(host),host_only,lower", "str", exact)
		w.acl(name+"host", "req.hdr(host),host_only,lower", "end", below)
		words = append(words, name+"host")
	}
	if len(route.Paths) > 0 {
		var whole, below []string
		for _, p := range route.Paths {
			if strings.HasSuffix(p, "/") {
				below = append(below, p)
			} else {
				whole, below = append(whole, p), append(below, p+"/")
			}
		}
		w.acl(name+"path", "path", "str", whole)
		w.acl(name+"path", "path", "beg", below)
		words = append(words, name+"path")
	}
	if len(words) > 2 {
		words = slices.Insert(words, 2, "if")
	}
	w.line(words...)
}

// parted splits texts into the ones that the test rejects, and the test's results for the others.
func parted(texts []string, test func(string) (string, bool)) (without, with []string) {
	for _, text := range texts {
		if made, is := test(text); is {
			with = append(with, made)
		} else {
			without = append(without, made)
		}
	}
	return without, with
}

// acl writes a condition that holds if one of the patterns matches. Lines of the same name are alternatives.
func (w *writer) acl(name, fetch, match string, patterns []string) {
	for some := range slices.Chunk(patterns, perCondition) {
		w.line(append([]string{"acl", name, fetch, "-m", match, "--"}, some...)...)
	}
}

// connections writes the settings of connections to backends.
func (w *writer) connections() {
	p := w.proxy
	if w.service.Mode != lb.ModeProxy {
		return
	}
	w.timeouts([]timeout{{"connect", p.Timeouts.Connect}, {"server", p.Timeouts.Server}, {"queue", p.Timeouts.Queue},
		{"tunnel", p.Timeouts.Tunnel}})
	retries := lb.DefaultProxyRetries
	if p.Retries != nil {
		retries = int(*p.Retries)
	}
	w.line("retries", strconv.Itoa(retries))
	w.line("option", "redispatch")
	if p.Cookie != "" {
		words := []string{"cookie", p.Cookie, "insert", "indirect", "nocache", "httponly", "dynamic"}
		if len(p.Certificates) > 0 {
			words = append(words, "secure")
		}
		w.line(words...)
		w.line("dynamic-cookie-key", name(w.service.Name))
	}
	w.verbatim(config.ServiceField(w.i, "proxy.backend"), p.Back, nil)
}

// timeout is a timeout of HAProxy.
type timeout struct {
	name   string
	length time.Duration
}

// timeouts writes the timeouts of a service in mode proxy. With HTTP it also writes unset ones, because the section
// defaults has other values.
func (w *writer) timeouts(all []timeout) {
	usual := lb.ProxyTimeouts{}.WithDefaults(w.proxy.Speaks)
	standard := map[string]time.Duration{"connect": usual.Connect, "client": usual.Client, "server": usual.Server,
		"queue":  usual.Queue,
		"tunnel": usual.Tunnel, "http-request": usual.Request, "http-keep-alive": usual.KeepAlive}
	for _, t := range all {
		switch {
		case t.length > 0:
			w.line("timeout", t.name, duration(t.length))
		case w.speaksHTTP():
			w.line("timeout", t.name, duration(standard[t.name]))
		}
	}
}
