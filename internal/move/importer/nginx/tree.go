// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// Limits of includes, and of nested blocks.
const (
	deepestInclude = 8
	mostIncludes   = 256
	deepestBlock   = 32
)

// node is a directive with its block.
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

// parser parses lines into a tree.
type parser struct {
	*draft.Draft
	stack    []*node
	now      *node    // the directive whose words are being read; nil: none
	files    []string // the files being read, each included by the one before
	included int
}

// file reads a file into the current block.
func (p *parser) file(file draft.File) error {
	lines, err := p.Lines(file)
	if err != nil {
		return err
	}
	if len(p.files) == 0 {
		if err := p.CheckDialect(lines); err != nil {
			return err
		}
	}
	p.files = append(p.files, file.Name)
	depth := len(p.stack)
	for i := 0; i < len(lines); i++ {
		// A quoted text may span several lines.
		text, at := lines[i].Text, lines[i].At
		words, open := tokens(text)
		for open && i+1 < len(lines) && len(text) < 1<<16 {
			i++
			text += "\n" + lines[i].Text
			p.Carry(lines[i].At)
			words, open = tokens(text)
		}
		if open {
			return fmt.Errorf("%s: a quotation that does not end", at)
		}
		if err := p.line(at, words); err != nil {
			return err
		}
	}
	if p.now != nil {
		return fmt.Errorf("%s: a directive without a semicolon", p.now.at)
	}
	if len(p.stack) != depth {
		return fmt.Errorf("%s: a block that does not end in its file", p.stack[len(p.stack)-1].at)
	}
	p.files = p.files[:len(p.files)-1]
	return nil
}

// token is a word, or a mark if mark is set.
type token struct {
	text string
	mark bool
}

// line reads the tokens of a line.
func (p *parser) line(at remark.At, words []token) error {
	if !slices.ContainsFunc(words, func(t token) bool { return !t.mark }) {
		p.Carry(at)
	}
	for _, t := range words {
		switch {
		case !t.mark && p.now == nil:
			p.now = &node{at: at, words: []string{t.text}}
		case !t.mark:
			p.now.words = append(p.now.words, t.text)
			if p.now.at != at {
				p.Carry(at)
			}
		case t.text == "}":
			if p.now != nil || len(p.stack) == 1 {
				return fmt.Errorf("%s: a brace that ends no block", at)
			}
			p.stack = p.stack[:len(p.stack)-1]
		case p.now == nil:
			return fmt.Errorf("%s: a %s without a directive", at, t.text)
		case t.text == "{":
			if len(p.stack) > deepestBlock {
				return fmt.Errorf("%s: blocks within each other, more than %d", at, deepestBlock)
			}
			p.stack = append(p.stack, p.end())
		default:
			if err := p.directive(p.end()); err != nil {
				return err
			}
		}
	}
	return nil
}

// end adds the directive being read to the current block.
func (p *parser) end() *node {
	n, parent := p.now, p.stack[len(p.stack)-1]
	parent.children = append(parent.children, n)
	p.now = nil
	return n
}

// directive replaces an include by the contents of its files.
func (p *parser) directive(n *node) error {
	if n.words[0] != "include" {
		return nil
	}
	parent := p.stack[len(p.stack)-1]
	parent.children = parent.children[:len(parent.children)-1]
	if p.Include == nil {
		p.Left(n.at, "the files that it names are not read from standard input; import the file by its name")
		return nil
	}
	files, err := p.Include(n.word(1))
	if err != nil {
		p.Left(n.at, "%v", err)
		return nil
	}
	if len(files) == 0 {
		p.Needless(n.at, "no file is of that name")
		return nil
	}
	p.Carry(n.at)
	for _, file := range files {
		if slices.Contains(p.files, file.Name) {
			return fmt.Errorf("%s: includes %s, which includes this file: a circle", n.at, file.Name)
		}
		if p.included++; p.included > mostIncludes || len(p.files) > deepestInclude {
			return fmt.Errorf("%s: more than %d files, or %d within each other", n.at, mostIncludes, deepestInclude)
		}
		if err := p.file(file); err != nil {
			return err
		}
	}
	return nil
}

// tokens splits text into words and marks. open is set if a quotation does not end.
func tokens(text string) (words []token, open bool) {
	var word strings.Builder
	quote, within := byte(0), false
	end := func() {
		if within {
			words = append(words, token{text: word.String()})
			word.Reset()
			within = false
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			within = true
			word.WriteByte(text[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case (c == '"' || c == '\'') && !within:
			quote, within = c, true
		case c == '#' && !within:
			end()
			if newline := strings.IndexByte(text[i:], '\n'); newline >= 0 {
				i += newline
				continue
			}
			return words, false
		case c == '$' && i+1 < len(text) && text[i+1] == '{':
			closing := strings.IndexByte(text[i:], '}')
			if closing < 0 {
				closing = 1
			}
			within = true
			word.WriteString(text[i : i+closing+1])
			i += closing
		case c == ' ' || c == '\t' || c == '\n':
			end()
		case c == ';' || c == '{' || c == '}':
			end()
			words = append(words, token{string(c), true})
		default:
			within = true
			word.WriteByte(c)
		}
	}
	end()
	return words, quote != 0
}
