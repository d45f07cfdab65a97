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
	// turns: the chain which is walked through was chosen in turns.
	turns bool
	// steps bounds the walk through chains that lead to each other.
	steps int
	// gone are the shares of the packets of a match that go no further, by its key.
	gone map[string]float64
	// several: packets meet several chains when they arrive, one after the other.
	several bool
	// kept are the packets that the rules which have been walked through keep from those behind them.
	kept   exceptions
	guards guards
}

func newReader(d *draft.Draft) *reader {
	return &reader{Draft: d, chains: map[string][]rule{}, byKey: map[string]*group{}, gone: map[string]float64{},
		guards: guards{chains: map[string][]rule{}, lines: map[remark.At][]remark.At{},
			sets: map[remark.At][]*namedMap{}, nodes: map[bool][]netip.Prefix{}}}
}

// entry is a destination that new connections get.
type entry struct {
	at      remark.At
	address string
	share   float64
}

// group has the entries that packets of one match get.
type group struct {
	match
	at      remark.At
	entries []entry
	// turns and bySource say how the shares are taken.
	turns, bySource bool
	// through are the rules that led there.
	through []remark.At
	// kept are packets that rules before it keep from it.
	kept []exception
	// unsafe is the reason why no service must be made of it.
	unsafe string
}

// exception are packets that a rule keeps from the rules behind it.
type exception struct {
	match
	at remark.At
	// partly: it keeps a share of them, and within that it returns from a chain, so that only the rest of that
	// chain is kept from them.
	partly bool
	within int
	// order is its place among all exceptions.
	order int
}

// exceptions are those of the rules so far. A host with thousands of services has as many, each of its own address.
type exceptions struct {
	// returns end with their chain, to are of one destination, and rest are all others.
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

// leave forgets the exceptions that hold in a chain of a depth alone.
func (x *exceptions) leave(depth int) {
	x.returns = slices.DeleteFunc(x.returns, func(e exception) bool { return e.within > depth })
}

// each calls do for the exceptions that can apply to a match.
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

// guards are the chains of tables that do not translate addresses, but may drop packets which do get translated.
type guards struct {
	hooks []hook
	// chains are by table and name, and lines those of each rule but its first.
	chains map[string][]rule
	lines  map[remark.At][]remark.At
	// sets are the sets that a rule goes by.
	sets map[remark.At][]*namedMap
	// nodes are the networks that rules name, of IPv4 (true) and IPv6.
	nodes   map[bool][]netip.Prefix
	matches int
}

// hook is a chain that packets of connections meet, those of lower order first.
type hook struct {
	at     remark.At
	order  int
	chain  string
	family string
	in     string // of an interface alone
	// after: the packets have been translated; drops: those which no rule decides on are dropped.
	after, drops bool
}

// addHook notes a hook, once, and returns it.
func (g *guards) addHook(h hook) *hook {
	i := slices.IndexFunc(g.hooks, func(o hook) bool { return o.chain == h.chain })
	if i < 0 {
		g.hooks = append(g.hooks, h)
		i = len(g.hooks) - 1
	}
	return &g.hooks[i]
}

// sort puts the hooks in the order in which packets meet them.
func (g *guards) sort() {
	slices.SortStableFunc(g.hooks, func(a, b hook) int { return cmp.Compare(a.order, b.order) })
}

// namedMap is a map that rules name.
type namedMap struct {
	elements []token
	lines    []remark.At
	used     bool
	// changes: packets or time change its elements.
	changes bool
}

// token is a word of nft's, a mark, or the end of a line.
type token struct {
	at   remark.At
	text string
}
