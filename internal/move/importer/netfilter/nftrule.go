// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// Limits of the rules that one rule expands to.
const (
	mostRules    = 1024
	mostModulus  = 1 << 20
	byHandAtEnd  = "look at it by hand"
	noLikeOfThis = "Jeoul has no like of"
)

var errRuleEnds = errors.New("the rule ends too early; " + byHandAtEnd)

// nftRule is a rule while it is read. It may expand to several rules of the same line.
type nftRule struct {
	*ruleset
	words []token
	rules []rule
}

// parseRule reads a rule.
func (s *ruleset) parseRule(words []token) ([]rule, error) {
	n := &nftRule{ruleset: s, words: words, rules: []rule{{at: words[0].at}}}
	for len(n.words) > 0 {
		if err := n.expression(n.take()); err != nil {
			return n.rules, err
		}
		if len(n.rules) > mostRules {
			return n.rules[:1], fmt.Errorf("stands for more than %d rules; %s", mostRules, byHandAtEnd)
		}
	}
	return n.rules, nil
}

// take takes the next word, "" at the end.
func (n *nftRule) take() string {
	if len(n.words) == 0 {
		return ""
	}
	text := n.words[0].text
	n.words = n.words[1:]
	return text
}

// peek returns the next word without taking it.
func (n *nftRule) peek() string {
	if len(n.words) == 0 {
		return ""
	}
	return n.words[0].text
}

// each applies a change to all rules.
func (n *nftRule) each(change func(*rule)) {
	for i := range n.rules {
		change(&n.rules[i])
	}
}

// spread replaces each rule by one rule per value.
func (n *nftRule) spread(values []string, change func(*rule, string) error) error {
	var all []rule
	for _, r := range n.rules {
		for _, value := range values {
			one := r
			if err := change(&one, value); err != nil {
				return err
			}
			all = append(all, one)
		}
		if len(all) > mostRules {
			return fmt.Errorf("stands for more than %d rules; %s", mostRules, byHandAtEnd)
		}
	}
	n.rules = all
	return nil
}

// value takes a value, or the values of a set, and reports whether they are negated.
func (n *nftRule) value() (values []string, negated bool, err error) {
	if op := n.peek(); op == "!=" || op == "==" {
		negated = n.take() == "!="
	}
	if n.peek() != "{" {
		word := n.take()
		if name, named := strings.CutPrefix(word, "@"); named {
			values, err = n.members(name)
			return values, negated, err
		}
		switch word {
		case "":
			return nil, false, errRuleEnds
		case "vmap":
			return nil, false, fmt.Errorf("a map gives the verdict; write a rule for each of its elements")
		}
		values = append(values, word)
		for n.peek() == "," { // a list without braces
			n.take()
			values = append(values, n.take())
		}
		return values, negated, nil
	}
	for n.take(); ; {
		switch word := n.take(); word {
		case "":
			return nil, false, errRuleEnds
		case "}":
			return values, negated, nil
		case ",":
		default:
			values = append(values, word)
		}
	}
}

// members returns the values of a named set.
func (n *nftRule) members(name string) (values []string, err error) {
	set := n.maps[n.table+"/"+name]
	if set == nil || set.changes || len(set.elements) == 0 {
		return nil, fmt.Errorf("goes by the set %q, whose elements the rules do not have; %s", name, byHandAtEnd)
	}
	for _, t := range set.elements {
		switch t.text {
		case "}":
			set.used = true
			return values, nil
		case ",", "\n":
		case ":", "timeout", "expires", ".":
			return nil, fmt.Errorf("goes by the set %q, whose elements are more than values; %s", name, byHandAtEnd)
		default:
			values = append(values, t.text)
		}
	}
	return nil, errRuleEnds
}

// expression reads an expression.
func (n *nftRule) expression(word string) error {
	switch word {
	case "ip", "ip6":
		return n.address(n.take())
	case "tcp", "udp", "th":
		return n.port(word, n.take())
	case "meta":
		return n.meta(n.take())
	case "iifname", "iif", "oifname", "oif":
		return n.meta(word)
	case "ct":
		return n.ct(n.take())
	case "fib":
		return n.fib()
	case "counter":
		for n.peek() == "packets" || n.peek() == "bytes" {
			n.take()
			n.take()
		}
	case "comment":
		n.take()
	case "log":
		for slices.Contains([]string{"prefix", "level", "group", "flags", "snaplen", "queue-threshold"}, n.peek()) {
			n.take()
			n.take()
		}
	case "numgen":
		return n.verdicts()
	case "dnat", "snat":
		return n.nat(word)
	case "masquerade", "redirect":
		n.words = nil
		n.target(strings.ToUpper(word))
	case "jump", "goto":
		n.target(n.table + "/" + n.take())
		n.each(func(r *rule) { r.goes = word == "goto" })
	case "queue", "notrack", "tproxy", "fwd", "synproxy":
		n.words = nil
		n.target(strings.ToUpper(word))
	case "accept", "return", "drop", "reject":
		n.words = nil
		n.target(map[string]string{"accept": "ACCEPT", "return": "RETURN", "drop": "DROP", "reject": "REJECT"}[word])
	default:
		n.unknown(word)
	}
	return nil
}

