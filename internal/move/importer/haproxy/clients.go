// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// clients reads ACLs and the rules on connections. Rules that reject clients must be lists of their addresses.
// Otherwise the section is left out: see unsafe.
func (r *reader) clients(s *section, l line) {
	switch {
	case l.is("acl"):
		r.acl(s, l)
	case l.is("tcp-request", "connection") && !l.essential() && l.action() != "accept":
		r.Left(l.at, "Jeoul counts and marks no connections for rules; limits bounds those of a service")
	case l.is("tcp-request", "connection"):
		r.Carry(l.at)
	case l.is("tcp-request", "inspect-delay"):
		r.Needless(l.at, "bounds how long HAProxy waits for what clients send, which Jeoul does not look into")
	default:
		r.Needless(l.at, "Jeoul does not look into what clients send, and no rule here refuses a connection by it")
	}
}

// acl carries over an ACL that the section uses, and remarks that any other is not needed.
func (r *reader) acl(s *section, l line) {
	if len(l.words) > 2 && (s.kind == "defaults" || s.names(l.words[1])) {
		r.Carry(l.at)
		return
	}
	r.Needless(l.at, "no rule goes by it")
}

// names reports whether a line of a section uses an ACL.
func (s *section) names(condition string) bool {
	return s.used[condition] || slices.ContainsFunc(s.lines, func(l line) bool {
		return !l.is("acl") && slices.Contains(l.conditions(), condition)
	})
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
