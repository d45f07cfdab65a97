// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// ruleset is a ruleset of nft while it is read.
type ruleset struct {
	*reader
	tokens []token
	table  string // family and name
	maps   map[string]*namedMap
	// bases are the base chains that arriving packets traverse.
	bases []base
}

// base is a base chain. Packets traverse chains of lower priority first.
type base struct {
	name, family string
	at           remark.At
	priority     int
}

// ReadNFTables fills a draft from the output of `nft list ruleset`.
func ReadNFTables(d *draft.Draft, file draft.File) error {
	lines, err := d.Lines(file)
	if err != nil {
		return err
	}
	if err := d.CheckDialect(lines); err != nil {
		return err
	}
	if strings.HasPrefix(strings.TrimSpace(lines[0].Text), "{") {
		return fmt.Errorf("%s: JSON; import what `nft list ruleset` prints without -j", lines[0].At)
	}
	s := &ruleset{reader: newReader(d), maps: map[string]*namedMap{}}
	for _, line := range lines {
		s.tokens = append(s.tokens, tokens(line)...)
	}
	if err := s.top(); err != nil {
		return err
	}
	s.joinBases()
	s.walk("PREROUTING", match{}, 1, 0)
	s.guards.sort()
	s.serve()
	s.restOfGuards()
	for _, name := range sortedKeys(s.maps) {
		for _, at := range s.maps[name].lines {
			if s.maps[name].used {
				s.Carry(at)
			} else {
				s.Left(at, "of a map or set that no rule that is carried over goes by")
			}
		}
	}
	s.rest()
	return nil
}

// tokens splits a line. A quoted text is one token, without the quotation marks.
func tokens(line draft.Line) []token {
	var list []token
	text := line.Text
	for text != "" {
		switch c := text[0]; {
		case c == '#':
			text = ""
		case c == ' ' || c == '\t':
			text = text[1:]
		case strings.IndexByte("{},;=", c) >= 0 && !strings.HasPrefix(text, "=="):
			list = append(list, token{line.At, text[:1]})
			text = text[1:]
		case c == '"':
			word, rest, _ := strings.Cut(text[1:], `"`)
			list = append(list, token{line.At, word})
			text = rest
		default:
			end := strings.IndexAny(text, " \t{},;\"")
			if end < 0 {
				end = len(text)
			}
			word := text[:end]
			text = text[end:]
			if before, ok := strings.CutSuffix(word, ":"); ok && before != "" && !strings.HasSuffix(before, ":") {
				list = append(list, token{line.At, before}, token{line.At, ":"})
				continue
			}
			list = append(list, token{line.At, word})
		}
	}
	if len(list) == 0 {
		return nil
	}
	return append(list, token{line.At, "\n"})
}

// next takes the first token. At the end it returns an empty one.
func (s *ruleset) next() token {
	if len(s.tokens) == 0 {
		return token{}
	}
	t := s.tokens[0]
	s.tokens = s.tokens[1:]
	return t
}

// statement takes the tokens up to the end of a statement, or up to the block that it opens. A line break within braces
// does not end the statement.
func (s *ruleset) statement(blocks bool) (words []token, end token) {
	depth := 0
	for len(s.tokens) > 0 {
		t := s.next()
		switch {
		case t.text == "{" && depth == 0 && blocks:
			return words, t
		case t.text == "{":
			depth++
		case t.text == "}" && depth == 0:
			return words, t
		case t.text == "}":
			depth--
		case t.text == "\n" && depth == 0, t.text == ";" && depth == 0:
			return words, t
		case t.text == "\n":
			continue
		}
		words = append(words, t)
	}
	return words, token{}
}

// top reads the tables.
func (s *ruleset) top() error {
	for len(s.tokens) > 0 {
		words, end := s.statement(true)
		switch {
		case len(words) == 0 && end.text == "}":
			return fmt.Errorf("%s: a brace that ends no block", end.at)
		case len(words) == 0 && end.text == "{":
			return fmt.Errorf("%s: a brace that begins no block", end.at)
		case len(words) == 0:
		case words[0].text == "table" && end.text == "{" && len(words) == 3:
			s.Carry(words[0].at)
			s.table = words[1].text + "/" + words[2].text
			if err := s.readTable(words[0]); err != nil {
				return err
			}
		case words[0].text == "flush":
			s.Needless(words[0].at, "empties what was there before")
		default:
			s.leaveAll(words, "no table; import what `nft list ruleset` prints")
			if end.text == "{" {
				block, _ := s.block(end)
				s.leaveAll(block, "no table; import what `nft list ruleset` prints")
			}
		}
	}
	return nil
}

