// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// A rule that routes or rejects requests is carried over, as a key or verbatim. Otherwise the whole section is left
// out: without the rule, Jeoul would serve requests that HAProxy refuses, or send them elsewhere.

// ruleWords begin rules on connections, requests and responses.
var ruleWords = []string{"http-request", "http-response", "http-after-response", "redirect", "tcp-request",
	"tcp-response"}

// routing are other words that route or reject requests and have no counterpart.
var routing = []string{"use-server", "dispatch", "use-fcgi-app", "block", "reqdeny", "reqideny", "reqtarpit",
	"reqitarpit", "reqallow", "reqiallow",
	"rspdeny", "rspideny", "reqpass", "reqipass", "reqrep", "reqirep", "reqdel", "reqidel", "transparent"}

// passive are the actions of rules that neither reject a request nor change the requests to a backend.
var passive = []string{"capture", "set-log-level", "set-nice", "set-priority-class", "set-priority-offset", "set-tos",
	"set-mark", "disable-l7-retry", "cache-use", "cache-store",
	"early-hint", "accept", "allow", "track-sc0", "track-sc1", "track-sc2", "inspect-delay", "sc-inc-gpc",
	"sc-inc-gpc0", "sc-inc-gpc1", "sc-set-gpt", "sc-set-gpt0", "set-timeout"}

// cosmetic are the actions of rules that change header fields.
var cosmetic = []string{"set-header", "add-header"}

// action returns the action of a rule without arguments: the second word or, for TCP, the third.
func (l line) action() string {
	at := 1
	if l.words[0] == "tcp-request" || l.words[0] == "tcp-response" {
		if at = 2; l.is(l.words[0], "inspect-delay") {
			at = 1
		}
	}
	if l.is("redirect") {
		return "redirect"
	}
	if len(l.words) <= at {
		return ""
	}
	name, _, _ := strings.Cut(l.words[at], "(")
	return name
}

// isRule reports whether a line is a rule.
func (l line) isRule() bool { return slices.Contains(ruleWords, l.words[0]) }

// essential reports whether a service must not be made without the line.
func (l line) essential() bool {
	switch {
	case l.no:
		return false
	case l.unread != "":
		return l.isRule() || !slices.Contains(spared, l.unread)
	case slices.Contains(routing, l.words[0]):
		return true
	case l.is("option", "transparent"), l.is("option", "http_proxy"), l.is("option", "checkcache"),
		l.is("option", "http-restrict-req-hdr-names"):
		return true
	case l.is("filter"):
		return !l.is("filter", "compression") && !l.is("filter", "cache") && !l.is("filter", "trace") &&
			!l.is("filter", "opentracing")
	case !l.isRule() || slices.Contains(passive, l.action()):
		return false
	case l.is("http-response"), l.is("http-after-response"):
		return slices.Contains([]string{"deny", "return", "redirect", "tarpit", "wait-for-body"}, l.action())
	case slices.Contains(cosmetic, l.action()):
		at := slices.Index(l.words, l.action())
		return at+1 < len(l.words) && strings.EqualFold(l.words[at+1], "host")
	case l.is("tcp-response", "content", "close"):
		return false
	}
	return true
}

// canKeepVerbatim reports whether a line can be kept verbatim in a service.
func (l line) canKeepVerbatim() bool {
	return l.isRule() || l.is("option", "checkcache") || l.is("option", "http-restrict-req-hdr-names")
}

// spared are the first words of lines that may be left out if they cannot be read, because they concern a backend, an
// address or a log.
var spared = []string{"server", "bind", "log", "log-format", "log-tag", "errorfile", "description", "http-check",
	"tcp-check", "stats", "timeout", "balance"}

