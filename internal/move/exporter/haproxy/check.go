// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// asked returns the indexes of the checks that become HAProxy's check of a server and its agent check; -1: none.
func (w *writer) asked() (checked, agent int) {
	checked, agent = -1, -1
	for k, c := range w.service.Checks.List {
		switch {
		case c.Type == lb.CheckAgent && agent < 0:
			agent = k
		case c.Type != lb.CheckAgent && checked < 0:
			checked = k
		}
	}
	return checked, agent
}

// check writes the servers' check, and remarks on the checks that HAProxy has no place for.
func (w *writer) check() {
	checked, agent := w.asked()
	for k := range w.service.Checks.List {
		field := w.checkField(k)
		if k != checked && k != agent {
			w.Left(field, "check: HAProxy has one check of a server, beside an agent")
			continue
		}
		w.common(field, w.service.Checks.List[k])
	}
	if checked < 0 {
		return
	}
	c, field := w.service.Checks.List[checked], w.checkField(checked)
	w.line("timeout", "check", duration(c.Timeout))
	switch c.Type {
	case lb.CheckTCP, lb.CheckTLS:
	case lb.CheckHTTP:
		w.http(field, *c.HTTP)
	case lb.CheckExec:
		w.exec(field, *c.Exec)
	default:
		w.Approximate(field,
			"check: HAProxy has none of type %s; it opens a connection, and a program can ask more (external-check)",
			c.Type)
	}
}

// checkField returns the path of check k of the service.
func (w *writer) checkField(k int) string {
	if w.Written(config.ServiceField(w.i, "check")) {
		return config.ServiceField(w.i, "check")
	}
	return fmt.Sprintf("%s[%d]", config.ServiceField(w.i, "checks"), k)
}

// common carries over the settings that all checks have, and remarks on differences.
func (w *writer) common(field string, c lb.Check) {
	if !w.Written(field + ".type") { // the type alone is given
		w.Carry(field)
	}
	for _, key := range []string{"type", "interval", "fast", "timeout", "rise", "fall", "port", "via", "tls.verify",
		"tls.server_name", "tls.ca"} {
		w.Carry(field + "." + key)
	}
	if c.ViaIn(w.service.Mode) == lb.ViaVIP {
		w.Approximate(field+".via",
			"via: HAProxy asks the server's own address, not the VIP by way of the service's packets")
	}
	if c.Type == lb.CheckAgent {
		w.Approximate(field,
			"check: HAProxy takes what an agent says for the server's weight and state, without rise and fall")
	}
}

// http writes an HTTP check.
func (w *writer) http(field string, h lb.HTTPCheck) {
	w.line("option", "httpchk")
	send := []string{"http-check", "send", "meth", h.Method, "uri", h.Path, "ver", "HTTP/1.1"}
	if h.Host != "" {
		send = append(send, "hdr", "Host", escaped(h.Host))
	}
	for k, header := range h.Headers {
		name := fmt.Sprintf("%s.headers[%d]", field, k)
		more := append(send, "hdr", header.Name, escaped(header.Value))
		if header.Value == "" || !fits(more) {
			w.Left(name, "headers: one that is empty, or more than a line of HAProxy's holds")
			continue
		}
		w.Carry(name)
		send = more
	}
	if !fits(send) {
		send = send[:4]
		w.Left(field+".path", "path: longer than a line of HAProxy's; it asks for /")
	}
	w.line(send...)
	for _, key := range []string{"method", "path", "host", "status", "body"} {
		if !w.Noted(field + "." + key) {
			w.Carry(field + "." + key)
		}
	}
	if h.HTTP2 {
		w.Approximate(field+".http2", "http2: HAProxy asks by HTTP/1.1")
	}
	if h.WeightHeader != "" {
		w.Left(field+".weight_header", "weight_header: HAProxy takes weights from an agent's answers only (agent-check)")
	}
	w.expect(field, h)
}

// escaped escapes a text for HAProxy's log-format strings.
func escaped(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// expect writes the expected answer.
func (w *writer) expect(field string, h lb.HTTPCheck) {
	if len(h.Status) > 0 || h.Body != "" { // otherwise HAProxy's default statuses apply, which are Jeoul's as well
		words := make([]string, 0, len(h.Status)+1)
		for _, r := range h.Status {
			words = append(words, r.String())
		}
		if len(words) == 0 {
			words = append(words, lb.DefaultStatus[0].String())
		}
		w.line("http-check", "expect", "status", strings.Join(words, ","))
	}
	if h.Body == "" {
		return
	}
	line := []string{"http-check", "expect", "rstring", h.Body}
	if literal, whole := regexp.MustCompile(h.Body).LiteralPrefix(); whole {
		line = []string{"http-check", "expect", "string", literal}
	} else {
		w.Approximate(field+".body", "body: Jeoul's expressions are of RE2, HAProxy's of PCRE")
	}
	if line[3] == "" || !fits(line) {
		w.Left(field+".body", "body: no line of HAProxy's holds it")
		return
	}
	w.line(line...)
}

// exec writes a check by a program.
func (w *writer) exec(field string, e lb.ExecCheck) {
	w.external = true
	w.line("option", "external-check")
	w.line("external-check", "command", e.Command[0])
	w.Carry(field + ".command")
	w.Approximate(field+".command",
		"command: HAProxy gives the program arguments of its own, without those that are written here: the server's address and port are the third and fourth")
}
