// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/shlex"
)

// readINI reads Ansible's INI form, which is unlike any other: a host line is a pattern followed by variables, quoted
// as in a shell, and the suffix of a section's name is the kind of its lines (Ansible, "How to build your inventory").
// No library for INI files reads that.
func (p *parser) readINI(text string) {
	read := p.hostLines(p.group("ungrouped", 0))
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] != '[' {
			read(number, line)
			continue
		}
		name, ok := section(line)
		if !ok {
			p.fail(number, "", "%q is no section; write [group], [group:children] or [group:vars]", line)
			read = func(int, string) {}
			continue
		}
		name, kind, _ := strings.Cut(name, ":")
		switch kind {
		case "":
			read = p.hostLines(p.group(name, number))
		case "children":
			read = p.childLines(p.group(name, number))
		case "vars":
			read = p.varLines(p.group(name, number))
		default:
			p.fail(number, name, "a section's lines are hosts, :children or :vars, not :%s", kind)
			read = func(int, string) {}
		}
	}
}

// section returns the text in the brackets of a section line.
func section(line string) (string, bool) {
	name, rest, closed := strings.Cut(line[1:], "]")
	rest = strings.TrimSpace(rest)
	name = strings.TrimSpace(name)
	return name, closed && name != "" && !strings.ContainsAny(name, "[ \t") &&
		(rest == "" || rest[0] == '#' || rest[0] == ';')
}

// hostLines reads "pattern key=value key='a value'".
func (p *parser) hostLines(in *group) func(int, string) {
	return func(number int, line string) {
		words, err := shlex.Split(line)
		if err != nil {
			p.fail(number, "", "%v", err)
			return
		}
		if len(words) == 0 {
			return
		}
		vars := map[string]value{}
		for _, word := range words[1:] {
			name, text, ok := strings.Cut(word, "=")
			if !ok || name == "" {
				p.fail(number, words[0], "%q is no variable; write name=value", word)
				continue
			}
			vars[name] = value{text, number}
		}
		pattern, port := cutPort(words[0])
		if port != "" {
			if _, there := vars["ansible_port"]; !there {
				vars["ansible_port"] = value{port, number}
			}
		}
		p.addHosts(in, pattern, number, vars)
	}
}

// cutPort cuts the port off "host:2222"; the colon of a range is inside of brackets.
func cutPort(pattern string) (host, port string) {
	at := strings.LastIndexByte(pattern, ':')
	if at <= strings.LastIndexByte(pattern, ']') ||
		strings.Count(pattern[:at], ":") > strings.Count(pattern[:at], "[") {
		return pattern, "" // no colon, the colon of a range, or an IPv6 address
	}
	return pattern[:at], pattern[at+1:]
}

// childLines reads the names of groups.
func (p *parser) childLines(in *group) func(int, string) {
	return func(number int, line string) {
		name, _, _ := strings.Cut(line, "#")
		in.children = append(in.children, mention{strings.TrimSpace(name), number})
	}
}

// varLines reads "key = value", with the value up to the end of the line.
func (p *parser) varLines(in *group) func(int, string) {
	return func(number int, line string) {
		name, text, ok := strings.Cut(line, "=")
		name, text = strings.TrimSpace(name), strings.TrimSpace(text)
		if !ok || name == "" {
			p.fail(number, "", "%q is no variable; write name=value", line)
			return
		}
		if comment := strings.Index(text, " #"); comment >= 0 && !strings.ContainsAny(text, `"'`) {
			text = strings.TrimSpace(text[:comment])
		}
		if n := len(text); n >= 2 && text[0] == text[n-1] && strings.ContainsRune(`"'`, rune(text[0])) {
			text = text[1 : n-1]
		}
		in.vars[name] = value{text, number}
	}
}

// hostRange matches a range in a pattern: [01:25], [a:f], [1:10:2].
var hostRange = regexp.MustCompile(`\[(\w+):(\w+)(?::(\d+))?\]`)

// hostName matches the names that a host may have.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`)

// expand returns the hosts that a pattern matches.
func expand(pattern string) ([]string, error) {
	at := hostRange.FindStringSubmatchIndex(pattern)
	if at == nil {
		if !hostName.MatchString(pattern) {
			return nil, fmt.Errorf("%q is no name of a host", pattern)
		}
		return []string{pattern}, nil
	}
	match := hostRange.FindStringSubmatch(pattern)
	items, err := series(match[1], match[2], match[3])
	if err != nil {
		return nil, fmt.Errorf("%q: %w", pattern, err)
	}
	var all []string
	for _, item := range items {
		names, err := expand(pattern[:at[0]] + item + pattern[at[1]:])
		if err != nil {
			return nil, err
		}
		if all = append(all, names...); len(all) > maxHosts {
			return nil, fmt.Errorf("%q stands for more than %d hosts", pattern, maxHosts)
		}
	}
	return all, nil
}

// series returns the numbers or letters of a range; numbers are as wide as the first if that begins with a zero.
func series(first, last, step string) ([]string, error) {
	by := 1
	if step != "" {
		var err error
		if by, err = strconv.Atoi(step); err != nil || by < 1 {
			return nil, fmt.Errorf("%s is no step", step)
		}
	}
	format := func(n int) string { return string(rune(n)) }
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	switch {
	case errFrom == nil && errTo == nil:
		width := 0
		if first[0] == '0' {
			width = len(first)
		}
		format = func(n int) string { return fmt.Sprintf("%0*d", width, n) }
	case len(first) == 1 && len(last) == 1 && errFrom != nil && errTo != nil:
		from, to = int(first[0]), int(last[0])
	default:
		return nil, fmt.Errorf("%s to %s is no range", first, last)
	}
	const longest = 9 // digits: no inventory numbers hosts by more
	if len(first) > longest || len(last) > longest || to < from || (to-from)/by >= maxHosts {
		return nil, fmt.Errorf("%s to %s is no range of 1 to %d hosts", first, last, maxHosts)
	}
	var all []string
	for i := range (to-from)/by + 1 {
		all = append(all, format(from+i*by))
	}
	return all, nil
}