// unknown notes a match that Jeoul has no equivalent of. The remark names the first one.
func (n *nftRule) unknown(what string) {
	n.each(func(r *rule) {
		if r.unknown == "" {
			r.unknown = what
		}
	})
}

func (n *nftRule) target(name string) { n.each(func(r *rule) { r.target = name }) }

// fib reads fib FIELD . FIELD RESULT VALUE.
func (n *nftRule) fib() error {
	of := []string{n.take()}
	for n.peek() == "." {
		n.take()
		of = append(of, n.take())
	}
	result := n.take()
	values, negated, err := n.value()
	if err != nil {
		return err
	}
	if slices.Equal(of, []string{"daddr"}) && result == "type" && slices.Equal(values, []string{"local"}) && !negated {
		n.each(func(r *rule) { r.local = true })
		return nil
	}
	n.unknown("fib")
	return nil
}

// address reads ip daddr and ip saddr.
func (n *nftRule) address(field string) error {
	if field == "protocol" || field == "nexthdr" {
		return n.protocol()
	}
	values, negated, err := n.value()
	if err != nil {
		return err
	}
	if field != "daddr" && field != "saddr" || field == "daddr" && negated {
		n.unknown("ip " + field)
		return nil
	}
	var networks []netip.Prefix
	for _, value := range values {
		list, ok := networksOf(value)
		if !ok {
			return fmt.Errorf("%s is no network; %s", value, byHandAtEnd)
		}
		networks = append(networks, list...)
	}
	if field == "saddr" {
		n.each(func(r *rule) { r.from, r.notFrom = networks, negated })
		return nil
	}
	if len(values) != len(networks) {
		n.unknown("a range of destinations")
		return nil
	}
	return n.spread(values, func(r *rule, value string) error {
		r.to, _ = draft.Network(value)
		return nil
	})
}

// networksOf returns the networks of an address, a network or a range of addresses.
func networksOf(text string) ([]netip.Prefix, bool) {
	if prefix, ok := draft.Network(text); ok {
		return []netip.Prefix{prefix}, true
	}
	from, to, isRange := strings.Cut(text, "-")
	first, err := netip.ParseAddr(from)
	last, lastErr := netip.ParseAddr(to)
	if !isRange || err != nil || lastErr != nil || last.Less(first) || first.Is4() != last.Is4() {
		return nil, false
	}
	var list []netip.Prefix
	for first.IsValid() && !last.Less(first) {
		bits := first.BitLen()
		for bits > 0 { // the largest network that begins here and ends within the range
			larger := netip.PrefixFrom(first, bits-1)
			if larger.Masked().Addr() != first || last.Less(lastOf(larger)) {
				break
			}
			bits--
		}
		network := netip.PrefixFrom(first, bits)
		list = append(list, network)
		first = lastOf(network).Next()
	}
	return list, true
}

// lastOf returns the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// protocol reads the values of a protocol match.
func (n *nftRule) protocol() error {
	values, negated, err := n.value()
	if err != nil {
		return err
	}
	if negated {
		n.unknown("another protocol")
		return nil
	}
	return n.spread(values, func(r *rule, value string) error {
		r.protocol = strings.ToLower(map[string]string{"6": "tcp", "17": "udp"}[value])
		if r.protocol == "" {
			r.protocol = value
		}
		return nil
	})
}

