// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"fmt"
	"strconv"
	"strings"
)

// part is another text. Its elements of a list follow those of the texts before it.
type part struct {
	list  string
	first int
	file  *File
}

// Append appends the file of another text to this one. The other's elements of a list (at the root of both) become the
// elements from first on. Messages name the text that has a field, and the field as it is in that text.
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

// ElementOf splits the index off a field of an element of a list. rest is the path after it.
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

// own returns the text that has a field, and the field as it is in that text.
func (f *File) own(field string) (in *File, spelt string) {
	for n := len(f.parts) - 1; n >= 0; n-- {
		p := f.parts[n]
		if i, rest, ok := ElementOf(field, p.list); ok && i >= p.first {
			return p.file, Element(p.list, i-p.first) + rest
		}
	}
	return f, field
}

// Place returns a field and its line, for a message about another field. If there are several texts, it includes the
// text that has the field.
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
