// SPDX-License-Identifier: Apache-2.0

// Package view shows the progress of a run on a terminal: finished trials scroll by, and below them is a status that is
// painted again and again.
package view

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Screen is the end of a terminal: lines that stay, and a status below them. It uses only three control sequences that
// every terminal of the last forty years supports, so that lines that have scrolled by can still be read and copied.
// Its methods may be called from several goroutines.
type Screen struct {
	mu sync.Mutex
	to io.Writer
	// width returns the present number of columns: the window may change.
	width   func() int
	status  []string
	painted int // lines of the status on the terminal
}

// The control sequences (ECMA-48): move to the beginning of the line and clear it; move one line up.
const (
	clearLine = "\r\x1b[K"
	lineUp    = "\x1b[1A"
)

// narrowest is the width if the terminal does not report one.
const narrowest = 80

// New returns a screen on a terminal that is width columns wide; nil or zero columns mean 80.
func New(to io.Writer, width func() int) *Screen { return &Screen{to: to, width: width} }

// Log prints a line that stays, above the status.
func (s *Screen) Log(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.erased() + line + "\n" + s.paint())
}

// Status replaces the status lines.
func (s *Screen) Status(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = lines
	s.write(s.erased() + s.paint())
}

// write prints in one piece, or a terminal would show half of it. Failure to write to a terminal is no reason to end a
// run.
func (s *Screen) write(text string) { _, _ = io.WriteString(s.to, text) }

// erased returns the sequences that erase the status.
func (s *Screen) erased() string {
	if s.painted == 0 {
		return ""
	}
	back := clearLine + strings.Repeat(lineUp+clearLine, s.painted-1)
	s.painted = 0
	return back
}

// paint draws the status. It cuts lines that are too long: the terminal would wrap them, which would move all other
// lines.
func (s *Screen) paint() string {
	s.painted = len(s.status)
	cut := make([]string, len(s.status))
	for i, line := range s.status {
		cut[i] = text.Snip(line, s.columns()-1, "…")
	}
	return strings.Join(cut, "\n")
}

func (s *Screen) columns() int {
	if s.width == nil {
		return narrowest
	}
	if width := s.width(); width > 1 {
		return width
	}
	return narrowest
}

// Bar draws the share of total that is done, in the given number of columns.
func Bar(done, total, columns int) string {
	full := 0
	if total > 0 {
		full = min(max(done*columns/total, 0), columns)
	}
	return "[" + strings.Repeat("█", full) + strings.Repeat("░", columns-full) + "]"
}

// SI formats a rate with an SI prefix: 1.23 M, 45.6 k, 7.
func SI(value float64) string {
	for _, unit := range []struct {
		size   float64
		prefix string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if value >= unit.size {
			return fmt.Sprintf("%.3g %s", value/unit.size, unit.prefix)
		}
	}
	return fmt.Sprintf("%.0f ", value)
}