// port reads a port match such as tcp dport.
func (n *nftRule) port(protocol, field string) error {
	if protocol != "th" {
		n.each(func(r *rule) { r.protocol = protocol })
	}
	if field == "dport" && n.peek() == "vmap" {
		return n.verdictMap(func(r *rule, key string) {
			if portRange.MatchString(key) {
				key = strings.Replace(key, "-", ":", 1)
			}
			r.ports = []string{key}
		})
	}
	values, negated, err := n.value()
	if err != nil {
		return err
	}
	if field != "dport" || negated {
		n.unknown(protocol + " " + field)
		return nil
	}
	for i, value := range values {
		if portRange.MatchString(value) {
			values[i] = strings.Replace(value, "-", ":", 1)
		}
	}
	n.each(func(r *rule) { r.ports = values })
	return nil
}

// meta reads meta l4proto, iifname and oifname.
func (n *nftRule) meta(field string) error {
	if field == "l4proto" {
		return n.protocol()
	}
	values, negated, err := n.value()
	if err != nil {
		return err
	}
	family := map[string]string{"ipv4": "ipv4", "ip": "ipv4", "ipv6": "ipv6", "ip6": "ipv6"}[values[0]]
	if (field == "nfproto" || field == "protocol") && len(values) == 1 && !negated && family != "" {
		n.each(func(r *rule) { r.family = family })
		return nil
	}
	name := values[0]
	if negated {
		name = "!" + name
	}
	switch {
	case (field == "iifname" || field == "iif") && len(values) == 1:
		n.each(func(r *rule) { r.in = name })
	case (field == "oifname" || field == "oif") && len(values) == 1:
		n.each(func(r *rule) { r.out = name })
	case (field == "iifname" || field == "iif") && !negated:
		return n.spread(values, func(r *rule, value string) error {
			r.in = value
			return nil
		})
	default:
		n.unknown(field)
	}
	return nil
}

// ct reads ct state and ct status. New connections are translated.
func (n *nftRule) ct(field string) error {
	if field == "state" && n.peek() == "vmap" {
		return n.verdictMap(func(r *rule, key string) { r.state("ct state", []string{strings.ToUpper(key)}, false) })
	}
	values, negated, err := n.value()
	if err != nil {
		return err
	}
	states := strings.Split(strings.ToUpper(strings.Join(values, ",")), ",")
	if field != "state" && (field != "status" || !slices.Contains(states, "DNAT")) {
		n.unknown("ct " + field)
		return nil
	}
	n.each(func(r *rule) { r.state("ct "+field, states, negated) })
	return nil
}

// choice is an expression that selects by a number below its modulus.
type choice struct {
	modulus  int
	turns    bool
	bySource bool
}

// choose reads numgen inc|random mod N, jhash … mod N or symhash mod N. The caller has taken word.
func (n *nftRule) choose(word string) (choice, error) {
	var c choice
	switch word {
	case "numgen":
		c.turns = n.take() == "inc"
	case "jhash":
		var of []string
		for n.peek() != "mod" && n.peek() != "" {
			of = append(of, n.take())
		}
		c.bySource = slices.Equal(of, []string{"ip", "saddr"}) || slices.Equal(of, []string{"ip6", "saddr"})
	}
	if n.take() != "mod" {
		return c, errRuleEnds
	}
	modulus, err := strconv.Atoi(n.take())
	if err != nil || modulus < 1 || modulus > mostModulus {
		return c, fmt.Errorf("a modulus that is none; %s", byHandAtEnd)
	}
	c.modulus = modulus
	for n.peek() == "seed" || n.peek() == "offset" {
		if option, value := n.take(), n.take(); option == "offset" && value != "0" {
			return c, fmt.Errorf("%s an offset; %s", noLikeOfThis, byHandAtEnd)
		}
	}
	return c, nil
}

// element is an element of a map: its key, which may be a range, and its value.
type element struct {
	key   string
	value []string
}

// elements returns the elements of an anonymous or named map.
func (n *nftRule) elements() ([]element, error) {
	open := n.take()
	words := n.words
	if name, named := strings.CutPrefix(open, "@"); named {
		m := n.maps[n.table+"/"+name]
		if m == nil {
			return nil, fmt.Errorf("names the map %s, which does not stand before it; %s", name, byHandAtEnd)
		}
		m.used = true
		words = m.elements
	} else if open != "{" {
		return nil, errRuleEnds
	}
	var list []element
	now, inValue := element{}, false
	flush := func() {
		if now.key != "" {
			list = append(list, now)
		}
		now, inValue = element{}, false
	}
	for i, t := range words {
		switch {
		case t.text == "}":
			flush()
			if open == "{" {
				n.words = words[i+1:]
			}
			return list, nil
		case t.text == ",":
			flush()
		case t.text == ":" && !inValue:
			inValue = true
		case t.text == "\n":
		case inValue:
			now.value = append(now.value, t.text)
		default:
			now.key += t.text
		}
	}
	return nil, errRuleEnds
}