// unsafe returns why a listening section must not become services: which line of it, or of the sections that it leads
// to, can be carried over neither as a key nor verbatim. It returns "" if all lines can.
func (r *reader) unsafe(s *section, proxied bool) string {
	for _, part := range s.parts() {
		for of := part; of != nil; of = of.defaults {
			if of.undecided {
				return "stands or falls with a condition of the preprocessor (.if), which " + undecided
			}
		}
		for _, l := range part.all() {
			if l.undecided && !slices.Contains(spared, l.words[0]) {
				return "has the line " + l.at.String() + ", which " + undecided
			}
			if !l.essential() || r.keyed(s, part, l) {
				continue
			}
			_, why := r.asLines(part, l)
			if l.unread != "" {
				why = "it cannot be read"
			} else if !l.canKeepVerbatim() {
				why = "Jeoul has nothing like it"
			} else if !proxied {
				why = "a balancer of connections has nothing like it; --mode proxy takes such lines as they are"
			} else if part.kind == "backend" && len(s.parts()) > 2 || part.kind == "backend" && s.kind == "listen" {
				why = "a service's rules are of all its requests, and this one is of those to one of several sections"
			}
			if why != "" {
				return "has `" + r.Text(l.at) + "` at " + l.at.String() +
					", without which it would serve what it must not, or send it elsewhere (" + why + "); " + keep
			}
		}
	}
	return ""
}

// keyed reports whether a rule of a part becomes a key.
func (r *reader) keyed(s, part *section, l line) bool {
	switch {
	case l.is("tcp-request", "connection"):
		_, ok := part.connections()
		return ok && part.kind != "backend"
	case l.is("http-request", "deny"):
		_, ok := part.denies(l)
		return ok && !part.allowsBefore(l)
	case l.is("http-request", "redirect"), l.is("redirect"):
		return redirectsTLS(part, l) && !part.raw(l)
	}
	return false
}

// index returns the index of a section's rules, and builds it on the first call.
func (s *section) index() *ruleIndex {
	if s.rules != nil {
		return s.rules
	}
	s.rules = &ruleIndex{defined: map[string][]line{}, raw: map[string]int{}}
	for _, l := range s.all() {
		if l.is("acl") && len(l.words) > 1 {
			s.rules.defined[l.words[1]] = append(s.rules.defined[l.words[1]], l)
		}
	}
	for _, l := range s.all() {
		if s.rules.raw[l.words[0]] == 0 && s.isPlainRule(l) {
			s.rules.raw[l.words[0]] = l.at.Line
		}
		if s.rules.ends == 0 && l.is("http-request") &&
			slices.Contains([]string{"allow", "auth", "return", "redirect", "set-src", "tarpit"}, l.action()) {
			s.rules.ends = l.at.Line
		}
	}
	return s.rules
}

// isPlainRule reports whether a line is a rule without a key.
func (s *section) isPlainRule(l line) bool {
	if l.no || l.unread != "" || !l.isRule() || securityHeader(l) {
		return false
	}
	switch l.action() {
	case "set-header", "add-header", "del-header":
		return slices.Contains(l.words, "if") || slices.Contains(l.words, "unless")
	case "deny":
		_, ok := s.denies(l)
		return !ok
	case "redirect":
		return !redirectsTLS(s, l)
	}
	return true
}

// raw reports whether a verbatim rule precedes a line in a section, so that a key, whose rule comes first, would change
// the order. HAProxy evaluates rules of the same keyword in their order, and redirect after http-request.
func (s *section) raw(l line) bool {
	first := s.index().raw
	before := first[l.words[0]] > 0 && first[l.words[0]] < l.at.Line
	return before || l.is("redirect") && first["http-request"] > 0
}

// allowsBefore reports whether a rule before a line ends the evaluation for some requests.
func (s *section) allowsBefore(l line) bool {
	ends := s.index().ends
	return ends > 0 && ends < l.at.Line
}

// foreign matches samples and arguments that depend on other sections, scripts or names of proxies.
var foreign = regexp.MustCompile(
	`\b(http_auth|http_auth_group|lua\.|fe_[a-z]|be_[a-z]|bc_[a-z]|nbsrv|connslots|avg_queue|queue\b|srv_[a-z]|table_[a-z]|in_table|var\(proc|env\()` +
		`|\b(src|sc\d?)_[a-z_]+\([^)]*[A-Za-z]`)

// foreignActions depend on other sections or scripts.
var foreignActions = []string{"auth", "use-service", "cache-use", "cache-store", "send-spoe-group", "do-resolve",
	"add-acl", "del-acl", "set-map", "del-map", "lua", "normalize-uri", "attach-srv", "ot-group"}

