// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// perLine is the number of networks in a line, which holds up to 64 words.
const perLine = 32

// entry is a network whose clients are served or denied.
type entry struct {
	network netip.Prefix
	denied  bool
}

// clients writes the rules that allow and deny clients. In Jeoul the longest matching prefix decides, and in HAProxy
// the first rule that matches.
func (w *writer) clients() {
	s := w.service
	if !s.RestrictsClients() {
		return
	}
	if len(s.Allow) == 0 || len(s.Deny) == 0 || !overlap(s) {
		for batch := range slices.Chunk(s.Deny, perLine) {
			w.rule("reject", batch)
		}
		for batch := range slices.Chunk(s.Allow, perLine) {
			w.rule("accept", batch)
		}
	} else {
		for _, e := range bySize(s) {
			w.rule(map[bool]string{true: "reject", false: "accept"}[e.denied], []netip.Prefix{e.network})
		}
	}
	if len(s.Allow) > 0 {
		w.line("tcp-request", "connection", "reject")
	}
}

// overlap reports whether an allowed network is within a denied one. Otherwise the denied networks can come first.
func overlap(s lb.Service) bool {
	denied := make(map[netip.Prefix]bool, len(s.Deny))
	lengths := map[int]bool{}
	for _, d := range s.Deny {
		denied[d], lengths[d.Bits()] = true, true
	}
	return slices.ContainsFunc(s.Allow, func(a netip.Prefix) bool {
		for bits := range lengths {
			if bits < a.Bits() && denied[netip.PrefixFrom(a.Addr(), bits).Masked()] {
				return true
			}
		}
		return false
	})
}

// bySize returns the networks, longest prefix first.
func bySize(s lb.Service) []entry {
	var all []entry
	for _, network := range s.Allow {
		all = append(all, entry{network, false})
	}
	for _, network := range s.Deny {
		all = append(all, entry{network, true})
	}
	slices.SortStableFunc(all, func(a, b entry) int { return b.network.Bits() - a.network.Bits() })
	return all
}

// rule writes a rule that applies the action to connections from the networks.
func (w *writer) rule(action string, networks []netip.Prefix) {
	words := []string{"tcp-request", "connection", action, "if", "{", "src"}
	for _, network := range networks {
		words = append(words, network.String())
	}
	w.line(append(words, "}")...)
}
