// SPDX-License-Identifier: Apache-2.0

// Package netfilter reads rules of the kernel's netfilter, in the languages of iptables and nft. Destination NAT with a
// statistic match, a map or a range is load balancing. Both languages become the same rules, which walk.go evaluates in
// the order in which packets traverse them.
package netfilter

import (
	"slices"
	"strings"

	"github.com/google/shlex"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// ReadIPTables fills a draft from the output of iptables-save, or from command lines of iptables that add to the table
// nat.
func ReadIPTables(d *draft.Draft, file draft.File) error {
	lines, err := d.Lines(file)
	if err != nil {
		return err
	}
	if err := d.CheckDialect(lines); err != nil {
		return err
	}
	r := newReader(d)
	table := ""
	for _, line := range lines {
		if !line.Blank("#") {
			r.line(line, &table)
		}
	}
	r.walk("PREROUTING", match{}, 1, 0)
	r.guards.sort()
	r.serve()
	r.rest()
	r.restOfGuards()
	return nil
}

// line reads a line. table is the table that the line belongs to.
func (r *reader) line(line draft.Line, table *string) {
	text := strings.TrimSpace(line.Text)
	switch {
	case text[0] == '*':
		*table = strings.TrimSpace(text[1:])
		fallthrough
	case text[0] == ':' || text == "COMMIT":
		words := strings.Fields(text[1:])
		switch {
		case *table == "nat":
			r.Carry(line.At)
		case text[0] == ':' && len(words) > 1 && r.policy(line.At, *table, words[0], words[1]):
		default:
			r.Needless(line.At, "of the table %s, which does not balance", *table)
		}
		return
	}
	words, err := shlex.Split(text)
	if err != nil || len(words) == 0 {
		r.Left(line.At, "a quotation that does not end; look at it by hand")
		return
	}
	if strings.HasPrefix(words[0], "[") { // counters
		words = words[1:]
	}
	own, isCommand := *table, false
	if words, own, isCommand = command(words, own); words == nil {
		r.Left(line.At, "no rule of iptables; look at it by hand")
		return
	}
	r.rule(line.At, words, own, isCommand)
}

// command removes the program's name and the options before the command from a command line.
func command(words []string, table string) ([]string, string, bool) {
	isCommand := false
	for len(words) > 0 && !isCommand {
		name := words[0][strings.LastIndexByte(words[0], '/')+1:]
		switch name {
		case "sudo":
		case "iptables", "ip6tables", "iptables-legacy", "ip6tables-legacy", "iptables-nft", "ip6tables-nft":
			isCommand, table = true, "filter"
		default:
			if strings.HasPrefix(words[0], "-") {
				return words, table, false
			}
			return nil, table, false
		}
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, table, isCommand
	}
	for i := 0; i+1 < len(words); i++ {
		if words[i] == "-t" || words[i] == "--table" {
			table = words[i+1]
			words = slices.Concat(words[:i], words[i+2:])
			break
		}
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "-w" || w == "--wait" || w == "-n" })
	if len(words) == 0 {
		return nil, table, isCommand
	}
	return words, table, isCommand
}

// rule reads a rule, and inserts it at its position in the chain.
func (r *reader) rule(at remark.At, words []string, table string, isCommand bool) {
	switch words[0] {
	case "-A", "--append", "-I", "--insert":
	case "-P", "--policy":
		if len(words) < 3 || table == "nat" || !r.policy(at, table, words[1], words[2]) {
			r.Needless(at, "makes, empties or lists chains")
		}
		return
	case "-N", "--new-chain":
		if len(words) > 1 && table != "nat" {
			r.policy(at, table, words[1], "-")
		}
		r.Needless(at, "makes, empties or lists chains")
		return
	case "-F", "-X", "-Z", "-L", "-S", "--flush", "--delete-chain", "--list":
		r.Needless(at, "makes, empties or lists chains")
		return
	default:
		r.Left(at, "no rule that is added (-A or -I); look at it by hand")
		return
	}
	if len(words) < 2 {
		r.Left(at, "a chain is missing")
		return
	}
	chains, chain, rest := r.chains, words[1], words[2:]
	if table != "nat" {
		if h, is := hookOf(at, table, chain); is {
			r.guards.addHook(h)
		}
		chains, chain = r.guards.chains, table+"/"+chain
	}
	position := len(chains[chain])
	if words[0] == "-I" || words[0] == "--insert" {
		position = 0
		if len(rest) > 0 && rest[0] != "" && rest[0][0] >= '1' && rest[0][0] <= '9' {
			n, _, err := draft.Number(rest[0], uint64(len(chains[chain])+1))
			if err == nil && n > 0 {
				position = int(n) - 1
			}
			rest = rest[1:]
		}
	}
	parsed, err := parse(at, rest)
	if err != nil {
		r.Left(at, "%v; look at it by hand", err)
		parsed = unread(parsed.match, at, rest)
	}
	chains[chain] = slices.Insert(chains[chain], min(position, len(chains[chain])), parsed)
}

// policy reads the policy of a chain that is not in the table nat. It reports whether the policy drops packets of
// connections.
func (r *reader) policy(at remark.At, table, chain, target string) bool {
	h, is := hookOf(at, table, chain)
	if is {
		known := r.guards.addHook(h)
		known.at, known.drops = at, target == "DROP"
	}
	if _, there := r.guards.chains[table+"/"+chain]; !there {
		r.guards.chains[table+"/"+chain] = nil
	}
	return is && target == "DROP"
}

// unread returns a rule whose match is only partly understood. The rule may keep packets from later rules, unless its
// target continues with the next rule.
func unread(known match, at remark.At, words []string) rule {
	known.unknown = cannotRead
	one := rule{at: at, target: unreadable, match: known}
	for _, option := range []string{"-j", "--jump"} {
		if i := slices.Index(words, option); i >= 0 && i+1 < len(words) && slices.Contains(passing, words[i+1]) {
			one.target = words[i+1]
		}
	}
	return one
}
