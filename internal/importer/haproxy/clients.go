// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/importer/draft"
)

const serveAll = "until allow or deny say otherwise, the services serve every client"

// clients reads ACLs of clients' addresses, and the rules that go by them.
func (r *reader) clients(s *section, l line) {
	switch {
	case l.is("acl"):
		r.acl(s, l)
	case l.is("tcp-request", "connection", "reject"):
		r.reject(s, l, l.words[3:])
	case l.is("tcp-request", "connection", "accept") && len(l.words) > 3 && l.words[3] == "if":
		of, negated, ok := condition(s, l.words[4:])
		if !ok || negated || !r.rejectsRest(s, l) {
			r.Left(l.at, "a rule that Jeoul has no like of; %s", serveAll)
			return
		}
		s.settings.allow = append(s.settings.allow, of...)
		r.Carry(l.at)
	case l.is("tcp-request", "inspect-delay"):
		r.Left(l.at, "Jeoul does not look into what clients send")
	default:
		r.Left(l.at, "a rule that Jeoul has no like of; %s", serveAll)
	}
}

// acl notes one of addresses.
func (r *reader) acl(s *section, l line) {
	if len(l.words) < 4 || l.words[2] != "src" {
		r.Left(l.at, "of what clients send, which Jeoul does not look into")
		return
	}
	prefixes, ok := networks(l.words[3:])
	if !ok {
		r.Left(l.at, "no list of networks; write it as allow or deny")
		return
	}
	s.settings.acls[l.words[1]] = append(s.settings.acls[l.words[1]], prefixes...)
	r.Carry(l.at)
}

// reject reads a rule that refuses clients: those of a list, or those of none.
func (r *reader) reject(s *section, l line, words []string) {
	if len(words) == 0 && len(s.settings.allow) > 0 { // after rules that accept
		r.Carry(l.at)
		return
	}
	of, negated, ok := []netip.Prefix(nil), false, false
	if len(words) > 1 && (words[0] == "if" || words[0] == "unless") {
		of, negated, ok = condition(s, words[1:])
		negated = negated != (words[0] == "unless")
	}
	switch {
	case !ok:
		r.Left(l.at, "a rule that Jeoul has no like of; %s", serveAll)
		return
	case negated:
		s.settings.allow = append(s.settings.allow, of...)
	default:
		s.settings.deny = append(s.settings.deny, of...)
	}
	r.Carry(l.at)
}

// rejectsRest says whether a rule without a condition stands below a line.
func (r *reader) rejectsRest(s *section, l line) bool {
	return slices.ContainsFunc(s.lines, func(other line) bool {
		return other.at.Line > l.at.Line && other.is("tcp-request", "connection", "reject") && len(other.words) == 3
	})
}

// condition returns the networks of a condition on clients' addresses alone.
func condition(s *section, words []string) (of []netip.Prefix, negated, ok bool) {
	if len(words) > 0 && words[0] == "!" {
		words, negated = words[1:], true
	}
	if len(words) > 0 && len(words[0]) > 1 && words[0][0] == '!' {
		words, negated = slices.Concat([]string{words[0][1:]}, words[1:]), true
	}
	switch n := len(words); {
	case n == 1:
		of, ok = s.settings.acls[words[0]]
	case n >= 4 && words[0] == "{" && words[1] == "src" && words[n-1] == "}":
		of, ok = networks(words[2 : n-1])
	}
	return of, negated, ok
}

// networks reads addresses and networks.
func networks(words []string) ([]netip.Prefix, bool) {
	var list []netip.Prefix
	for _, word := range words {
		prefix, ok := draft.Network(word)
		if !ok {
			return nil, false
		}
		list = append(list, prefix)
	}
	return list, len(list) > 0
}
