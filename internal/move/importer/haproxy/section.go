// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// Remedies for lines that cannot be carried over.
const (
	needsProxy = "needs mode proxy: leave --mode and --http-as-tcp out"
	keep       = "keep HAProxy in front of the backends that need it"
)

// line is a line of a section, split into words. no is set if the line begins with "no".
type line struct {
	at    remark.At
	words []string
	no    bool
	// unread is the first word of a line that cannot be read. The line's only word is then unreadable.
	unread string
	// undecided: the line is under a condition whose value is unknown.
	undecided bool
}

// unreadable replaces the words of a line that cannot be read.
const unreadable = "(unreadable)"

// is reports whether a line begins with the words.
func (l line) is(words ...string) bool {
	return len(l.words) >= len(words) && slices.Equal(l.words[:len(words)], words)
}

// last returns the last word.
func (l line) last() string { return l.words[len(l.words)-1] }

// section is a part of the file: global, defaults, frontend, backend, listen, or another one.
type section struct {
	kind, name string
	at         remark.At
	lines      []line
	defaults   *section // nil: no defaults precede it
	// carried: a service is made from the section, or uses it.
	carried bool
	// whole has the section's lines after those of its defaults. rules is the index of its rules. Both are set on first
	// use.
	whole []line
	rules *ruleIndex
	// proxied: some services of the section are in mode proxy; direct: some are not.
	proxied, direct bool
	// main is the section with the servers of a listening section, or nil. routes lead some requests to other sections.
	main   *section
	routes []route
	// led has the lines of the routes, each with its difference or "". used has the names of the ACLs that they use.
	led  map[remark.At]string
	used map[string]bool
	// unserved: requests that take no route have no backend.
	unserved bool
	// misroutes is the reason why some requests would not go where HAProxy sends them.
	misroutes string
	// undecided: the section is under a condition whose value is unknown.
	undecided bool
	// among: it is one of several sections that a service is made from.
	among    bool
	settings *settings
	servers  []server // set once they are read
	// discovery is the source of further servers.
	discovery lb.Discovery
	// why is the reason why no service is made from the section.
	why string
}

// reader reads one input.
type reader struct {
	*draft.Draft
	sections []*section
	// proxying: there are services in mode proxy.
	proxying bool
	// servedBy has the sections with servers, by name.
	servedBy map[string]*section
	// crtBase and caBase are the base directories of certificates and certificate authorities with relative paths.
	crtBase, caBase string
}

// named returns the section of a kind and name, or nil.
func (r *reader) named(kind, name string) *section {
	for _, s := range r.sections {
		if s.kind == kind && s.name == name {
			return s
		}
	}
	return nil
}

// listens reports whether clients connect to a section.
func (s *section) listens() bool { return s.kind == "frontend" || s.kind == "listen" }

// all returns the lines of a section after those of its defaults.
func (s *section) all() []line {
	if s.whole == nil && s.defaults == nil {
		return s.lines
	}
	if s.whole == nil {
		s.whole = slices.Concat(s.defaults.all(), s.lines)
	}
	return s.whole
}

// last returns the last line of a section or its defaults that begins with a word, or nil.
func (s *section) last(word string) *line {
	lines := s.all()
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i].is(word) {
			return &lines[i]
		}
	}
	return nil
}

// http reports whether a section is in mode http.
func (s *section) http() bool {
	if s == nil {
		return false
	}
	mode := s.last("mode")
	return mode != nil && mode.is("mode", "http")
}

// parts returns a listening section and the sections that it leads to, without duplicates.
func (s *section) parts() []*section {
	list, have := []*section{s}, map[*section]bool{s: true, nil: true}
	add := func(to *section) {
		if !have[to] {
			list, have[to] = append(list, to), true
		}
	}
	add(s.main)
	for _, route := range s.routes {
		add(route.to)
	}
	return list
}

func linesOf(s *section) []line {
	if s == nil {
		return nil
	}
	return s.lines
}

// settings are the settings of a section, as read from its lines.
type settings struct {
	balance       *line
	maxconn, rate uint64
	connect       time.Duration
	checkTimeout  time.Duration
	check         *check
	// checkCommand is the program of option external-check.
	checkCommand []string
	// server has the parameters of default-server.
	server      []string
	transparent bool
	persistence time.Duration
	prefix      clientBits
	allBackups  bool
	requests    requests
}

func newSettings() *settings { return &settings{} }

// clientBits is the number of leading address bits that identify a client, by family; 0: all.
type clientBits struct{ four, six int }

// server is a server of a section.
type server struct {
	at      remark.At
	name    string
	address string
	backend lb.Backend
	// check and the fields below it describe the server's check; 0: HAProxy's default.
	check                  bool
	inter, fast, slowStart time.Duration
	rise, fall, checkPort  uint16
	checkTLS, verify       bool
	checkSNI, ca           string
	agent                  lb.Check
	ssl, closes            bool
	// sendProxy is the version of the PROXY protocol that the server expects; 0: none.
	sendProxy uint8
	// template: the server is a template for all servers that a name has in the DNS.
	template bool
	// proto is the value of the parameter proto. resolvers is the section resolvers for the server's name.
	proto, resolvers string
	// left are parameters without a counterpart, tls are those for TLS, and needless are those without an effect, with
	// the reason.
	left, tls, needless []string
	// plain are parameters for TLS that are read. Without TLS they have no effect.
	plain []string
}

// route is a use_backend whose condition routes can express.
type route struct {
	at remark.At
	to *section
	// when has the alternatives. differs describes a difference.
	when    []lb.Route
	differs string
	// acls are the names of the ACLs that the route uses.
	acls []string
}

// test is a condition on a request's host or path.
type test struct {
	hosts, paths []string
	differs      string
}

// ruleIndex is the index of a section's rules, of which there may be thousands.
type ruleIndex struct {
	// defined has the lines of each ACL, by name.
	defined map[string][]line
	// raw is the first line of a verbatim rule, by keyword. ends is the first line of a rule that ends the evaluation
	// for some requests; 0: none.
	raw  map[string]int
	ends int
}

// check describes HAProxy's check of a section's servers.
type check struct {
	kind lb.CheckType
	http lb.HTTPCheck
	tls  bool
	sni  string
	port uint16
	// option: the section's own option has set kind. sent: http-check send has set the request.
	option, sent bool
}

// requests has a section's settings of connections and requests in mode proxy.
type requests struct {
	// forward: option forwardfor is set; noForward: it is disabled.
	forward, noForward bool

	retries  *uint8
	timeouts lb.ProxyTimeouts
	cookie   string
	redirect bool
	security bool
	// request and response are header fields. front and back are verbatim lines for clients and for backends.
	request, response []lb.Header
	front, back       string
}
