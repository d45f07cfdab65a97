// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// mostMatches limits the comparisons of rules with packets: a host can have many services and many rules by address.
const mostMatches = 1 << 21

// stages are the positions of hooks, by their names in nft and iptables.
var stages = map[string]int{"ingress": 1, "prerouting": 2, "forward": 3, "postrouting": 4}

// tables are iptables' tables in the order in which packets traverse them.
var tables = []string{"raw", "mangle", "nat", "filter", "security"}

// hookOf returns the hook of an iptables chain. ok is false if the chain is no base chain, or other packets traverse
// it.
func hookOf(at remark.At, table, chain string) (h hook, ok bool) {
	stage, is := stages[strings.ToLower(chain)]
	place := slices.Index(tables, table)
	if !is || chain != strings.ToUpper(chain) || place < 0 || table == "nat" {
		return hook{}, false
	}
	return hook{at: at, order: stage*1000 + place, chain: table + "/" + chain, after: stage > stages["prerouting"]}, true
}

// packet is the first packet of a connection from a network to a backend.
type packet struct {
	*hook
	of      *group
	vip, to netip.AddrPort
	from    netip.Prefix
}

// outcome has the possible verdicts of a chain on packets: accept, drop, leave the chain without a verdict, or continue
// with the next rule.
type outcome struct{ accept, drop, leave, next bool }

// look evaluates chains for a packet.
type look struct {
	*reader
	packet
	// unsure are rules that may or may not match. decide are rules that accept or drop.
	unsure, decide []remark.At
}

// tally has, for each hook, the rules that decided on packets of a service, and whether the hook drops some of them.
type tally map[*hook]*struct {
	decide  []remark.At
	refuses bool
}

func (t tally) note(h *hook, decide []remark.At, served bool) {
	if t[h] == nil {
		t[h] = &struct {
			decide  []remark.At
			refuses bool
		}{}
	}
	t[h].decide, t[h].refuses = append(t[h].decide, decide...), t[h].refuses || !served
}

// decided returns the rules of the hooks that drop some packets, in the order of their lines.
func (t tally) decided() (list []remark.At) {
	for _, h := range t {
		if h.refuses {
			list = append(list, h.decide...)
		}
	}
	slices.SortFunc(list, func(a, b remark.At) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return slices.Compact(list)
}

// guarded returns the access rules that other tables apply to a service's packets. unsafe is the reason why the service
// must not be made.
func (r *reader) guarded(g *group, s *draft.Service) (rules []draft.Rule, unsafe string) {
	var all [][]draft.Rule
	t := tally{}
	nodes := r.nodes(s.VIP)
	for _, b := range s.Backends {
		var own []draft.Rule
		for _, node := range nodes {
			p := packet{of: g, vip: netip.AddrPortFrom(s.VIP, s.Port),
				to: netip.AddrPortFrom(b.Address, cmp.Or(b.Port, s.Port)), from: node}
			served, why := r.passes(p, t)
			if why != "" {
				return nil, why
			}
			own = append(own, draft.Rule{Networks: []netip.Prefix{node}, Serve: served})
		}
		all = append(all, own)
	}
	if !slices.ContainsFunc(all, refuses) {
		return nil, ""
	}
	decided := t.decided()
	for i := range all {
		if !slices.EqualFunc(all[i], all[0], func(a, b draft.Rule) bool { return a.Serve == b.Serve }) {
			return nil, fmt.Sprintf(
				"by %s not the same clients get through to the backends %s and %s, and a service has one list of them",
				places(decided), s.Backends[0].Address, s.Backends[i].Address)
		}
	}
	if !slices.ContainsFunc(all[0], func(rule draft.Rule) bool { return rule.Serve }) {
		return nil, fmt.Sprintf("no client gets through: all packets to its backends are dropped by %s", places(decided))
	}
	r.Carry(decided...)
	return all[0], ""
}

func refuses(rules []draft.Rule) bool {
	return slices.ContainsFunc(rules, func(rule draft.Rule) bool { return !rule.Serve })
}

// places returns the positions of rules as text.
func places(list []remark.At) string {
	const most = 3
	var words []string
	for _, at := range list {
		if word := at.String(); !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	if len(words) > most {
		words = append(words[:most], "others")
	}
	if len(words) == 1 {
		return "the rule at " + words[0]
	}
	return "the rules at " + strings.Join(words, ", ")
}

// nodes returns the networks of a family that rules name, longest prefix first, and the network of all addresses.
func (r *reader) nodes(vip netip.Addr) []netip.Prefix {
	if list := r.guards.nodes[vip.Is4()]; list != nil {
		return list
	}
	list := []netip.Prefix{netip.PrefixFrom(vip, 0).Masked()}
	for _, h := range r.guards.hooks {
		seen := map[string]bool{}
		var visit func(string)
		visit = func(chain string) {
			if seen[chain] {
				return
			}
			seen[chain] = true
			for _, rule := range r.guardChain(chain) {
				list = append(list, draft.OfFamily(rule.from, vip)...)
				visit(inner(h.chain, rule.target))
			}
		}
		visit(h.chain)
	}
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(b.Bits(), a.Bits()), a.Addr().Compare(b.Addr()))
	})
	list = slices.Compact(list)
	r.guards.nodes[vip.Is4()] = list
	return list
}

