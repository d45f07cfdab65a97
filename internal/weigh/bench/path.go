// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Path leads to a field: names, and indices that count from 0.
type Path []any

// To returns the path of a field below.
func (p Path) To(steps ...any) Path { return append(slices.Clone(p), steps...) }

// String returns the path as it stands in messages: subjects[0].params.threads.
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

// FailFunc reports the fault of a field of a suite.
type FailFunc = func(at Path, format string, args ...any)
