// SPDX-License-Identifier: Apache-2.0

// Package view shows on a terminal how far a run is: ended trials scroll by, and below it stands a status that is
// painted again.
package view

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Screen is the end of a terminal: lines that stay, and a status below them. It uses nothing but three control
// sequences that every terminal of the last forty years knows, so that lines that scrolled by can be read and copied
// afterwards. Its methods may be called from several goroutines.
type Screen struct {
	mu sync.Mutex
	to io.Writer
	// width is the number of columns now: the window may change.
	width   func() int
	status  []string
	painted int // lines of the status that stand on the terminal
}

// The control sequences (ECMA-48): to the line's begin and clear it; one line up.
const (
	clearLine = "\r\x1b[K"
	lineUp    = "\x1b[1A"
)

// narrowest is taken for the width where the terminal does not say.
const narrowest = 80

// New returns a screen on a terminal that is width columns wide; nil or zero
// columns stand for 80.
func New(to io.Writer, width func() int) *Screen { return &Screen{to: to, width: width} }

// Log prints a line that stays, above the status.
func (s *Screen) Log(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.erased() + line + "\n" + s.paint())
}

// Status puts lines in the place of those that stand below.
func (s *Screen) Status(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = lines
	s.write(s.erased() + s.paint())
}

// write prints in one piece, or a terminal would show half of it. That a terminal
// cannot be written to is no reason to end a run.
func (s *Screen) write(text string) { _, _ = io.WriteString(s.to, text) }

// erased takes the status back.
func (s *Screen) erased() string {
	if s.painted == 0 {
		return ""
	}
	back := clearLine + strings.Repeat(lineUp+clearLine, s.painted-1)
	s.painted = 0
	return back
}

// paint draws the status. A line that is too long is cut: the terminal would break
// it, and the place of all others would be another.
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

// Bar draws how much of total is done, in so many columns.
func Bar(done, total, columns int) string {
	full := 0
	if total > 0 {
		full = min(max(done*columns/total, 0), columns)
	}
	return "[" + strings.Repeat("█", full) + strings.Repeat("░", columns-full) + "]"
}

// SI writes a rate with a prefix: 1.23 M, 45.6 k, 7.
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
