// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// Limits of includes and blocks.
const (
	deepestInclude = 8
	mostIncludes   = 256
	deepestBlock   = 16
)

// node is a statement with its block.
type node struct {
	at       remark.At
	words    []string
	children []*node
}

// word returns word n, or "" if there is none.
func (n *node) word(i int) string {
	if i < len(n.words) {
		return n.words[i]
	}
	return ""
}

// child returns the last child that begins with one of the words, or nil.
func (n *node) child(words ...string) *node {
	for i := len(n.children) - 1; i >= 0; i-- {
		if slices.Contains(words, n.children[i].word(0)) {
			return n.children[i]
		}
	}
	return nil
}

// parser parses lines into a tree.
type parser struct {
	*draft.Draft
	stack     []*node
	files     []string // the files being read, each included by the one before
	included  int
	variables map[string]string
	// conditional is the nesting depth of blocks within a conditional block, 0 outside.
	conditional int
	// opened is the last statement. A brace on the next line opens its block.
	opened *node
}

// file reads a file into the current block.
func (p *parser) file(file draft.File) error {
	lines, err := p.Lines(file)
	if err != nil {
		return err
	}
	if len(p.files) == 0 {
		// A file with includes may have no line that only keepalived has.
		if err := p.CheckDialect(lines); err != nil && !slices.ContainsFunc(lines, includes) {
			return err
		}
	}
	p.files = append(p.files, file.Name)
	for i := 0; i < len(lines); i++ {
		if next := p.define(lines, i); next > i {
			i = next - 1
			continue
		}
		if err := p.substituted(lines[i], 0); err != nil {
			return err
		}
	}
	p.files = p.files[:len(p.files)-1]
	return nil
}

// line reads a line.
func (p *parser) line(line draft.Line) error {
	words := tokens(line.Text)
	if len(words) == 0 {
		return nil
	}
	if words[0][0] == '@' || p.conditional > 0 {
		p.skip(line.At, words)
		return nil
	}
	if slices.Contains(includeWords, words[0]) {
		return p.include(line.At, words)
	}
	if !slices.ContainsFunc(words, func(w string) bool { return w != "{" && w != "}" }) {
		p.Carry(line.At)
	}
	for len(words) > 0 {
		end := slices.IndexFunc(words, func(w string) bool { return w == "{" || w == "}" })
		switch {
		case end < 0:
			p.add(&node{at: line.At, words: words})
			return nil
		case end > 0:
			p.add(&node{at: line.At, words: words[:end]})
		}
		if err := p.brace(line.At, words[end]); err != nil {
			return err
		}
		words = words[end+1:]
	}
	return nil
}

// skip leaves out a line that holds under a condition, and its block.
func (p *parser) skip(at remark.At, words []string) {
	p.Left(at, "holds under a condition (@) only; write what holds here without it")
	for _, word := range words {
		switch word {
		case "{":
			p.conditional++
		case "}":
			p.conditional--
		}
	}
	p.conditional = max(p.conditional, 0)
}

// add appends a statement to the current block.
func (p *parser) add(n *node) {
	parent := p.stack[len(p.stack)-1]
	parent.children = append(parent.children, n)
	p.opened = n
}

// brace opens or closes a block.
func (p *parser) brace(at remark.At, brace string) error {
	switch {
	case brace == "}" && len(p.stack) == 1:
		return fmt.Errorf("%s: a brace that ends no block", at)
	case brace == "}":
		p.stack, p.opened = p.stack[:len(p.stack)-1], nil
	case p.opened == nil:
		return fmt.Errorf("%s: a brace that begins no block", at)
	case len(p.stack) > deepestBlock:
		return fmt.Errorf("%s: blocks within each other, more than %d", at, deepestBlock)
	default:
		p.stack, p.opened = append(p.stack, p.opened), nil
	}
	return nil
}

