// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"fmt"
	"io"
	"strings"
)

// Reference writes the part of a page in Markdown that explains the keys: a section for
// each mapping, the outermost under the given title.
func (t Table[T]) Reference(w io.Writer, title string) error {
	page := &page{w: w}
	page.section("", title, t.entries())
	return page.err
}

// page is a page while it is written; the first error ends it.
type page struct {
	w   io.Writer
	err error
}

func (p *page) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// section writes the table of a mapping's keys, and the sections of those that are
// mappings themselves; path is the mapping's own.
func (p *page) section(path, title string, keys []entry) {
	p.printf("\n## %s\n\n| key | value | default | what it does |\n|---|---|---|---|\n", title)
	for _, k := range keys {
		p.printf("| `%s` | %s | %s | %s |\n", k.name, cell(k.kindIn(path)), cell(k.fallbackWords()), cell(k.explanation()))
	}
	for _, k := range keys {
		if k.value.keys != nil && k.value.see == "" {
			below := k.path(path)
			p.section(below, "`"+below+"`", k.value.keys)
		}
	}
}

// path is that of the key's value, below its mapping's: services[] for a list.
func (e entry) path(in string) string {
	path := e.name
	if in != "" {
		path = in + "." + e.name
	}
	if e.value.list {
		path += "[]"
	}
	return path
}

// kindIn says what is written; a mapping leads to its section.
func (e entry) kindIn(in string) string {
	if e.value.keys == nil {
		return e.value.kind
	}
	path := e.path(in)
	if e.value.see != "" {
		path = entry{name: e.value.see, value: description{list: true}}.path(in)
	}
	return fmt.Sprintf("%s: [`%s`](#%s)", e.value.kind, path, anchor(path))
}

// anchor is the name by which a page's renderer knows a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(".[]`", r) {
			return -1
		}
		return r
	}, strings.ToLower(heading))
}

func (e entry) fallbackWords() string {
	switch {
	case e.required && e.unless != "":
		return "required, unless there is `" + e.unless + "`"
	case e.required:
		return "required"
	}
	return e.value.fallback
}

func (e entry) explanation() string {
	text := e.what
	if e.refused != "" {
		text += " Refused: " + strings.ToLower(e.refused[:1]) + e.refused[1:]
	}
	if e.since != "" {
		text += " Since " + e.since + "."
	}
	return text
}

// cell is a text that stands in a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