// share returns the fraction of a choice's numbers that a key covers.
func (c choice) share(key string) (float64, error) {
	from, to, isRange := strings.Cut(key, "-")
	first, err := strconv.Atoi(from)
	last := first
	if isRange && err == nil {
		last, err = strconv.Atoi(to)
	}
	if err != nil || first < 0 || last < first || last >= c.modulus {
		return 0, fmt.Errorf("%q is no number below the modulus; %s", key, byHandAtEnd)
	}
	return float64(last-first+1) / float64(c.modulus), nil
}

// verdicts reads numgen … vmap. It becomes consecutive rules, each with its share of the packets that remain.
func (n *nftRule) verdicts() error {
	c, err := n.choose("numgen")
	if err != nil {
		return err
	}
	if n.take() != "vmap" {
		n.unknown("numgen")
		return nil
	}
	elements, err := n.elements()
	if err != nil {
		return err
	}
	var all []rule
	for _, r := range n.rules {
		left := 1.0
		for _, e := range elements {
			share, err := c.share(e.key)
			if err != nil {
				return err
			}
			one := r
			one.partly, one.turns, one.share = true, c.turns, min(share/max(left, 1e-12), 1)
			left -= share
			if len(e.value) == 2 && (e.value[0] == "jump" || e.value[0] == "goto") {
				one.target = n.table + "/" + e.value[1]
			} else {
				one.target = strings.ToUpper(strings.Join(e.value, " "))
			}
			all = append(all, one)
		}
	}
	n.rules = all
	return nil
}

// verdictMap reads vmap { KEY : jump CHAIN }. It becomes one rule per element that matches the element's key.
func (n *nftRule) verdictMap(match func(r *rule, key string)) error {
	n.take()
	elements, err := n.elements()
	if err != nil {
		return err
	}
	var all []rule
	for _, r := range n.rules {
		for _, e := range elements {
			one := r
			match(&one, e.key)
			if len(e.value) == 2 && (e.value[0] == "jump" || e.value[0] == "goto") {
				one.target, one.goes = n.table+"/"+e.value[1], e.value[0] == "goto"
			} else {
				one.target = strings.ToUpper(strings.Join(e.value, " "))
			}
			all = append(all, one)
		}
	}
	n.rules = all
	return nil
}

// nat reads dnat and snat, to the end of the rule.
func (n *nftRule) nat(word string) error {
	defer func() { n.words = nil }()
	n.target(strings.ToUpper(word))
	for n.peek() != "to" {
		if n.take() == "" {
			return errRuleEnds
		}
	}
	n.take()
	switch chooses := n.peek(); chooses {
	case "numgen", "jhash", "symhash":
		c, err := n.choose(n.take())
		if err != nil {
			return err
		}
		return n.mapped(c)
	case "tcp", "udp", "ip", "ip6", "meta", "ct", "{":
		return fmt.Errorf("the destination goes by another field of the packet; write a service for each; %s",
			byHandAtEnd)
	case "":
		return errRuleEnds
	}
	address := joinPort(n.destination())
	n.each(func(r *rule) { r.addresses = []string{address} })
	return nil
}

// destination takes ADDRESS, or ADDRESS . PORT.
func (n *nftRule) destination() []string {
	words := []string{n.take()}
	if n.peek() == "." {
		words = append(words, n.take(), n.take())
	}
	return words
}

// joinPort makes ADDRESS:PORT of ADDRESS . PORT.
func joinPort(words []string) string {
	if len(words) == 3 && words[1] == "." {
		if addr, err := netip.ParseAddr(words[0]); err == nil && addr.Is6() {
			return "[" + words[0] + "]:" + words[2]
		}
		return words[0] + ":" + words[2]
	}
	return strings.Join(words, "")
}

// mapped reads the map from a choice's numbers to destinations.
func (n *nftRule) mapped(c choice) error {
	if n.take() != "map" {
		return errRuleEnds
	}
	elements, err := n.elements()
	if err != nil {
		return err
	}
	var addresses []string
	var shares []float64
	for _, e := range elements {
		share, err := c.share(e.key)
		if err != nil {
			return err
		}
		addresses, shares = append(addresses, joinPort(e.value)), append(shares, share)
	}
	n.each(func(r *rule) { r.addresses, r.shares, r.turns, r.bySource = addresses, shares, c.turns, c.bySource })
	return nil
}