// include reads the files that match a pattern.
func (p *parser) include(at remark.At, words []string) error {
	if len(words) < 2 || p.Include == nil {
		p.Left(at, "the files that it names are not read from standard input; import the file by its name")
		return nil
	}
	pattern := words[1]
	if !filepath.IsAbs(pattern) { // it is relative to the including file
		if below, err := filepath.Rel(filepath.Dir(p.files[0]), filepath.Dir(p.files[len(p.files)-1])); err == nil {
			pattern = filepath.Join(below, pattern)
		}
	}
	files, err := p.Include(pattern)
	if err != nil {
		p.Left(at, "%v", err)
		return nil
	}
	if len(files) == 0 {
		p.Left(at, "no file is of that name")
		return nil
	}
	for _, file := range files {
		if slices.Contains(p.files, file.Name) {
			return fmt.Errorf("%s: includes %s, which includes this file: a circle", at, file.Name)
		}
		if p.included++; p.included > mostIncludes || len(p.files) > deepestInclude {
			return fmt.Errorf("%s: more than %d files, or %d within each other", at, mostIncludes, deepestInclude)
		}
		if err := p.file(file); err != nil {
			return err
		}
	}
	p.Carry(at)
	return nil
}

// includeWords are the keywords that include files.
var includeWords = []string{"include", "includer", "includem", "includew", "includeb"}

func includes(line draft.Line) bool {
	words := tokens(line.Text)
	return len(words) > 1 && slices.Contains(includeWords, words[0])
}

// definition matches a line that defines a variable.
var definition = regexp.MustCompile(`^\s*\$([A-Za-z0-9_]+)\s*=(.*)$`)

// define reads the definition of a variable that begins at line i, and returns the index of the line after it. If no
// definition begins there, it returns i. A backslash at the end of a line continues the value in the next line, as a
// separate line.
func (p *parser) define(lines []draft.Line, i int) int {
	match := definition.FindStringSubmatch(lines[i].Text)
	if match == nil {
		return i
	}
	var value []string
	for text := match[2]; ; text = lines[i].Text {
		p.Carry(lines[i].At)
		rest, goesOn := strings.CutSuffix(strings.TrimRight(text, " \t"), `\`)
		if rest = strings.TrimSpace(rest); rest != "" || len(value) > 0 {
			value = append(value, rest)
		}
		i++
		if !goesOn || i == len(lines) {
			break
		}
	}
	p.variables[match[1]] = strings.Join(value, "\n")
	return i
}

// variable matches a reference to a variable.
var variable = regexp.MustCompile(`\$\{?([A-Za-z0-9_]+)\}?`)

// deepestVariable limits the nesting of variables in the values of variables.
const deepestVariable = 8

// substituted reads a line after replacing variables by their values, which may make it several lines.
func (p *parser) substituted(line draft.Line, depth int) error {
	known := false
	text := variable.ReplaceAllStringFunc(line.Text, func(place string) string {
		value, is := p.variables[strings.Trim(place, "${}")]
		if !is {
			return place
		}
		known = true
		return value
	})
	switch {
	case !known:
		return p.line(line)
	case depth == deepestVariable || len(text) > draft.MaxLine:
		return fmt.Errorf("%s: variables whose values have variables, more than %d, or a line of %d bytes", line.At,
			deepestVariable, len(text))
	}
	for one := range strings.SplitSeq(text, "\n") {
		if err := p.substituted(draft.Line{At: line.At, Text: one}, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// tokens splits a line into words. A brace is a word; a comment is left out.
func tokens(text string) []string {
	var words []string
	var word strings.Builder
	quoted, within := byte(0), false
	end := func() {
		if within {
			words = append(words, word.String())
			word.Reset()
			within = false
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quoted != 0 && c == quoted:
			quoted = 0
		case quoted != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quoted, within = c, true
		case c == '!' || c == '#':
			end()
			return words
		case c == ' ' || c == '\t':
			end()
		case c == '}' || c == '{' && !(within && strings.HasPrefix(word.String(), "$")):
			if c == '}' && within && strings.HasPrefix(word.String(), "${") {
				word.WriteByte(c)
				continue
			}
			end()
			words = append(words, string(c))
		default:
			within = true
			word.WriteByte(c)
		}
	}
	end()
	return words
}
