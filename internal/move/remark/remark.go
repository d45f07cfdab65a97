// SPDX-License-Identifier: Apache-2.0

// Package remark holds what a person is told of the lines of a file while it is written anew in
// another language: what was left out, and what does not do quite the same.
package remark

import (
	"fmt"
	"strings"
	"unicode"
)

// At is a line of a file, from 1.
type At struct {
	File string
	Line int
}

// String returns "file:line".
func (a At) String() string { return fmt.Sprintf("%s:%d", a.File, a.Line) }

// Kind is what has become of a line that was not carried over as it stands.
type Kind string

// The kinds.
const (
	// Left is not in the result, and what the line does is not done.
	Left Kind = "left out"
	// Approximated is in the result, and does not do quite the same.
	Approximated Kind = "approximated"
	// Needless has no counterpart, and needs none.
	Needless Kind = "not needed"
)

// Remark is what a person is told of a line.
type Remark struct {
	At   At
	Kind Kind
	// Text is the line, shortened.
	Text string
	// Why says why, and what to do.
	Why string
}

// String returns "file:line: kind: `line`: why".
func (r Remark) String() string { return fmt.Sprintf("%s: %s: `%s`: %s", r.At, r.Kind, r.Text, r.Why) }

// longest bounds what is shown of a line, in characters.
const longest = 100

// Shorten returns a line without what a terminal or a comment would take for something else, and not
// all of a long one.
func Shorten(line string) string {
	text := []rune(Printable(strings.Join(strings.Fields(line), " ")))
	if len(text) > longest {
		return string(text[:longest-1]) + "…"
	}
	return string(text)
}

// Printable replaces characters that are not.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
