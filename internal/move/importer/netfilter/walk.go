// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/move/remark"
)

// deepest and mostSteps limit the walk. The kernel rejects chains that form a loop, but a file may contain them.
const (
	deepest   = 16
	mostSteps = 1 << 17
)

// terminal are the targets that end a chain for a packet. Others, such as LOG and MARK, continue with the next rule.
var terminal = []string{"ACCEPT", "RETURN", "DROP", "REJECT", "REDIRECT", "QUEUE", "NFQUEUE", "TPROXY", "NETMAP",
	unreadable}

// unreadable is the target of a rule that cannot be read, and may do anything.
const unreadable = "?"

// full is the share of all packets, less rounding errors.
const full = 1 - 1e-9

// walk evaluates a chain for packets of a match, of which the fraction mass arrives. It returns the fraction of packets
// that got a destination in the chain.
func (r *reader) walk(chain string, m match, mass float64, depth int, through ...remark.At) float64 {
	left, seen := map[string]float64{}, map[string]float64{}
	taken := 0.0
	defer r.kept.leave(depth)
	for _, rule := range r.chains[chain] {
		if r.steps++; r.steps > mostSteps || depth > deepest {
			r.Left(rule.at, "chains lead to each other in a circle, or to too many others; look at it by hand")
			m.unknown = "chains that cannot be followed"
			r.kept.add(exception{match: m, at: rule.at})
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
		if key != m.key() { // mass already excludes what is gone for m's own key
			left[key] -= mass * (r.gone[key] - seen[key])
		}
		share := max(left[key], 0)
		if rule.partly {
			share *= rule.share
		}
		gone := r.apply(rule, both, share, depth, through)
		returns := r.returns(rule, depth) > 0
		if !returns && (rule.target == "DNAT" || slices.Contains(terminal, rule.target)) {
			r.gone[key] += gone
		}
		left[key], seen[key] = left[key]-gone, r.gone[key]
		if key == m.key() && !returns {
			taken += gone
		}
		r.keep(rule, both, left[key], gone, depth)
	}
	return taken
}

// returns returns the depth of the chains that a rule ends for its packets, which continue after those chains; 0:
// packets do not continue. With several chains at a hook, nft's accept ends only one of them.
func (r *reader) returns(rule rule, depth int) int {
	const base = 1
	switch {
	case rule.target == "RETURN" && depth > 0:
		return depth + 1
	case rule.target == "ACCEPT" && depth > 0 && r.several:
		return base + 1
	}
	return 0
}

// keep records which packets a rule keeps from later rules.
func (r *reader) keep(rule rule, m match, left, gone float64, depth int) {
	e := exception{match: m, at: rule.at}
	e.within = r.returns(rule, depth)
	switch {
	case slices.Contains(terminal, rule.target):
		e.partly = rule.partly
	case rule.target == "DNAT" && gone > 0: // from all packets, if none are left
		e.partly = left > 1-full
	default:
		return
	}
	r.kept.add(e)
}

// apply applies a rule to a share of packets, and returns the share that does not continue with the next rule.
func (r *reader) apply(rule rule, m match, share float64, depth int, through []remark.At) float64 {
	_, isChain := r.chains[rule.target]
	switch {
	case rule.target == "DNAT":
		if m.unknown != "" {
			r.Left(rule.at, "matches by %s, which Jeoul does not know of packets", m.unknown)
			return share
		}
		r.setDestination(rule, m, share, through)
		return share
	case isChain && !slices.Contains([]string{"PREROUTING", "POSTROUTING", "OUTPUT", "INPUT"}, rule.target):
		outer := r.turns
		r.turns = outer || rule.turns
		gone := r.walk(rule.target, m, share, depth+1, append(slices.Clone(through), rule.at)...)
		r.turns = outer
		return gone
	case rule.target == "REDIRECT":
		r.Left(rule.at, "sends to this host itself: %s", keep)
		return share
	case rule.target == unreadable:
		return 0 // it has a remark already
	case slices.Contains(terminal, rule.target): // serve remarks on it
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

// setDestination records destinations for a share of a match's packets.
func (r *reader) setDestination(rule rule, m match, share float64, through []remark.At) {
	if share < 1-full {
		r.Left(rule.at,
			"no packet gets here: the rules before it take all of them, but those of clients that they keep out")
		return
	}
	key := m.key()
	g := r.byKey[key]
	kept := r.exceptionsFor(m)
	if g == nil {
		g = &group{match: m, at: rule.at, kept: kept}
		r.byKey[key] = g
		r.groups = append(r.groups, g)
	} else if len(kept) != len(g.kept) {
		g.unsafe = fmt.Sprintf("rules between those that give destinations keep packets from the one at %s alone",
			rule.at)
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

// exceptionsFor returns the exceptions that may apply to packets of a match. It omits exceptions of the same match,
// because their shares are accounted for.
func (r *reader) exceptionsFor(m match) (list []exception) {
	r.kept.each(m, func(e exception) {
		if _, possible := m.and(e.match); possible && e.key() != m.key() {
			list = append(list, e)
		}
	})
	return list
}