// predefined matches ACLs that need no definition.
var predefined = regexp.MustCompile(
	`^(FALSE|TRUE|HTTP|HTTP_1\.[01]|HTTP_2\.0|HTTP_CONTENT|HTTP_URL_(ABS|SLASH|STAR)|LOCALHOST|METH_[A-Z]+|RDP_COOKIE|REQ_CONTENT|WAIT_END)$`)

// asLines returns a rule as self-contained lines of HAProxy's language: the ACLs that it names, and the rule. Otherwise
// why is the reason.
func (r *reader) asLines(s *section, l line) (lines []string, why string) {
	if l.unread != "" {
		return nil, "it cannot be read"
	}
	action := l.action()
	if slices.Contains(foreignActions, action) || strings.HasPrefix(action, "lua.") {
		return nil, "it needs another section, or a script"
	}
	if slices.Contains(l.words, "table") && strings.HasPrefix(action, "track-sc") {
		return nil, "it goes by the table of another section"
	}
	for _, name := range l.conditions() {
		definitions := s.definitions(name)
		if len(definitions) == 0 && !predefined.MatchString(name) || jeouls.MatchString(name) {
			return nil, "it goes by " + name + ", which the section does not define"
		}
		for _, d := range definitions {
			text, why := selfContained(d)
			if why != "" {
				return nil, why
			}
			lines = append(lines, text)
		}
	}
	text, why := selfContained(l)
	if why != "" {
		return nil, why
	}
	return append(lines, text), ""
}

// jeouls matches names of ACLs that the proxy engine generates.
var jeouls = regexp.MustCompile(`^route\d+(host|path)$`)

// conditions returns the names of the ACLs that a rule uses.
func (l line) conditions() (names []string) {
	from := slices.IndexFunc(l.words, func(w string) bool { return w == "if" || w == "unless" })
	if from < 0 {
		return nil
	}
	within := false
	for _, word := range l.words[from+1:] {
		switch {
		case word == "{" || word == "!{":
			within = true
		case word == "}":
			within = false
		case within || word == "!" || word == "or" || word == "||":
		default:
			names = append(names, strings.TrimPrefix(word, "!"))
		}
	}
	return names
}

// definitions returns the lines that define an ACL.
func (s *section) definitions(name string) []line { return s.index().defined[name] }

// selfContained returns a line in HAProxy's syntax, if it depends on nothing outside. Otherwise why is the reason.
func selfContained(l line) (text, why string) {
	words := make([]string, len(l.words))
	for i, word := range l.words {
		if foreign.MatchString(word) {
			return "", "it goes by " + word + ", which is of another section or outside"
		}
		if i > 0 && (l.words[i-1] == "-f" || l.words[i-1] == "-M") && !strings.HasPrefix(word, "/") ||
			mapFile.MatchString(word) {
			return "", "it goes by a file that is not named by its absolute path"
		}
		var ok bool
		if words[i], ok = quoted(word); !ok {
			return "", "it has a character that no line can have"
		}
	}
	return strings.Join(words, " "), ""
}

// mapFile matches a converter that reads a file by a path that is not absolute.
var mapFile = regexp.MustCompile(`map(_[a-z_]+)?\([^/]`)

// quoted quotes a word so that HAProxy reads it literally.
func quoted(word string) (string, bool) {
	if plain.MatchString(word) || slices.Contains([]string{"{", "}", "!{", "||"}, word) {
		return word, true
	}
	var text strings.Builder
	text.WriteByte('\'')
	for _, c := range word {
		switch {
		case c == '\'':
			text.WriteString(`'\''`)
		case c == '\n':
			text.WriteString(`'\n'`)
		case c == '\r':
			text.WriteString(`'\r'`)
		case c == '\t':
			text.WriteString(`'\t'`)
		case c < ' ' || c == 0x7f:
			return "", false
		default:
			text.WriteRune(c)
		}
	}
	text.WriteByte('\'')
	return text.String(), true
}

// forwards reports whether a rule sets X-Forwarded-Proto to the value that forwarded_for gives each request.
func (s *section) forwards(l line) bool {
	if !s.listens() || len(l.words) != 4 || !l.is("http-request", "set-header") ||
		!strings.EqualFold(l.words[2], "X-Forwarded-Proto") {
		return false
	}
	var option *line
	for _, o := range s.all() {
		switch {
		case o.is("option", "forwardfor") && (o.no || len(o.words) > 2):
			option = nil
		case o.is("option", "forwardfor"):
			option = &o
		case o.is("bind") && l.words[3] != map[bool]string{true: "https", false: "http"}[has(o, "ssl")]:
			return false
		}
	}
	return option != nil
}