// leaveAll leaves out the lines of tokens.
func (s *ruleset) leaveAll(words []token, why string) {
	for _, t := range words {
		if t.text != "}" && t.text != "\n" {
			s.Left(t.at, "%s", why)
		}
	}
}

// block takes the tokens of a block up to its closing brace.
func (s *ruleset) block(open token) ([]token, error) {
	depth := 0
	for i, t := range s.tokens {
		switch {
		case t.text == "{":
			depth++
		case t.text == "}" && depth > 0:
			depth--
		case t.text == "}":
			inner := s.tokens[:i]
			s.tokens = s.tokens[i+1:]
			s.carryBrace(t)
			return inner, nil
		}
	}
	return nil, fmt.Errorf("%s: a block that does not end", open.at)
}

// carryBrace carries over the line of a brace, unless the line has a remark or is carried over already.
func (s *ruleset) carryBrace(t token) {
	if !s.Noted(t.at) {
		s.Carry(t.at)
	}
}

// readTable reads the chains, maps and sets of a table.
func (s *ruleset) readTable(open token) error {
	for {
		words, end := s.statement(true)
		switch {
		case end.text == "}":
			s.carryBrace(end)
			return nil
		case end == token{}:
			return fmt.Errorf("%s: a block that does not end", open.at)
		case len(words) == 0:
			continue
		case end.text != "{":
			s.leaveAll(words, "Jeoul has nothing like it; look at it by hand")
			continue
		}
		inner, err := s.block(end)
		if err != nil {
			return err
		}
		switch {
		case words[0].text == "chain" && len(words) == 2:
			outer := s.tokens
			s.tokens = inner
			s.chain(words)
			s.tokens = outer
		case (words[0].text == "map" || words[0].text == "set") && len(words) == 2:
			s.named(words, inner)
		default:
			s.leaveAll(slices.Concat(words, inner), "Jeoul has nothing like it; look at it by hand")
		}
	}
}

// named stores a named map or set.
func (s *ruleset) named(words, inner []token) {
	m := &namedMap{lines: []remark.At{words[0].at}}
	for _, t := range inner {
		m.changes = m.changes || slices.Contains([]string{"dynamic", "timeout", "gc-interval"}, t.text)
		if !slices.Contains(m.lines[max(0, len(m.lines)-1):], t.at) {
			m.lines = append(m.lines, t.at)
		}
	}
	if at := slices.IndexFunc(inner, func(t token) bool { return t.text == "elements" }); at >= 0 {
		open := slices.IndexFunc(inner[at:], func(t token) bool { return t.text == "{" })
		if open >= 0 {
			m.elements = inner[at+open+1:]
		}
	}
	s.maps[s.table+"/"+words[1].text] = m
}

// hooks maps nft's hooks to the corresponding chains of iptables.
var hooks = map[string]string{"prerouting": "PREROUTING", "postrouting": "POSTROUTING", "output": "OUTPUT",
	"input": "INPUT"}

