// SPDX-License-Identifier: Apache-2.0

// Package remark holds remarks on the lines of a file that is converted to another language. A remark is on a line that
// was left out, or that has an equivalent with differences.
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

// Kind is the outcome for a line that was not carried over unchanged.
type Kind string

// The kinds.
const (
	// Left means that the line is not in the result and has no effect.
	Left Kind = "left out"
	// Approximated means that the line is in the result, with a somewhat different effect.
	Approximated Kind = "approximated"
	// Needless means that the line has no counterpart and needs none.
	Needless Kind = "not needed"
)

// Remark is a remark on a line, for the user.
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

// longest limits the shown text of a line, in characters.
const longest = 100

// Shorten returns a line without characters that a terminal or a comment would interpret. It cuts a long line.
func Shorten(line string) string {
	text := []rune(Printable(strings.Join(strings.Fields(line), " ")))
	if len(text) > longest {
		return string(text[:longest-1]) + "…"
	}
	return string(text)
}

// Printable replaces unprintable characters.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