// keepVerbatim keeps a rule verbatim in the lines for clients or, in a section with only servers, in the lines for
// backends. It returns the reason if it cannot.
func (r *reader) keepVerbatim(s *section, q *requests, l line) string {
	lines, why := r.asLines(s, l)
	into := &q.front
	if s.kind == "backend" {
		into = &q.back
	}
	switch {
	case why != "":
		return why
	case s.kind == "backend" && s.among:
		return "it is of the requests to this section alone, and a service's rules are of all its requests"
	case len(*into)+len(strings.Join(lines, "\n")) > mostLines:
		return "more lines than the configuration takes"
	}
	for _, text := range lines {
		if !slices.Contains(strings.Split(*into, "\n"), text) || !strings.HasPrefix(text, "acl ") {
			addLine(into, text)
		}
	}
	r.Carry(l.at)
	return ""
}

// connections returns a section's rules on connections in their order. ok is false if a rule depends on more than
// client addresses.
func (s *section) connections() (rules []draft.Rule, ok bool) {
	for _, l := range s.all() {
		if l.unread == "tcp-request" {
			return nil, false
		}
		if l.no || !l.is("tcp-request", "connection") || len(l.words) < 3 {
			continue
		}
		serve := l.words[2] == "accept"
		if !serve && l.words[2] != "reject" {
			return nil, false
		}
		rule := draft.Everyone(serve)
		if len(l.words) > 3 {
			if rule, ok = s.clients(l.words[3:]); !ok {
				return nil, false
			}
			rule.Serve = serve
		}
		rules = append(rules, rule)
	}
	return rules, true
}

// denies returns the clients that an http-request deny rejects by address alone.
func (s *section) denies(l line) (draft.Rule, bool) {
	at := slices.IndexFunc(l.words, func(w string) bool { return w == "if" || w == "unless" })
	if at < 0 || !l.is("http-request", "deny") || at > 2 &&
		!(at == 4 && l.words[2] == "deny_status" && l.words[3] == "403") {
		return draft.Rule{}, false
	}
	return s.clients(l.words[at:])
}

// clients returns the clients that a condition on their addresses alone matches; words begin with "if" or "unless".
func (s *section) clients(words []string) (rule draft.Rule, ok bool) {
	if len(words) < 2 || words[0] != "if" && words[0] != "unless" {
		return rule, false
	}
	rule.Others = words[0] == "unless"
	if words = words[1:]; words[0] == "!" {
		words, rule.Others = words[1:], !rule.Others
	} else if rest, negated := strings.CutPrefix(words[0], "!"); negated {
		words, rule.Others = slices.Concat([]string{rest}, words[1:]), !rule.Others
	}
	switch n := len(words); {
	case n == 1:
		for _, l := range s.definitions(words[0]) {
			list, isSource := networks(l.words[min(3, len(l.words)):])
			if len(l.words) < 4 || l.words[2] != "src" || !isSource {
				return rule, false
			}
			rule.Networks = append(rule.Networks, list...)
		}
		return rule, len(rule.Networks) > 0
	case n >= 4 && words[0] == "{" && words[1] == "src" && words[n-1] == "}":
		rule.Networks, ok = networks(words[2 : n-1])
	}
	return rule, ok
}

// access returns the access rules for a section's clients: from rules on connections, and from rules on requests to the
// section and to the section of its servers.
func (r *reader) access(s *section) (lists [][]draft.Rule) {
	if rules, ok := s.connections(); ok {
		lists = append(lists, rules)
	}
	for _, part := range []*section{s, s.main} {
		if part == nil || part == s.main && (part.among || part == s) && part != s {
			continue
		}
		for _, l := range part.all() {
			if rule, ok := part.denies(l); ok && !l.no && !part.allowsBefore(l) {
				lists = append(lists, []draft.Rule{rule})
			}
		}
		if s.main == s {
			break
		}
	}
	return lists
}
