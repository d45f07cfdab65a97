// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"fmt"
	"io"
	"strings"
)

// Reference writes the part of a page in Markdown that explains the keys. It has a section for each mapping, the
// outermost one under the given title.
func Reference[T any](t Table[T], w io.Writer, title string) error {
	page := &page{w: w, section: (*page).table}
	page.sections("", title, untyped(t).entries())
	return page.err
}

// Manual writes the same with lists instead of tables, for which a terminal is too narrow.
func Manual[T any](t Table[T], w io.Writer, title string) error {
	page := &page{w: w, section: (*page).list}
	page.sections("", title, untyped(t).entries())
	return page.err
}

// page is a page while it is written. It keeps the first error and writes nothing after it.
type page struct {
	w   io.Writer
	err error
	// section writes the keys of one mapping.
	section func(p *page, path string, keys []entry)
}

func (p *page) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// sections writes the section of a mapping, and those of its keys that are mappings themselves. path is the path of the
// mapping.
func (p *page) sections(path, title string, keys []entry) {
	p.printf("\n## %s\n\n", title)
	p.section(p, path, keys)
	for _, k := range keys {
		if k.value.keys != nil && k.value.see == "" {
			below := k.path(path)
			p.sections(below, "`"+below+"`", k.value.keys)
		}
	}
}

// table writes the keys of a mapping as a table.
func (p *page) table(path string, keys []entry) {
	p.printf("| key | value | default | what it does |\n|---|---|---|---|\n")
	for _, k := range keys {
		p.printf("| `%s` | %s | %s | %s |\n", k.name, cell(k.kindIn(path)), cell(k.fallbackWords()),
			cell(k.explanation()))
	}
}

// list writes the keys of a mapping as terms, with their kinds and effects.
func (p *page) list(path string, keys []entry) {
	for _, k := range keys {
		takes := k.kindIn(path)
		if k.required {
			takes += "; " + k.fallbackWords()
		} else if fallback := k.fallbackWords(); fallback != "" {
			takes += "; default: " + fallback
		}
		p.printf("`%s`\n:   (%s) %s\n\n", k.name, takes, k.explanation())
	}
}

// path returns the path of the key's value within its mapping: services[] for a list.
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

// kindIn returns the kind of a key's value. For a mapping it links to its section.
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

// anchor returns the anchor that a page's renderer makes of a heading.
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

// cell escapes a text for a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
