// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"cmp"
	"net/netip"
	"slices"
)

// Rule allows or denies clients by address. In a list of rules, the first one that matches a client decides.
type Rule struct {
	// Networks match the clients in them. If Others is set, the rule matches all other clients instead.
	Networks []netip.Prefix
	Others   bool
	// Serve reports whether clients that match are served.
	Serve bool
}

// Everyone returns a rule that matches all clients.
func Everyone(serve bool) Rule { return Rule{Others: true, Serve: serve} }

// matches reports whether a rule matches the clients of a node: the clients for which node is the smallest named
// network. All other named networks that have these clients contain node.
func (r Rule) matches(node netip.Prefix) bool {
	in := slices.ContainsFunc(r.Networks, func(n netip.Prefix) bool {
		return n.Bits() <= node.Bits() && n.Overlaps(node)
	})
	return in != r.Others
}

// Access returns allow and deny lists that serve the same clients of addr's family as the rules. Each list of rules is
// tried in its order. A client that no rule of a list matches is served by that list, and a client must be served by
// all lists. In Jeoul the longest matching prefix decides, so each network of a rule gets the decision of the first
// rule that matches it. noClients: no client is served, which allow and deny cannot express.
func Access(addr netip.Addr, lists ...[]Rule) (allow, deny []netip.Prefix, noClients bool) {
	root := netip.PrefixFrom(addr, 0).Masked()
	nodes := []netip.Prefix{root}
	for _, rule := range slices.Concat(lists...) {
		for _, n := range OfFamily(rule.Networks, addr) {
			nodes = appendNew(nodes, n)
		}
	}
	slices.SortStableFunc(nodes, func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) })
	served := map[netip.Prefix]bool{}
	for i, node := range nodes {
		served[node] = decide(node, lists)
		if i > 0 && served[node] == served[enclosing(nodes[:i], node)] {
			continue // the enclosing network has the same decision
		}
		if served[node] {
			allow = append(allow, node)
		} else {
			deny = append(deny, node)
		}
	}
	switch {
	case !served[root]:
		return allow, deny[1:], len(allow) == 0
	case len(allow) == 1: // the root alone
		return nil, deny, false
	}
	return allow, deny, false
}

// decide reports whether the clients of a node are served.
func decide(node netip.Prefix, lists [][]Rule) bool {
	for _, rules := range lists {
		first := slices.IndexFunc(rules, func(r Rule) bool { return r.matches(node) })
		if first >= 0 && !rules[first].Serve {
			return false
		}
	}
	return true
}

// enclosing returns the smallest network in nodes, which are sorted by prefix length, that contains a network.
func enclosing(nodes []netip.Prefix, of netip.Prefix) netip.Prefix {
	for _, node := range slices.Backward(nodes) {
		if node.Overlaps(of) {
			return node
		}
	}
	return nodes[0]
}
