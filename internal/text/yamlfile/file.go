// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// File is a file while it is read, with the line of each field and the problems so far.
type File struct {
	// Name is the name that the file was read under, for messages.
	Name string
	// Problems are the problems found so far, in the order in which they were found.
	Problems Problems

	lines map[string]int
	// bad are the fields with a reported problem. Checks across fields skip them, because one mistake deserves one
	// message.
	bad map[string]bool
	// parts are the texts that were appended, in their order.
	parts []part
}

// NewFile returns a file with a name and nothing else.
func NewFile(name string) *File { return &File{Name: name, lines: map[string]int{}} }

// At returns a problem at a field. The line is that of the field or, if the file omits it, of the mapping that it would
// be in.
func (f *File) At(field, format string, args ...any) Problem {
	in, spelt := f.own(field)
	return Problem{File: in.Name, Line: in.line(spelt), Field: spelt, Message: fmt.Sprintf(format, args...)}
}

// Fail reports a problem at a field.
func (f *File) Fail(field, format string, args ...any) {
	f.mark(field)
	f.Problems = append(f.Problems, f.At(field, format, args...))
}

// mark records that a problem was reported for a field.
func (f *File) mark(field string) {
	if f.bad == nil {
		f.bad = map[string]bool{}
	}
	f.bad[field] = true
}

// Bad reports whether a problem was reported for a field.
func (f *File) Bad(field string) bool { return f.bad[field] }

// AnyBad reports whether a problem was reported for any field. If not, callers need not build the path of a field to
// check it.
func (f *File) AnyBad() bool { return len(f.bad) > 0 }

// Written reports whether the file has a field.
func (f *File) Written(field string) bool {
	in, spelt := f.own(field)
	_, written := in.lines[spelt]
	return written
}

// Leaves returns the fields of the file that contain no other field, in the order of their lines. It omits those of
// appended texts.
func (f *File) Leaves() []string {
	holds := map[string]bool{}
	for field := range f.lines {
		if field != "" {
			holds[parent(field)] = true
		}
	}
	var leaves []string
	for field := range f.lines {
		if !holds[field] {
			leaves = append(leaves, field)
		}
	}
	slices.SortFunc(leaves, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.lines[a], f.lines[b]), cmp.Compare(a, b))
	})
	return leaves
}

// parent returns the path of the mapping or the list that contains a field.
func parent(field string) string { return field[:max(strings.LastIndexAny(field, ".["), 0)] }

// Line returns the line, from 1, of a field or of its nearest written parent; 0 if none is written.
func (f *File) Line(field string) int {
	in, spelt := f.own(field)
	return in.line(spelt)
}

// line is Line for a field of this text itself.
func (f *File) line(field string) int {
	for {
		if line, ok := f.lines[field]; ok {
			return line
		}
		if field == "" {
			return 0
		}
		field = parent(field)
	}
}

// Element returns the path of element i (from 0) of a list.
func Element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// Join returns the path of a field of a mapping. An empty path is that of the whole file.
func Join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// maxShown limits the text of a file that a message repeats, in bytes.
const maxShown = 80

// Quote quotes a value from a file for a message, safely for a terminal.
func Quote(s string) string {
	if len(s) > maxShown {
		return strconv.Quote(s[:maxShown]) + "…"
	}
	return strconv.Quote(s)
}

// printable is Quote without quotes that are not needed.
func printable(s string) string {
	if quoted := Quote(s); quoted != `"`+s+`"` || s == "" {
		return quoted
	}
	return s
}
