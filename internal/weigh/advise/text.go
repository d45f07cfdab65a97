// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"io"
)

// Write writes the advice for a person.
func (v *Advice) Write(to io.Writer) error {
	w := &writer{to: to}
	w.line("%s", v.Summary)
	if len(v.Statements) > 0 {
		w.line("\nWhy:")
	}
	for _, s := range v.Statements {
		w.line("  %s: %s", s.About, s.Says)
		for _, f := range s.Figures {
			w.line("      %s", f)
		}
		if s.Assumes != "" {
			w.line("      assumed: %s", s.Assumes)
		}
	}
	if len(v.Excluded) > 0 {
		w.line("\nExcluded by the answers:")
	}
	for _, x := range v.Excluded {
		w.line("  %-8s %s", x.Mode, x.Why)
	}
	return w.err
}

// writer keeps the first error.
type writer struct {
	to  io.Writer
	err error
}

func (w *writer) line(format string, arguments ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.to, format+"\n", arguments...)
	}
}
