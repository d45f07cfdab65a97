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

// line is a line of a section, in words; no says that it takes something back.
type line struct {
	at    remark.At
	words []string
	no    bool
	// unread is the first word of a line that cannot be read; its only word is unreadable.
	unread string
	// undecided: the line holds under a condition that is not known.
	undecided bool
}

// unreadable stands for the words of a line that cannot be read.
const unreadable = "(unreadable)"

// is reports whether a line begins with words.
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
	defaults   *section // nil: none stands before it
	// carried: a service is made of it, or goes by it.
	carried bool
	// whole are its lines behind those of its defaults, and rules the index of its rules: both once they are asked for.
	whole []line
	rules *ruleIndex
	// proxied: some of them are of mode proxy; direct: some are not.
	proxied, direct bool
	// main has the servers of one that listens, nil if none has, and routes those of some requests.
	main   *section
	routes []route
	// led are the lines of the routes, each with a difference, if there is one, and used the names of ACLs that they go
	// by.
	led  map[remark.At]string
	used map[string]bool
	// unserved: requests that take no route have none.
	unserved bool
	// misroutes is the reason why some requests would go elsewhere than HAProxy sends them.
	misroutes string
	// undecided: the section is there under a condition that is not known.
	undecided bool
	// among: it is one of several that a service is made of.
	among    bool
	settings *settings
	servers  []server // once they are read
	// discovery is where further servers are found.
	discovery lb.Discovery
	// why is the reason why there is none.
	why string
}

// reader reads one input.
type reader struct {
	*draft.Draft
	sections []*section
	// proxying: there are services of mode proxy.
	proxying bool
	// servedBy are the sections with servers, by name.
	servedBy map[string]*section
	// crtBase and caBase are the directories of certificates and authorities whose paths are relative.
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

// all are the lines of a section after those of its defaults.
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

// http reports whether a section is of HTTP.
func (s *section) http() bool {
	if s == nil {
		return false
	}
	mode := s.last("mode")
	return mode != nil && mode.is("mode", "http")
}

// parts are a section that listens and those that it leads to, each once.
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

// settings are the settings of a section, by its lines.
type settings struct {
	balance       *line
	maxconn, rate uint64
	connect       time.Duration
	checkTimeout  time.Duration
	check         *check
	// server are the words of default-server.
	server      []string
	transparent bool
	persistence time.Duration
	prefix      clientBits
	allBackups  bool
	requests    requests
}

func newSettings() *settings { return &settings{} }

// clientBits are the leading bits that tell clients apart, by family; 0: all.
type clientBits struct{ four, six int }

// server is a server of a section.
type server struct {
	at      remark.At
	name    string
	address string
	backend lb.Backend
	// check and the fields behind it say how the server is checked; 0: as HAProxy does.
	check                  bool
	inter, fast, slowStart time.Duration
	rise, fall, checkPort  uint16
	checkTLS, verify       bool
	checkSNI, ca           string
	agent                  lb.Check
	ssl, closes            bool
	// sendProxy is the version of the PROXY protocol that it expects; 0: none.
	sendProxy uint8
	// template: it stands for the servers that a name has in the DNS.
	template bool
	// proto is the protocol that it speaks, where the line names one, and resolvers the section of those that know its
	// name.
	proto, resolvers string
	// left are parameters that have no counterpart, tls those of TLS, and needless those that change nothing, with the
	// reason.
	left, tls, needless []string
	// plain are the words of TLS that are read: without TLS they change nothing.
	plain []string
}

// route is a use_backend whose condition routes can have.
type route struct {
	at remark.At
	to *section
	// when are alternatives; differs names a difference.
	when    []lb.Route
	differs string
	// acls are the names of the ACLs that it goes by.
	acls []string
}

// test is a condition on a request's host or path.
type test struct {
	hosts, paths []string
	differs      string
}

// ruleIndex is the index of a section's rules: a list may have thousands of them.
type ruleIndex struct {
	// defined are the lines of conditions by their names.
	defined map[string][]line
	// raw has the first line of a verbatim rule, by its keyword, and ends that of a rule that ends the processing of
	// some requests; 0: there is none.
	raw  map[string]int
	ends int
}

// check is how HAProxy asks the servers of a section.
type check struct {
	kind lb.CheckType
	http lb.HTTPCheck
	tls  bool
	sni  string
	port uint16
	exec []string
}

// requests has a section's settings of connections and requests, as mode proxy has them.
type requests struct {
	// forward and noForward say that option forwardfor is there, or undone.
	forward, noForward bool

	retries  *uint8
	timeouts lb.ProxyTimeouts
	cookie   string
	redirect bool
	security bool
	// request and response are header fields, and front and back lines that stand as they are.
	request, response []lb.Header
	front, back       string
}