// inner returns the name of a target's chain. Chains of nft already have the name of their table.
func inner(chain, target string) string {
	if strings.Contains(target, "/") {
		return target
	}
	table, _, _ := strings.Cut(chain, "/")
	return table + "/" + target
}

func (r *reader) guardChain(name string) []rule {
	if rules, there := r.guards.chains[name]; there {
		return rules
	}
	return r.chains[name]
}

// passes reports whether a packet passes all hooks. why names the match that makes the answer unknown.
func (r *reader) passes(p packet, t tally) (served bool, why string) {
	for i := range r.guards.hooks {
		h := &r.guards.hooks[i]
		at := p
		if at.hook = h; !h.after {
			at.to = p.vip
		}
		l := look{reader: r, packet: at}
		if is, known := l.arrives(rule{match: match{in: h.in}}); h.family != "" &&
			(h.family == "ipv4") != p.vip.Addr().Is4() || known && !is {
			continue
		}
		o := l.chain(h.chain, 0)
		if o.leave {
			o.accept, o.drop = o.accept || !h.drops, o.drop || h.drops
			l.decide = append(l.decide, h.at)
		}
		switch {
		case r.guards.matches > mostMatches:
			return false, "there are too many rules of other tables to say which clients they let through; import without those tables, and write allow and deny"
		case o.drop && !o.accept:
			t.note(h, l.decide, false)
			return false, ""
		case o.drop:
			why = cmp.Or(why, fmt.Sprintf(
				"whether its packets are dropped by %s goes by %s, which Jeoul does not know of packets: it would serve what it must not; import without that table, and write allow, deny or limits",
				places(l.unsure), l.reason()))
		default:
			t.note(h, l.decide, true)
		}
	}
	return why == "", why
}

// reason names the match of the first rule that may or may not match.
func (l *look) reason() string {
	for _, rules := range [...]map[string][]rule{l.guards.chains, l.chains} {
		for _, chain := range sortedKeys(rules) {
			for _, rule := range rules[chain] {
				if len(l.unsure) == 0 || rule.at != l.unsure[0] {
					continue
				}
				return cmp.Or(rule.unknown, rule.condition(), "the target "+rule.target)
			}
		}
	}
	return l.hook.chain
}

// condition names a match of a rule that depends on more than the packet.
func (r rule) condition() string {
	switch {
	case r.partly:
		return "chance"
	case r.out != "":
		return "the interface " + r.out + " that they leave by"
	case r.in != "":
		return "the interface " + r.in
	}
	return ""
}

