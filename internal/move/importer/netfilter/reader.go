// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

const keep = "keep it as it is"

// reader reads one input.
type reader struct {
	*draft.Draft
	chains map[string][]rule // of the table nat
	groups []*group
	byKey  map[string]*group
	// turns: the current chain was selected in turns.
	turns bool
	// steps counts the steps of the walk, to limit it.
	steps int
	// gone has the share of a match's packets that do not reach later rules, by the key of the match.
	gone map[string]float64
	// several: arriving packets traverse several chains, one after the other.
	several bool
	// kept are the packets that earlier rules keep from later ones.
	kept   exceptions
	guards guards
}

func newReader(d *draft.Draft) *reader {
	return &reader{Draft: d, chains: map[string][]rule{}, byKey: map[string]*group{}, gone: map[string]float64{},
		guards: guards{chains: map[string][]rule{}, lines: map[remark.At][]remark.At{},
			sets: map[remark.At][]*namedMap{}, nodes: map[bool][]netip.Prefix{}}}
}

// entry is a destination for new connections.
type entry struct {
	at      remark.At
	address string
	share   float64
}

// group has the destinations for packets of one match.
type group struct {
	match
	at      remark.At
	entries []entry
	// turns and bySource describe how the destinations are selected.
	turns, bySource bool
	// through are the rules that led to the group.
	through []remark.At
	// kept are the packets that earlier rules keep from the group.
	kept []exception
	// unsafe is the reason why no service must be made from the group.
	unsafe string
}

// exception is a match whose packets a rule keeps from later rules.
type exception struct {
	match
	at remark.At
	// partly: the rule keeps only a share of the packets. within: if not 0, the rule returns from a chain, and keeps
	// the packets only from the rest of that chain.
	partly bool
	within int
	// order is the exception's position among all exceptions.
	order int
}

// exceptions are the exceptions of the rules so far. A host with thousands of services has thousands, each for its own
// address.
type exceptions struct {
	// returns end with their chain, to are for one destination, and rest are all others.
	returns []exception
	to      map[netip.Prefix][]exception
	rest    []exception
	count   int
}

func (x *exceptions) add(e exception) {
	x.count++
	e.order = x.count
	switch {
	case e.within > 0:
		x.returns = append(x.returns, e)
	case e.match.to.IsValid() && e.match.to.IsSingleIP():
		if x.to == nil {
			x.to = map[netip.Prefix][]exception{}
		}
		x.to[e.match.to] = append(x.to[e.match.to], e)
	default:
		x.rest = append(x.rest, e)
	}
}

// leave removes the exceptions that hold only in a chain deeper than depth.
func (x *exceptions) leave(depth int) {
	x.returns = slices.DeleteFunc(x.returns, func(e exception) bool { return e.within > depth })
}

// each calls do for the exceptions that may apply to a match.
func (x *exceptions) each(m match, do func(exception)) {
	lists := [][]exception{x.rest, x.returns}
	if m.to.IsValid() && m.to.IsSingleIP() {
		lists = append(lists, x.to[m.to])
	} else {
		lists = slices.AppendSeq(lists, maps.Values(x.to))
	}
	for _, e := range slices.SortedFunc(slices.Values(slices.Concat(lists...)), func(a, b exception) int {
		return cmp.Compare(a.order, b.order)
	}) {
		do(e)
	}
}

// guards are the chains that do not translate addresses, but may drop packets that are translated.
type guards struct {
	hooks []hook
	// chains has the chains by table and name. lines has the lines of each rule after its first one.
	chains map[string][]rule
	lines  map[remark.At][]remark.At
	// sets has the sets that a rule uses.
	sets map[remark.At][]*namedMap
	// nodes has the networks that rules name, for IPv4 (true) and IPv6.
	nodes   map[bool][]netip.Prefix
	matches int
}

// hook is a base chain that packets of connections traverse. Packets traverse hooks of lower order first.
type hook struct {
	at     remark.At
	order  int
	chain  string
	family string
	in     string // the only interface, "" for all
	// after: addresses have been translated; drops: the chain's policy is to drop.
	after, drops bool
}

// addHook adds a hook, unless it exists, and returns it.
func (g *guards) addHook(h hook) *hook {
	i := slices.IndexFunc(g.hooks, func(o hook) bool { return o.chain == h.chain })
	if i < 0 {
		g.hooks = append(g.hooks, h)
		i = len(g.hooks) - 1
	}
	return &g.hooks[i]
}

// sort sorts the hooks in the order in which packets traverse them.
func (g *guards) sort() {
	slices.SortStableFunc(g.hooks, func(a, b hook) int { return cmp.Compare(a.order, b.order) })
}

// namedMap is a named map or set.
type namedMap struct {
	elements []token
	lines    []remark.At
	used     bool
	// changes: packets or timeouts change its elements.
	changes bool
}

// token is a word or a mark of nft's language, or the end of a line.
type token struct {
	at   remark.At
	text string
}
