// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"cmp"
	"net/netip"
	"slices"
)

// Rule decides on clients by their address. The first rule of a list that matches a client counts.
type Rule struct {
	// Networks match the clients in them, or, where Others is set, all clients but those.
	Networks []netip.Prefix
	Others   bool
	// Serve reports whether clients that match are served.
	Serve bool
}

// Everyone returns a rule on all clients.
func Everyone(serve bool) Rule { return Rule{Others: true, Serve: serve} }

// matches reports whether a rule matches the clients whose smallest network, of all that are named, is node: all other
// networks that they are in contain it.
func (r Rule) matches(node netip.Prefix) bool {
	in := slices.ContainsFunc(r.Networks, func(n netip.Prefix) bool {
		return n.Bits() <= node.Bits() && n.Overlaps(node)
	})
	return in != r.Others
}

// Access returns the lists with which Jeoul serves the same clients of addr's family as the rules. Each list of rules
// is tried in its order; a client that matches no rule of it is served, and a client must be served by all lists. In
// Jeoul the longest matching prefix decides, so each network of a rule gets the decision of the first rule that matches
// it. noClients: no client is served, which lists cannot express.
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
			continue // as without it
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

// enclosing returns the smallest of several networks, in the order of their size, that a network is in.
func enclosing(nodes []netip.Prefix, of netip.Prefix) netip.Prefix {
	for _, node := range slices.Backward(nodes) {
		if node.Overlaps(of) {
			return node
		}
	}
	return nodes[0]
}
