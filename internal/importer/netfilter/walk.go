// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"slices"

	"github.com/jeoul/jeoul/internal/remark"
)

// deepest and mostSteps bound the walk: the kernel refuses chains that lead in a circle, and a file
// may have any.
const (
	deepest   = 16
	mostSteps = 1 << 17
)

// entry is a destination that new connections get.
type entry struct {
	at      remark.At
	address string
	share   float64
}

// group has what packets of one match get.
type group struct {
	match
	at      remark.At
	entries []entry
	// turns and bySource say how the shares are taken.
	turns, bySource bool
	// through are the rules that led there.
	through []remark.At
}

// walk goes through a chain with packets of a match, of which the share mass comes, and returns
// which share of them has got a destination there.
func (r *reader) walk(chain string, m match, mass float64, depth int, through ...remark.At) float64 {
	left := map[string]float64{}
	taken := 0.0
	for _, rule := range r.chains[chain] {
		if r.steps++; r.steps > mostSteps || depth > deepest {
			r.Left(rule.at, "chains lead to each other in a circle, or to too many others; look at it by hand")
			return taken
		}
		both, possible := m.and(rule.match)
		if !possible {
			continue
		}
		key := both.key()
		if _, met := left[key]; !met {
			left[key] = mass
		}
		share := left[key]
		if rule.partly {
			share *= rule.share
		}
		gone := r.apply(rule, both, share, depth, through)
		left[key] -= gone
		if key == m.key() {
			taken += gone
		}
	}
	return taken
}

// apply does what a rule does with a share of packets, and returns which has gone by it.
func (r *reader) apply(rule rule, m match, share float64, depth int, through []remark.At) float64 {
	_, isChain := r.chains[rule.target]
	switch {
	case rule.target == "DNAT":
		if m.unknown != "" {
			r.Left(rule.at, "matches by %s, which Jeoul does not know of packets", m.unknown)
			return share
		}
		r.destine(rule, m, share, through)
		return share
	case isChain && !slices.Contains([]string{"PREROUTING", "POSTROUTING", "OUTPUT", "INPUT"}, rule.target):
		outer := r.turns
		r.turns = outer || rule.turns
		gone := r.walk(rule.target, m, share, depth+1, append(slices.Clone(through), rule.at)...)
		r.turns = outer
		return gone
	case rule.target == "DROP", rule.target == "REJECT":
		r.Left(rule.at, "refuses packets that match it; write deny for clients that shall not be served")
		return share
	case rule.target == "REDIRECT":
		r.Left(rule.at, "sends to this host itself: %s", keep)
		return share
	case rule.target == "RETURN", rule.target == "ACCEPT":
		r.Left(rule.at, "keeps packets from being balanced that match it; where they are of clients that shall not be served, write deny")
		return share
	case rule.target == "" && m.unknown != "":
		r.Left(rule.at, "matches by %s, which Jeoul does not know of packets", m.unknown)
	case rule.target == "":
		r.Left(rule.at, "does nothing but count")
	default:
		r.Left(rule.at, "Jeoul has no like of the target %s", rule.target)
	}
	return 0
}

// destine notes destinations for a share of the packets of a match.
func (r *reader) destine(rule rule, m match, share float64, through []remark.At) {
	key := m.key()
	g := r.byKey[key]
	if g == nil {
		g = &group{match: m, at: rule.at}
		r.byKey[key] = g
		r.groups = append(r.groups, g)
	}
	g.turns, g.bySource = g.turns || rule.turns || r.turns, g.bySource || rule.bySource
	g.through = append(g.through, through...)
	if len(rule.addresses) == 0 {
		r.Left(rule.at, "no --to-destination")
		return
	}
	for i, address := range rule.addresses {
		part := 1 / float64(len(rule.addresses))
		if rule.shares != nil {
			part = rule.shares[i]
		}
		g.entries = append(g.entries, entry{rule.at, address, share * part})
	}
}
