// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"fmt"
	"strconv"
	"strings"
)

// part is another text, whose elements of a list follow those of the texts before it.
type part struct {
	list  string
	first int
	file  *File
}

// Append puts the file of another text behind this one: its elements of the list of that name (at the root of both) are
// elements first and following from now on. Messages name the text that a field stands in, and the field as that text
// has it.
func (f *File) Append(other *File, list string, first int) {
	f.parts = append(f.parts, part{list, first, other})
	for field := range other.bad {
		if i, rest, ok := ElementOf(field, list); ok {
			f.mark(Element(list, first+i) + rest)
		}
	}
	f.Problems = append(f.Problems, other.Problems...)
}

// Alone returns the file as it was read, without the appended files and without its problems.
func (f *File) Alone() *File { return &File{Name: f.Name, lines: f.lines} }

// Parts returns the texts that were appended, in their order.
func (f *File) Parts() []*File {
	files := make([]*File, len(f.parts))
	for n, p := range f.parts {
		files[n] = p.file
	}
	return files
}

// ElementOf takes the index out of a field of an element of a list; rest is the path behind it.
func ElementOf(field, list string) (i int, rest string, ok bool) {
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

// own returns the text that a field stands in, and the field as that has it.
func (f *File) own(field string) (in *File, spelt string) {
	for n := len(f.parts) - 1; n >= 0; n-- {
		p := f.parts[n]
		if i, rest, ok := ElementOf(field, p.list); ok && i >= p.first {
			return p.file, Element(p.list, i-p.first) + rest
		}
	}
	return f, field
}

// Place names a field and its line, for a message about another field; where there are several
// texts, also the one it stands in.
func (f *File) Place(field string) string {
	if len(f.parts) == 0 {
		return fmt.Sprintf("%s (line %d)", field, f.Line(field))
	}
	in, spelt := f.own(field)
	if line := f.Line(field); line > 0 {
		return fmt.Sprintf("%s (%s, line %d)", spelt, in.Name, line)
	}
	return fmt.Sprintf("%s (%s)", spelt, in.Name)
}
