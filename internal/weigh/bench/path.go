// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Path is the path to a field: names, and indexes that count from 0.
type Path []any

// To returns the path of a field below the path.
func (p Path) To(steps ...any) Path { return append(slices.Clone(p), steps...) }

// String returns the path in the form of messages: subjects[0].params.threads.
func (p Path) String() string {
	var text strings.Builder
	for i, step := range p {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&text, "[%d]", step)
		default:
			if i > 0 {
				text.WriteByte('.')
			}
			fmt.Fprint(&text, step)
		}
	}
	return text.String()
}

// FailFunc reports a mistake in a field of a suite.
type FailFunc = func(at Path, format string, args ...any)
