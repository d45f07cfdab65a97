// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"fmt"
	"strconv"
	"strings"
)

// part is another text, whose elements of a list follow those of the texts before it.
type part struct {
	name, list string
	first      int
}

// Append puts what was read of another text behind what is there: its elements of the list of
// that name (at the root of both) are elements first and following from now on. Messages name the
// text that a field stands in, and the field as that text has it.
func (f *File) Append(other *File, list string, first int) {
	f.parts = append(f.parts, part{other.Name, list, first})
	for field, line := range other.lines {
		if i, rest, ok := element(field, list); ok {
			f.lines[Element(list, first+i)+rest] = line
		}
	}
	for field := range other.bad {
		if i, rest, ok := element(field, list); ok {
			f.mark(Element(list, first+i) + rest)
		}
	}
	f.Problems = append(f.Problems, other.Problems...)
}

// element takes the index out of a field of an element of a list; rest is what follows it.
func element(field, list string) (i int, rest string, ok bool) {
	after, ok := strings.CutPrefix(field, list+"[")
	if !ok {
		return 0, "", false
	}
	digits, rest, ok := strings.Cut(after, "]")
	if !ok {
		return 0, "", false
	}
	i, err := strconv.Atoi(digits)
	return i, rest, err == nil
}

// own returns the name of the text that a field stands in, and the field as that has it.
func (f *File) own(field string) (name, spelt string) {
	for n := len(f.parts) - 1; n >= 0; n-- {
		p := f.parts[n]
		if i, rest, ok := element(field, p.list); ok && i >= p.first {
			return p.name, Element(p.list, i-p.first) + rest
		}
	}
	return f.Name, field
}

// Place names a field and its line, for a message about another field; where there are several
// texts, also the one it stands in.
func (f *File) Place(field string) string {
	if len(f.parts) == 0 {
		return fmt.Sprintf("%s (line %d)", field, f.Line(field))
	}
	name, spelt := f.own(field)
	if line := f.Line(field); line > 0 {
		return fmt.Sprintf("%s (%s, line %d)", spelt, name, line)
	}
	return fmt.Sprintf("%s (%s)", spelt, name)
}
