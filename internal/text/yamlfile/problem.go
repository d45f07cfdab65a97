// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is a part of a file that cannot be used.
type Problem struct {
	// File is the name that the file was read under.
	File string
	// Line counts from 1; 0 means the whole file.
	Line int
	// Field is the path to the value, such as services[0].backends[2].weight (indexes count from 0); empty means the
	// whole file.
	Field string
	// Message names the problem and the remedy.
	Message string
}

// Error returns "file:line: field: message".
func (p Problem) Error() string { return p.String() }

// String returns "file:line: field: message".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems is a list of all problems of a file.
type Problems []Problem

// Error returns a line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns the problems as an error, or nil if there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// SortByLine sorts the problems by file and line. Problems on one line keep the order in which they were found.
func (ps Problems) SortByLine() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
}
