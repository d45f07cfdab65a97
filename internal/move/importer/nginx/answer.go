// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// answer reads a server's fixed answer to each request: a return in the server, or in its only location if that is /.
func (r *reader) answer(w *web) {
	if c := child("ssl_reject_handshake", w.node); on(c) {
		w.answer = "http-request reject"
		r.Approximate(c.at, "the handshake is completed, and requests for no name of another server are refused then")
		return
	}
	returns := child("return", w.node)
	if only := child("location", w.node); returns == nil && only != nil && len(only.words) == 2 &&
		only.word(1) == "/" && count("location", w.node) == 1 && child("proxy_pass", only) == nil {
		returns = child("return", only)
		if returns != nil {
			r.Carry(only.at)
		}
	}
	if returns == nil {
		return
	}
	rule, ok := answerRule(returns, w.node)
	if !ok {
		w.why = fmt.Sprintf("answers by `%s` at %s, which is not always the same text or address",
			strings.Join(returns.words, " "), returns.at)
		return
	}
	w.answer, w.redirect = rule, rule == toTLS
	if w.redirect {
		if returns.word(1) != "301" {
			r.Approximate(returns.at, "clients are sent to TLS by 301")
		}
		r.Carry(returns.at)
		return
	}
	r.Approximate(returns.at, "the same answer by HAProxy's rule, whose page and headers are its own")
}

// count returns the number of a block's directives of a name.
func count(name string, n *node) (found int) {
	for _, c := range n.children {
		if c.words[0] == name {
			found++
		}
	}
	return found
}

// toTLS redirects a client to the same host and path over TLS.
const toTLS = "http-request redirect scheme https code 301"

// literal matches a text that needs no quotation in HAProxy's language and contains no variable.
var literal = regexp.MustCompile(`^[A-Za-z0-9_.:,+@!/=()?&~*;-]+$`)

// answerRule converts a return to a rule of HAProxy.
func answerRule(c, server *node) (string, bool) {
	code, err := strconv.Atoi(c.word(1))
	to := c.word(2)
	switch {
	case err != nil:
		code, to = 302, c.word(1) // return URL
	case len(c.words) > 3:
		return "", false
	case code == 444: // the connection is closed without an answer
		return "http-request reject", to == ""
	}
	if code >= 301 && code <= 308 && code != 304 && to != "" {
		return redirectRule(code, to, server)
	}
	switch {
	case code < 200 || code > 599:
		return "", false
	case to == "":
		return fmt.Sprintf("http-request return status %d", code), true
	case strings.ContainsAny(to, "$'\\") || strings.ContainsFunc(to, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", false
	}
	return fmt.Sprintf("http-request return status %d content-type text/plain string '%s'", code, to), true
}

// redirectRule converts a redirect to an address to a rule of HAProxy.
func redirectRule(code int, to string, server *node) (string, bool) {
	if names := child("server_name", server); names != nil && literal.MatchString(names.word(1)) &&
		strings.HasPrefix(to, "https://$server_name") {
		to = "https://" + names.word(1) + strings.TrimPrefix(to, "https://$server_name")
	}
	if to == "https://$host$request_uri" || to == "https://$http_host$request_uri" {
		return toTLS, true
	}
	base, withURI := strings.CutSuffix(to, "$request_uri")
	if !literal.MatchString(base) || !slices.Contains([]int{301, 302, 303, 307, 308}, code) {
		return "", false
	}
	kind := "location"
	if withURI {
		kind = "prefix"
	}
	return fmt.Sprintf("http-request redirect %s %s code %d", kind, base, code), true
}

// chosen is the HAProxy variable with the number of the server that a request belongs to.
const chosen = "txn.server"

// answers adds rules for the servers of an address that answer requests themselves. Each name sets its server, in the
// reverse of nginx's order of precedence, so that nginx's choice remains.
func (r *reader) answers(s *draft.Service, p *place, list []name) {
	if s.Proxy.RedirectTLS || !slices.ContainsFunc(p.webs, func(w *web) bool { return w.answer != "" }) {
		return
	}
	number := func(w *web) int { return slices.Index(p.webs, w) }
	for _, one := range slices.Backward(list) {
		note := fmt.Sprintf("http-request set-var(%s) int(%d)", chosen, number(one.of))
		if one.host == "" {
			s.AddFrontend(note)
			continue
		}
		s.AddFrontend(note + " if " + draft.HostConditions([]string{one.host})[0])
	}
	for i, w := range p.webs {
		if w.answer != "" && (i == 0 || len(w.names) > 0) {
			s.AddFrontend(fmt.Sprintf("%s if { var(%s) -m int %d }", w.answer, chosen, i))
		}
	}
}
