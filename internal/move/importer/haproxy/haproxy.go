// SPDX-License-Identifier: Apache-2.0

// Package haproxy reads haproxy.cfg. Sections that speak HTTP or terminate TLS become services in mode proxy, all
// others services of layer 4.
package haproxy

import (
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// Read reads a file into a draft.
func Read(d *draft.Draft, file draft.File) error {
	lines, err := d.Lines(file)
	if err != nil {
		return err
	}
	if err := d.CheckDialect(lines); err != nil {
		return err
	}
	r := &reader{Draft: d}
	r.split(lines)
	r.bases()
	r.servedBy = map[string]*section{}
	for _, kind := range []string{"listen", "backend"} { // backend last: it wins where both have the name
		for _, s := range slices.Backward(r.sections) {
			if s.kind == kind {
				r.servedBy[s.name] = s
			}
		}
	}
	for _, s := range r.sections {
		if s.listens() {
			r.decide(s)
		}
	}
	for _, s := range r.sections {
		if s.kind == "global" { // first, because other sections use its log
			r.remark(s)
		}
	}
	for _, s := range r.sections {
		if s.kind != "global" {
			r.remark(s)
		}
	}
	for _, s := range r.sections {
		if s.listens() && s.carried {
			r.serve(s)
		}
	}
	r.last()
	return nil
}

// last adds the remarks that depend on which services were made.
func (r *reader) last() {
	for _, s := range r.sections {
		if s.kind == "resolvers" {
			r.resolvers(s)
		}
		for _, l := range s.lines {
			if s.carried && l.unread == "" && (l.is("server") || l.is("server-template")) && !r.Noted(l.at) {
				r.Left(l.at, "no service that is carried over has it")
			}
		}
	}
}

// others are sections that do not concern balancing.
var others = map[string]string{
	"userlist":  "Jeoul asks clients for no passwords; " + keep,
	"peers":     "balancers tell each other of flows as members (members, by a key and their addresses); stick tables of mode proxy are of each balancer alone",
	"resolvers": "its servers are not those of a service",
	"mailers":   "Jeoul sends no mail; watch its events or metrics",
	"cache":     "Jeoul keeps no answers; " + keep, "http-errors": "Jeoul answers by HAProxy's own pages",
	"ring": "is of HAProxy's log", "log-forward": "is of HAProxy's log", "program": "is of HAProxy's process",
	"fcgi-app": "Jeoul does not speak FastCGI; " + keep, "crt-list": nameCertificates, "crt-store": nameCertificates,
	"traces": "is of HAProxy's log", "log-profile": "is of HAProxy's log",
	"acme": "Jeoul obtains no certificates; an ACME client writes files that it takes when they change",
}

// sectionWords begin a section that concerns balancing.
var sectionWords = []string{"global", "defaults", "frontend", "backend", "listen"}

// split splits lines into sections.
func (r *reader) split(lines []draft.Line) {
	var now, defaults *section
	conditions := preprocessor{Draft: r.Draft}
	for _, l := range lines {
		words, err := split(l.Text)
		if conditions.take(l, words) || len(words) == 0 && err == nil {
			continue
		}
		here := conditions.holds()
		if here == fails {
			r.Needless(l.At, "holds under a condition of the preprocessor (.if) that does not hold")
			continue
		}
		if err != nil {
			r.Left(l.At, "%v", err)
			if now != nil {
				first, _, _ := strings.Cut(strings.TrimSpace(l.Text), " ")
				now.lines = append(now.lines, line{at: l.At, words: []string{unreadable}, unread: first})
			}
			continue
		}
		if slices.Contains(sectionWords, words[0]) || others[words[0]] != "" {
			now = r.begin(l, words, defaults)
			if now.undecided = here == unknown; now.kind == "defaults" {
				defaults = now
			}
			continue
		}
		if now == nil {
			r.Left(l.At, "stands before the first section; look at it by hand")
			continue
		}
		entry := line{at: l.At, words: words, undecided: here == unknown}
		if words[0] == "no" && len(words) > 1 {
			entry.words, entry.no = words[1:], true
		}
		now.lines = append(now.lines, entry)
	}
}

// begin begins a section.
func (r *reader) begin(l draft.Line, words []string, defaults *section) *section {
	now := &section{kind: words[0], at: l.At, defaults: defaults, settings: newSettings()}
	if len(words) > 1 {
		now.name = words[1]
	}
	if at := slices.Index(words, "from"); at > 0 && at+1 < len(words) {
		now.defaults = r.named("defaults", words[at+1])
	}
	if now.kind == "defaults" && !slices.Contains(words, "from") {
		now.defaults = nil
	}
	r.sections = append(r.sections, now)
	return now
}

// target returns the section with the servers of a listening section, or nil.
func (r *reader) target(s *section) *section {
	name := ""
	for _, l := range s.all() {
		if l.is("default_backend") && len(l.words) > 1 {
			name = l.words[1]
		}
	}
	for _, l := range s.lines {
		if l.is("use_backend") && len(l.words) == 2 && !strings.Contains(l.words[1], "%[") {
			name = l.words[1]
			break
		}
	}
	if name == "" && s.kind == "listen" {
		return s
	}
	if b := r.named("backend", name); b != nil {
		return b
	}
	return r.named("listen", name)
}

// decide determines whether services can be made from a listening section, and in which mode.
func (r *reader) decide(s *section) {
	s.main = r.target(s)
	if r.asProxy(s) {
		r.readRoutes(s)
		r.borrowServers(s)
	}
	s.why = r.whyNot(s, s.main)
	parts := s.parts()
	if s.why != "" {
		for _, to := range parts[1:] {
			if to != s && to.why == "" {
				to.why = "of the " + s.kind + " " + s.name + ", which " + s.why
			}
		}
		return
	}
	proxied := r.needsEngine(s)
	for _, used := range parts {
		used.among = used.among || len(parts) > 2 || len(parts) == 2 && s.kind == "listen"
		for ; used != nil; used = used.defaults {
			used.carried, used.proxied, used.direct = true, used.proxied || proxied, used.direct || !proxied
		}
	}
	r.proxying = r.proxying || proxied
}

// whyNot returns the reason why no service can be made from a section, or "".
func (r *reader) whyNot(s, to *section) string {
	for _, l := range slices.Concat(s.lines, linesOf(to)) {
		if l.is("disabled") && !l.no {
			return "is disabled"
		}
	}
	proxied := to != nil && r.needsEngine(s)
	if why := r.unsafe(s, proxied); why != "" && (to != nil || len(s.routes) > 0) {
		return why
	}
	switch {
	case r.asProxy(s):
		return r.whyNotProxy(s, to)
	case slices.ContainsFunc(slices.Concat(s.lines, linesOf(to)), func(l line) bool {
		return l.is("use_backend") && (len(l.words) > 2 || strings.Contains(l.last(), "%["))
	}):
		return "chooses backends by what clients send, which mode proxy does for HTTP alone; " + keep
	case to == nil:
		return "has no backend"
	case !s.http() && !to.http():
		return ""
	case !r.HTTPAsTCP:
		return "is of HTTP, which mode proxy serves: leave --mode out, or give --http-as-tcp where balancing connections is enough"
	}
	for _, l := range slices.Concat(s.all(), to.all()) {
		if what := onlyHTTP(l); what != "" {
			return "has `" + what + "`: " + needsProxy
		}
	}
	return ""
}

// onlyHTTP returns a line's demand that a balancer of connections cannot meet, or "".
func onlyHTTP(l line) string {
	if l.no {
		return ""
	}
	switch l.words[0] {
	case "http-request", "http-response", "http-after-response", "redirect", "cookie", "compression", "capture",
		"monitor-uri", "stats", "appsession",
		"reqadd", "reqrep", "reqirep", "reqdel", "rspadd", "rsprep", "rspdel", "filter", "use-server":
		return strings.Join(l.words[:min(2, len(l.words))], " ")
	case "option":
		if len(l.words) > 1 &&
			slices.Contains([]string{"forwardfor", "originalto", "http_proxy", "httpclose", "forwarded"}, l.words[1]) {
			return "option " + l.words[1]
		}
	case "balance":
		if len(l.words) > 1 && (l.words[1] == "uri" || l.words[1] == "url_param" ||
			strings.HasPrefix(l.words[1], "hdr") || strings.HasPrefix(l.words[1], "hash")) {
			return "balance " + l.words[1]
		}
	}
	return ""
}

// remark reads the lines of a section, or leaves them out.
func (r *reader) remark(s *section) {
	switch {
	case s.kind == "global":
		r.globals(s)
	case s.kind == "resolvers": // read after the servers
	case others[s.kind] != "":
		r.leave(s, others[s.kind])
	case !s.carried && s.kind == "defaults":
		r.leave(s, "of sections that are left out")
	case !s.carried:
		why := s.why
		if why == "" {
			why = "no frontend that is carried over leads to it"
		}
		r.leave(s, why)
	default:
		r.Carry(s.at)
		for _, l := range s.lines {
			switch {
			case l.unread != "": // it has a remark already
			case l.undecided:
				r.Left(l.at, undecided)
			case r.proxySetting(s, l):
			case r.setting(s, l):
			case s.proxied:
				r.Left(l.at, "no key is like it; where it is needed, proxy.frontend and proxy.backend take lines of HAProxy's")
			default:
				r.Left(l.at, "Jeoul has nothing like it; look at it by hand")
			}
		}
	}
}

// leave leaves out a section.
func (r *reader) leave(s *section, why string) {
	r.Left(s.at, "%s", why)
	for _, l := range s.lines {
		if l.unread == "" {
			r.Left(l.at, "of the %s at %s, which is left out", s.kind, s.at)
		}
	}
}