// priorities maps nft's priority names to their values.
var priorities = map[string]int{"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}

// addBase adds a base chain that arriving packets traverse.
func (s *ruleset) addBase(name string, statement []token) {
	if slices.ContainsFunc(s.bases, func(b base) bool { return b.name == name }) {
		return
	}
	s.bases = append(s.bases, base{name: name, family: s.family(), at: statement[0].at,
		priority: priorityOf(statement)})
}

// addGuard adds a base chain that may drop packets of connections.
func (s *ruleset) addGuard(name, at string, statement []token) {
	stage, known := stages[at]
	if family := strings.Split(s.table, "/")[0]; !known || family == "arp" || family == "bridge" {
		return
	}
	priority := priorityOf(statement)
	h := hook{at: statement[0].at, order: stage*10_000 + priority, chain: name, family: s.family(),
		after: stage > stages["prerouting"] || stage == stages["prerouting"] && priority > priorities["dstnat"]}
	for i, t := range statement {
		if (t.text == "device" || t.text == "devices") && i+1 < len(statement) && statement[i+1].text != "=" {
			h.in = statement[i+1].text
		}
	}
	s.guards.addHook(h)
}

// family returns the family of the current table, "" for both.
func (s *ruleset) family() string {
	return map[string]string{"ip": "ipv4", "ip6": "ipv6"}[strings.Split(s.table, "/")[0]]
}

// priorityOf reads "priority NAME", "priority NUMBER" and "priority NAME + NUMBER" of a statement.
func priorityOf(statement []token) (priority int) {
	sign := 1
	at := slices.IndexFunc(statement, func(t token) bool { return t.text == "priority" })
	for _, t := range statement[at+1:] {
		number, err := strconv.Atoi(t.text)
		switch {
		case at < 0:
		case err == nil:
			priority += sign * number
		case t.text == "-":
			sign = -1
		default:
			priority += priorities[t.text]
		}
	}
	return priority
}

// joinBases joins the base chains that arriving packets traverse into one chain.
func (s *ruleset) joinBases() {
	slices.SortStableFunc(s.bases, func(a, b base) int { return cmp.Compare(a.priority, b.priority) })
	if s.several = len(s.bases) > 1; !s.several {
		for _, b := range s.bases {
			s.chains["PREROUTING"] = s.chains[b.name]
		}
		return
	}
	for _, b := range s.bases {
		s.chains["PREROUTING"] = append(s.chains["PREROUTING"], rule{at: b.at, match: match{family: b.family},
			target: b.name})
	}
}

// verdictWords are the words by which a rule may keep packets from the rules after it.
var verdictWords = []string{"accept", "drop", "reject", "return", "jump", "goto", "dnat", "redirect", "queue", "tproxy",
	"vmap", "dup", "fwd"}

// unread returns the rules of a statement that cannot be read to its end, with the matches that are known.
func (s *ruleset) unread(known []rule, statement []token) (rules []rule) {
	target := ""
	if slices.ContainsFunc(statement, func(t token) bool { return slices.Contains(verdictWords, t.text) }) {
		target = unreadable
	}
	for _, one := range known {
		one.unknown = cannotRead
		rules = append(rules, rule{at: statement[0].at, match: one.match, target: target})
	}
	return rules
}

// chain reads a chain.
func (s *ruleset) chain(words []token) {
	name, filters := s.table+"/"+words[1].text, false
	s.Carry(words[0].at)
	if _, there := s.chains[name]; !there {
		s.chains[name] = nil
	}
	for len(s.tokens) > 0 {
		statement, _ := s.statement(false)
		switch {
		case len(statement) == 0:
		case statement[0].text == "type":
			s.Carry(statement[0].at)
			name, filters = s.baseChain(name, statement)
		case statement[0].text == "policy", statement[0].text == "comment":
			s.Carry(statement[0].at)
			for i := range s.guards.hooks {
				if h := &s.guards.hooks[i]; h.chain == name && len(statement) > 1 && statement[1].text == "drop" {
					h.at, h.drops = statement[0].at, true
				}
			}
		case filters:
			s.guardRule(name, statement)
		default:
			rules, err := s.parseRule(statement)
			if err != nil {
				s.leaveAll(statement, err.Error())
				s.chains[name] = append(s.chains[name], s.unread(rules, statement)...)
				continue
			}
			for _, t := range statement {
				if t.at != statement[0].at {
					s.Carry(t.at)
				}
			}
			s.chains[name] = append(s.chains[name], rules...)
		}
	}
}

// baseChain reads the type statement of a base chain. as is the name under which the rules are stored. filters is true
// if they do not translate addresses.
func (s *ruleset) baseChain(name string, statement []token) (as string, filters bool) {
	at := slices.IndexFunc(statement, func(t token) bool { return t.text == "hook" })
	if at < 0 || at+1 >= len(statement) {
		return name, false
	}
	where := statement[at+1].text
	if statement[1].text != "nat" {
		s.addGuard(name, where, statement)
		s.guards.chains[name] = nil
		delete(s.chains, name)
		return name, true
	}
	switch hook, known := hooks[where]; {
	case !known:
	case hook == "PREROUTING":
		s.addBase(name, statement)
	default:
		return hook, false
	}
	return name, false
}

// guardRule reads a rule of a chain that does not translate addresses.
func (s *ruleset) guardRule(name string, statement []token) {
	used := map[*namedMap]bool{}
	for _, m := range s.maps {
		used[m], m.used = m.used, false
	}
	rules, err := s.parseRule(statement)
	if err != nil {
		rules = s.unread(rules, statement)
	}
	at := statement[0].at
	for m, before := range used {
		if m.used {
			s.guards.sets[at] = append(s.guards.sets[at], m)
		}
		m.used = before
	}
	for _, t := range statement {
		if t.at != at && t.text != "\n" {
			s.guards.lines[at] = append(s.guards.lines[at], t.at)
		}
	}
	s.guards.chains[name] = append(s.guards.chains[name], rules...)
}