// chain evaluates a chain.
func (l *look) chain(name string, depth int) (o outcome) {
	if depth > deepest {
		return outcome{accept: true, drop: true, leave: true}
	}
	for _, rule := range l.guardChain(name) {
		if l.guards.matches++; l.guards.matches > mostMatches {
			return outcome{accept: true, drop: true}
		}
		matches, perhaps := l.match(rule)
		if !matches && !perhaps {
			continue
		}
		got := l.verdict(name, rule, depth)
		o.accept, o.drop, o.leave = o.accept || got.accept, o.drop || got.drop, o.leave || got.leave
		decides := got.accept || got.drop || got.leave
		if decides && (perhaps || got.next && got.accept && got.drop) {
			l.unsure = append(l.unsure, rule.at)
		}
		if matches && !got.next {
			return o
		}
	}
	o.leave = true
	return o
}

// changing are targets that change a packet or record something, and continue with the next rule.
var changing = slices.Concat(passing, []string{"", "CT", "TTL", "HL", "ECN", "CHECKSUM", "SECMARK", "CONNSECMARK", "TEE",
	"TCPOPTSTRIP", "HMARK", "IDLETIMER", "LED", "RATEEST", "CONTINUE"})

// verdict returns the outcome of a rule for packets that match.
func (l *look) verdict(chain string, rule rule, depth int) outcome {
	target := inner(chain, rule.target)
	_, own := l.guards.chains[target]
	_, shared := l.chains[target]
	switch {
	case own || shared:
		got := l.chain(target, depth+1)
		if got.accept || got.drop {
			l.decide = append(l.decide, rule.at)
		}
		got.next, got.leave = got.leave && !rule.goes, got.leave && rule.goes
		return got
	case rule.target == "ACCEPT":
		l.decide = append(l.decide, rule.at)
		return outcome{accept: true}
	case slices.Contains([]string{"DROP", "REJECT", "TARPIT", "TPROXY", "FWD", "NOTRACK", "SYNPROXY"}, rule.target):
		l.decide = append(l.decide, rule.at)
		return outcome{drop: true}
	case rule.target == "RETURN":
		return outcome{leave: true}
	case slices.Contains(changing, rule.target):
		return outcome{next: true}
	}
	return outcome{accept: true, drop: true, next: true} // a program decides, or the rule is not understood
}

// match reports whether a rule matches the packet for certain, or perhaps.
func (l *look) match(r rule) (matches, perhaps bool) {
	inside := slices.ContainsFunc(r.from, func(n netip.Prefix) bool {
		return n.Bits() <= l.from.Bits() && n.Overlaps(l.from)
	})
	switch {
	case r.later, len(r.from) > 0 && inside == r.notFrom:
		return false, false
	case r.translated && !l.after, r.local && l.after:
		return false, false
	case r.family != "" && (r.family == "ipv4") != l.vip.Addr().Is4():
		return false, false
	case r.protocol != "" && r.protocol != "all" && r.protocol != l.of.protocol:
		return false, false
	case r.to.IsValid() && !r.to.Contains(l.to.Addr()):
		return false, false
	}
	sure := r.unknown == "" && !r.partly
	for _, part := range []func(rule) (bool, bool){l.port, l.arrives, l.leaves} {
		is, known := part(r)
		if known && !is {
			return false, false
		}
		sure = sure && known
	}
	return sure, !sure
}

// port reports whether the packet's destination port matches a rule.
func (l *look) port(r rule) (is, known bool) {
	if len(r.ports) == 0 {
		return true, true
	}
	for _, text := range r.ports {
		from, to, isRange := strings.Cut(text, ":")
		first, err := draft.Port(l.of.protocol, cmp.Or(from, "1"))
		last := first
		if isRange {
			var wrong error
			last, wrong = draft.Port(l.of.protocol, cmp.Or(to, "65535"))
			err = cmp.Or(err, wrong)
		}
		if err != nil {
			return false, false
		}
		if first <= l.to.Port() && l.to.Port() <= last {
			return true, true
		}
	}
	return false, true
}

