// SPDX-License-Identifier: Apache-2.0

// Package remark holds the remarks on the lines of a file while it is written again in another language: lines that
// were left out, and lines with a counterpart that differs.
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

// Kind is the fate of a line that was not carried over as it stands.
type Kind string

// The kinds.
const (
	// Left is not in the result, and the line has no effect.
	Left Kind = "left out"
	// Approximated is in the result, and does not do quite the same.
	Approximated Kind = "approximated"
	// Needless has no counterpart, and needs none.
	Needless Kind = "not needed"
)

// Remark is a remark on a line, for a person.
type Remark struct {
	At   At
	Kind Kind
	// Text is the line, shortened.
	Text string
	// Why is the reason and the remedy.
	Why string
}

// String returns "file:line: kind: `line`: why".
func (r Remark) String() string { return fmt.Sprintf("%s: %s: `%s`: %s", r.At, r.Kind, r.Text, r.Why) }

// longest bounds the text of a line that is shown, in characters.
const longest = 100

// Shorten returns a line without characters that a terminal or a comment would take for something else, and not all of
// a long one.
func Shorten(line string) string {
	text := []rune(Printable(strings.Join(strings.Fields(line), " ")))
	if len(text) > longest {
		return string(text[:longest-1]) + "…"
	}
	return string(text)
}

// Printable replaces characters that are not printable.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