// arrives reports whether the packet arrives on a rule's interface.
func (l *look) arrives(r rule) (is, known bool) {
	name, other := strings.CutPrefix(r.in, "!")
	excluded, elsewhere := strings.CutPrefix(l.of.in, "!")
	arrivals := l.Interfaces
	if l.of.in != "" && !elsewhere {
		arrivals = []string{l.of.in}
	}
	begin, several := strings.CutSuffix(name, "+")
	same := 0
	for _, in := range arrivals {
		if in == name || several && strings.HasPrefix(in, begin) {
			same++
		}
	}
	switch {
	case r.in == "" || r.in == l.of.in:
		return true, true
	case name == "lo", elsewhere && name == excluded, same == 0 && len(arrivals) > 0:
		return other, true
	}
	return !other, same > 0 && same == len(arrivals)
}

// leaves reports whether the packet leaves by a rule's interface. It assumes so for a rule that names a destination.
func (l *look) leaves(r rule) (is, known bool) {
	name, other := strings.CutPrefix(r.out, "!")
	if r.out == "" || r.to.IsValid() {
		return true, true
	}
	if name == "lo" {
		return other, true
	}
	by := l.byRoutes(r, l.of)
	return by, by
}

// restOfGuards remarks on the rules of other tables that were not carried over.
func (r *reader) restOfGuards() {
	for _, h := range r.guards.hooks {
		if !r.Noted(h.at) && h.drops {
			r.Needless(h.at, "drops no packet of a service that is carried over")
		}
	}
	for _, chain := range sortedKeys(r.guards.chains) {
		table, _, _ := strings.Cut(chain, "/")
		of := "a chain that does not translate addresses"
		if slices.Contains(tables, table) {
			of = "the table " + table
		}
		for _, rule := range r.guards.chains[chain] {
			carried := r.Noted(rule.at)
			if !carried {
				r.Left(rule.at, "of %s: %s", of, notPassed)
			}
			for _, at := range r.guards.lines[rule.at] {
				if carried {
					r.Carry(at)
				} else {
					r.Left(at, "of %s: %s", of, notPassed)
				}
			}
			for _, set := range r.guards.sets[rule.at] {
				set.used = set.used || carried
			}
		}
	}
}

// notPassed is the remark on rules of other tables.
const notPassed = keep + "; what Jeoul balances does not pass it, so it neither drops nor changes those packets"

// byRoutes reports whether packets to backends are assumed to leave by a rule's interface.
func (r *reader) byRoutes(rule rule, g *group) bool {
	name, other := strings.CutPrefix(rule.out, "!")
	arrivals := slices.Clone(r.Interfaces)
	for _, group := range append(r.groups, g) {
		if group.in != "" && group.in[0] != '!' {
			arrivals = append(arrivals, group.in)
		}
	}
	arrives := slices.Contains(arrivals, name)
	return other && (arrives || name == "lo") || !other && !arrives && len(arrivals) > 0
}

const cannotRead = "a rule that cannot be read"

// rest remarks on the rules of the table nat that were not carried over.
func (r *reader) rest() {
	for _, chain := range sortedKeys(r.chains) {
		for _, rule := range r.chains[chain] {
			if r.Noted(rule.at) {
				continue
			}
			switch {
			case chain == "OUTPUT":
				r.Left(rule.at, "of what this host's own programs send, which is not carried over")
			case rule.target == "MASQUERADE" || rule.target == "SNAT":
				r.Left(rule.at, "not of clients' packets to these backends, but of what is sent otherwise: %s", keep)
			case slices.Contains(terminal, rule.target):
				r.Needless(rule.at,
					"keeps packets from rules behind it, and none of those that are carried over is of such packets")
			default:
				r.Left(rule.at, "leads to no backend that is carried over")
			}
		}
	}
}
